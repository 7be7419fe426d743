/**
 * The emulated CUDA machine: what kernels may rely on holds, and what they must not do is found.
 *
 * Needs Linux and g++; elsewhere every test is skipped. Each kernel here shows one promise of CUDA; matrix
 * instructions are in ptx_test.ts.
 */
import { assert, assertEquals, assertThrows } from "@std/assert";
import { CudaError } from "../../../core/runtime/cuda/driver/errors.ts";
import type { LaunchConfig } from "../../../core/runtime/cuda/driver/launch.ts";
import { fileNamed } from "../../unit/runtime/cuda/kernels.ts";
import { EMULATED_ARCHITECTURE, EmulatorError } from "../../emulator/mod.ts";
import { type Argument, test } from "../../emulator/testing.ts";
import { blocks } from "./checks.ts";

test("threads meet at barriers and exchange values within a warp", (bench) => {
  const kernel = bench.kernelFrom(`exchange(int* out) {
    __shared__ int other[96];
    const int i = threadIdx.x;
    other[i] = 100 * blockIdx.x + i;
    __syncthreads();
    int* row = out + (blockIdx.x * 96 + i) * 3;
    row[0] = other[95 - i];
    row[1] = __shfl_xor_sync(0xffffffffu, i, 5);
    row[2] = -1;
    if (i % 32 >= 16) return;
    row[2] = __shfl_xor_sync(0xffffu, i, 1);
  }`);
  const out = bench.empty(4 * 2 * 96 * 3);
  bench.launch(kernel, blocks(96, 2), [out]);
  const found = new Int32Array(bench.get(out, 2 * 96 * 3).buffer);
  for (let i = 0; i < 192; i++) {
    const at = Math.floor(i / 96), thread = i % 96;
    assertEquals([...found.subarray(3 * i, 3 * i + 3)], [
      ...[100 * at + 95 - thread, thread ^ 5, thread % 32 < 16 ? thread ^ 1 : -1],
    ]);
  }
});

/** Kernels that break a rule, and what is said about them. */
const FAULTS: readonly [rule: string, body: string, text: string][] = [
  [
    "a barrier that some threads pass by",
    "if (threadIdx.x != 5) __syncthreads();",
    "kernel fault, block (0, 0, 0): barrier reached by 31 of 32 threads",
  ],
  [
    "a shuffle in one branch",
    "if (threadIdx.x < 7) __shfl_xor_sync(0xffffffffu, 1, 1); else __syncthreads();",
    "__shfl_xor_sync with mask ffffffff reached by lanes 0000007f of warp 0 only",
  ],
  [
    "different instructions that meet",
    "if (threadIdx.x < 7) __shfl_xor_sync(~0u, 1, 1); else __shfl_xor_sync(~0u, 1ll, 1);",
    "__shfl_xor_sync while lanes 0000007f of the warp are in __shfl_xor_sync",
  ],
  [
    "a mask that leaves out the caller",
    "__shfl_xor_sync(0xffff, 1, 1);",
    "thread (16, 0, 0): __shfl_xor_sync with mask 0000ffff, which leaves out lane 16",
  ],
  [
    "a matrix instruction without its warp",
    "__shared__ __align__(16) float x[4]; unsigned r[4]; if (threadIdx.x) ldmatrix_x4(r, x);",
    "ldmatrix_x4 without lanes 00000001 of its warp",
  ],
  ["a write past an allocation", "out[64 + threadIdx.x] = 1;", "after kernel fault"],
  ["a write before an allocation", "out[-1 - (int)threadIdx.x] = 1;", "after kernel fault"],
  [
    "a misaligned vector",
    "struct alignas(16) Four { float x[4]; }; ((Four*)(out + 1))->x[0] = 1;",
    "an access that is misaligned",
  ],
  ["an index outside an array", "__shared__ float x[4]; x[threadIdx.x] = 1;", "outside an array"],
  ["an access to nowhere", "*(volatile int*)(out + (1ll << 40)) = 1;", "to no memory"],
];

for (const [rule, body, text] of FAULTS) {
  test(`${rule} is reported`, (bench) => {
    const kernel = bench.kernelFrom(`fault(float* out) { ${body} }`);
    const out = bench.empty(256);
    bench.launch(kernel, blocks(32), [out]);
    assertThrows(() => bench.driver.synchronize(bench.stream), EmulatorError, text);
    bench.driver.synchronize(bench.stream);
  });
}

