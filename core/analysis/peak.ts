/** Arithmetic and bandwidth that a device reaches: the best of a few products of large matrices. */
import { Builder } from "../graph/builder.ts";
import { linear } from "../ops/linear.ts";
import type { Device } from "../runtime/device.ts";

const SIZE = 768;
const RUNS = 4;

/** Operations per second of the fastest of a few products; takes about a tenth of a second. */
export async function measurePeak(device: Device): Promise<number> {
  const g = new Builder("peak");
  const square = { dtype: "f32", shape: [SIZE, SIZE] } as const;
  g.output("y", linear({ x: g.input("x", square), weight: g.input("w", square) }));
  const executable = await device.compile(g.build(), new Map());
  const tensors = new Map(["x", "w", "y"].map((name) => [name, device.allocate(square)]));
  return 2 * SIZE ** 3 / await fastest(RUNS, () => executable.run(tensors));
}

/** Sides of the matrix that is read: 128 MiB, more than caches of today hold. */
const MATRIX_ROWS = 8192, MATRIX_COLUMNS = 4096;
const READS = 6;

/** Bytes of weights per second that a product of one row reads. */
export async function measureBandwidth(device: Device): Promise<number> {
  const g = new Builder("bandwidth");
  const type = { dtype: "f32", shape: [MATRIX_ROWS, MATRIX_COLUMNS] } as const;
  const row = { dtype: "f32", shape: [1, MATRIX_COLUMNS] } as const;
  g.output("y", linear({ x: g.input("x", row), weight: g.parameter("w", type) }));
  const data = new Float32Array(MATRIX_ROWS * MATRIX_COLUMNS).map((_, i) => (i % 101 - 50) / 1000);
  const executable = await device.compile(g.build(), new Map([["w", { ...type, data }]]));
  const tensors = new Map([
    ["x", device.allocate(row)],
    ["y", device.allocate({ dtype: "f32", shape: [1, MATRIX_ROWS] })],
  ]);
  return data.byteLength / await fastest(READS, () => executable.run(tensors));
}

/** Seconds of the fastest of some runs. */
async function fastest(runs: number, run: () => Promise<void>): Promise<number> {
  let best = Infinity;
  for (let i = 0; i < runs; i++) {
    const began = performance.now();
    await run();
    best = Math.min(best, (performance.now() - began) / 1000);
  }
  return best;
}
