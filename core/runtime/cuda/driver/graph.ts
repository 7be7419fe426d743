/** Work of a stream as a CUDA graph. */
import { checkDriver } from "./errors.ts";
import { readHandle } from "./results.ts";
import type { DriverSymbols } from "./symbols.ts";

const THREAD_LOCAL = 1;

/**
 * What `issue` puts into the stream, as a graph that can be launched again and again. Everything in
 * it must have run once before, and it may neither allocate nor wait.
 */
export function captureGraph(cu: DriverSymbols, stream: bigint, issue: () => void): bigint {
  checkDriver(cu.cuStreamBeginCapture_v2(stream, THREAD_LOCAL), "begin to capture a graph");
  try {
    issue();
  } catch (error) {
    const broken = new BigUint64Array(1);
    cu.cuStreamEndCapture(stream, broken); // the first error says more than this one would
    if (broken[0]) cu.cuGraphDestroy(broken[0]);
    throw error;
  }
  const graph = readHandle(
    "end the capture of a graph",
    (out) => cu.cuStreamEndCapture(stream, out),
  );
  try {
    return readHandle(
      "make a graph ready",
      (out) => cu.cuGraphInstantiateWithFlags(out, graph, 0n),
    );
  } finally {
    checkDriver(cu.cuGraphDestroy(graph), "free the template of a graph");
  }
}