test("unwritten memory is NaN, also shared memory of the next block", (bench) => {
  const kernel = bench.kernelFrom(`stale(float* out) {
    __shared__ float left;
    out[blockIdx.x] = left;
    left = 1.0f;
  }`);
  const out = bench.empty(12);
  bench.launch(kernel, blocks(1, 2), [out]);
  assertEquals([...bench.get(out, 3)], [NaN, NaN, NaN]);
});

const COUNT = `count(int* x, int step) { x[threadIdx.x] += step; }`;

test("work runs in stream order and when something waits for it", (bench) => {
  const { driver, stream } = bench;
  const kernel = bench.kernelFrom(COUNT);
  const x = bench.empty(4);
  const source = Int32Array.of(5);
  driver.upload(x, source, stream);
  source[0] = -1; // read already
  const start = driver.createEvent({ timing: true }), end = driver.createEvent({ timing: true });
  const pinned = driver.allocatePinned(4);
  driver.recordEvent(start, stream);
  bench.launch(kernel, blocks(1), [x, ["i32", 2]]);
  driver.downloadPinned(pinned.address, x, 4, stream);
  driver.recordEvent(end, stream);
  driver.zero(x, 4, stream);
  const seen = new Int32Array(pinned.buffer);
  assertEquals(seen[0], -1, "nothing has run yet");
  assertEquals(driver.isDone(end), false);
  assertEquals(driver.isDone(end), true);
  driver.waitFor(end);
  assert(driver.elapsed(start, end) >= 0);
  assertEquals(seen[0], 7);
  const now = new Int32Array(1);
  driver.download(now, x, stream);
  assertEquals(now[0], 0);
  driver.freePinned(pinned);
});

test("a graph keeps its arguments and reads memory as it is at each launch", (bench) => {
  const { driver, stream } = bench;
  const kernel = bench.kernelFrom(COUNT);
  const x = bench.put(Int32Array.of(1, 2)), copy = bench.empty(8);
  const launch = bench.prepare(kernel, blocks(2), [x, ["i32", 10]]);
  const graph = driver.capture(stream, () => {
    driver.launch(launch, stream);
    driver.copy(copy, x, 8, stream);
  });
  launch.set(1, 1000);
  const read = () => [...new Int32Array(bench.get(copy, 2).buffer)];
  assertEquals(read(), [-1, -1], "nothing runs while it is captured");
  driver.launchGraph(graph, stream);
  driver.launchGraph(graph, stream);
  assertEquals(read(), [21, 22]);
  driver.upload(x, Int32Array.of(100, 200), stream);
  driver.launchGraph(graph, stream);
  assertEquals(read(), [110, 210]);
  driver.destroyGraph(graph);
  assertThrows(() => driver.launchGraph(graph, stream), CudaError, "INVALID_HANDLE");
  const allocate = () => driver.capture(stream, () => void driver.allocate(4));
  assertThrows(allocate, CudaError, "STREAM_CAPTURE_UNSUPPORTED");
  const wait = () => driver.capture(stream, () => driver.synchronize(stream));
  assertThrows(wait, CudaError, "STREAM_CAPTURE_UNSUPPORTED");
});

test("wrong calls get the codes of a real driver", (bench) => {
  const { driver, stream } = bench;
  const kernel = bench.kernelFrom(COUNT);
  const x = bench.empty(4);
  const step: Argument = ["i32", 1];
  const launch = (config: LaunchConfig) => () => bench.launch(kernel, config, [x, step]);
  assertThrows(launch(blocks(129)), CudaError, "INVALID_VALUE");
  assertThrows(launch(blocks(1, 1, 65536)), CudaError, "INVALID_VALUE");
  assertThrows(launch(blocks(0)), CudaError, "INVALID_VALUE");
  assertThrows(() => bench.launch(kernel, blocks(1), [8n, step]), EmulatorError, "argument 0");
  assertThrows(() => driver.synchronize(3n), CudaError, "INVALID_HANDLE");
  assertThrows(() => driver.free(x + 256n), CudaError, "INVALID_VALUE");
  assertThrows(() => driver.zero(x, 8, stream), CudaError, "INVALID_VALUE");
  assertThrows(() => driver.allocate(2 ** 33), CudaError, "OUT_OF_MEMORY");
  const module = driver.loadModule(
    bench.machine.compiler.compile(fileNamed("forward/rms_norm.cu"), {
      architecture: EMULATED_ARCHITECTURE,
      defines: { BF16: 0 },
    }).bytes,
    "rms_norm",
  );
  assertThrows(() => driver.getFunction(module, "other"), CudaError, "NOT_FOUND");
  driver.unloadModule(module);
  driver.synchronize(stream);
});
