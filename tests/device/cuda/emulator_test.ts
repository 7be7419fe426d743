/**
 * The emulated CUDA machine: what kernels may rely on holds, and what they must not do is found.
 *
 * Needs Linux and g++; elsewhere every test is skipped. Each kernel here shows one promise of CUDA;
 * two real ones follow, computed again in plain TypeScript.
 */
import { assert, assertAlmostEquals, assertEquals, assertThrows } from "@std/assert";
import { CudaError } from "../../../core/runtime/cuda/driver/errors.ts";
import { fileNamed } from "../../unit/runtime/cuda/kernels.ts";
import type { Geometry } from "../../../core/runtime/cuda/driver/launch.ts";
import { EMULATED_ARCHITECTURE, EmulatorError } from "../../emulator/mod.ts";
import { plainAttention } from "../../emulator/plain.ts";
import { type Form, multiply } from "../../emulator/products.ts";
import { type Argument, test, type Type, values } from "../../emulator/testing.ts";

const block = (threads: number, x = 1, y = 1): Geometry => ({
  grid: [x, y, 1],
  block: [threads, 1, 1],
});

const HEAD = `#include "common/ptx.cuh"
extern "C" __global__ void __launch_bounds__(128) `;

test("threads meet at barriers and exchange values within a warp", (bench) => {
  const kernel = bench.kernel(
    `${HEAD} exchange(int* out) {
      __shared__ int other[96];
      const int i = threadIdx.x;
      other[i] = 100 * blockIdx.x + i;
      __syncthreads();
      int* row = out + (blockIdx.x * 96 + i) * 7;
      row[0] = other[95 - i];
      row[1] = __shfl_xor_sync(0xffffffffu, i, 5);
      row[2] = __shfl_down_sync(0xffffffffu, i, 3, 8);
      row[3] = __shfl_up_sync(0xffffffffu, i, 1);
      row[4] = __shfl_sync(0xffffffffu, i, 9, 16);
      row[5] = (int)__ballot_sync(0xffffffffu, i % 3 == 0);
      row[6] = i % 32 < 8 ? __reduce_add_sync(0xffu, i) : -1;
      if (i % 32 >= 16) return;
      row[6] += __shfl_xor_sync(0xffffu, 0, 1);
    }`,
    "exchange",
  );
  const out = bench.empty(4 * 2 * 96 * 7);
  bench.launch(kernel, block(96, 2), [out]);
  const found = new Int32Array(bench.get(out, 2 * 96 * 7).buffer);
  for (let i = 0; i < 192; i++) {
    const [at, thread] = [Math.floor(i / 96), i % 96];
    const [lane, first] = [thread % 32, thread - thread % 32];
    const ballot = Array.from({ length: 32 }, (_, l) => (first + l) % 3 === 0 ? 1 << l : 0);
    assertEquals([...found.subarray(7 * i, 7 * i + 7)], [
      100 * at + 95 - thread,
      thread ^ 5,
      lane % 8 + 3 < 8 ? thread + 3 : thread,
      lane > 0 ? thread - 1 : thread,
      thread - thread % 16 + 9,
      ballot.reduce((sum, bit) => sum | bit),
      lane < 8 ? 8 * first + 28 : -1,
    ]);
  }
});

test("matrix instructions have the layouts of the PTX ISA", (bench) => {
  // Operands come by cp_async with padded rows, straight and transposed in memory.
  const kernel = bench.kernel(
    `${HEAD} product(float* out, unsigned* registers, const unsigned short* a,
                     const unsigned short* at, const unsigned short* b,
                     const unsigned short* bt) {
      unsigned short (*A)[24] = (unsigned short (*)[24])dynamicShared();  // (16, 16)
      unsigned short (*AT)[24] = A + 16;                                  // (k, row)
      unsigned short (*B)[8] = (unsigned short (*)[8])(AT + 16);          // (k, column)
      unsigned short (*BT)[24] = (unsigned short (*)[24])(B + 16);        // (column, k)
      const int lane = threadIdx.x, row = lane / 2, half = lane % 2 * 8;
      cp_async_16(&A[row][half], a + row * 16 + half, true);
      cp_async_16(&AT[row][half], at + row * 16 + half, true);
      cp_async_commit();
      if (lane < 16) cp_async_16(&B[lane][0], b + lane * 8, true);
      if (lane < 16) cp_async_16(&BT[lane / 2][half], bt + row * 16 + half, true);
      cp_async_commit();
      cp_async_wait<0>();
      __syncthreads();
      unsigned straight[4], turned[4], columns[2], rows[2];
      ldmatrix_x4(straight, &A[lane % 16][lane / 16 * 8]);
      ldmatrix_x4_trans(turned, &AT[lane % 8 + lane / 16 * 8][lane / 8 % 2 * 8]);
      ldmatrix_x2(columns, &BT[lane % 8][lane / 8 % 2 * 8]);
      ldmatrix_x2_trans(rows, &B[lane % 16][0]);
      for (int i = 0; i < 4; i++) {
        registers[8 * lane + i] = straight[i];
        registers[8 * lane + 4 + i] = turned[i];
      }
      float d[2][4] = {{1, 1, 1, 1}};
      mma_m16n8k16_bf16(d[0], straight, columns);
      mma_m16n8k16_bf16(d[1], turned, rows);
      for (int way = 0; way < 2; way++) {
        for (int i = 0; i < 4; i++) {
          const int r = lane / 4 + i / 2 * 8, c = lane % 4 * 2 + i % 2;
          out[way * 128 + r * 8 + c] = d[way][i];
        }
      }
    }`,
    "product",
  );
  const [a, b] = [values(256, 1), values(128, 2)];
  const at = a.map((_, i) => a[i % 16 * 16 + Math.floor(i / 16)]!);
  const bt = b.map((_, i) => b[i % 16 * 8 + Math.floor(i / 16)]!);
  const [out, registers] = [bench.empty(1024), bench.empty(1024)];
  const inputs = [a, at, b, bt].map((each) => bench.put(each, "bf16"));
  const shared = 2 * (2 * 16 * 24 + 128 + 8 * 24);
  bench.launch(kernel, { ...block(32), shared }, [out, registers, ...inputs]);
  const pairs = bench.get(registers, 512, "bf16");
  pairs.forEach((each, i) => {
    const [lane, register, second] = [Math.floor(i / 16), Math.floor(i / 2) % 4, i % 2];
    const row = Math.floor(lane / 4) + register % 2 * 8;
    const column = lane % 4 * 2 + second + (register >> 1) * 8;
    assertEquals(each, a[16 * row + column], `lane ${lane}, register ${register}`);
  });
  const expected = Array.from({ length: 128 }, (_, i) => {
    const [r, c] = [Math.floor(i / 8), i % 8];
    return Array.from({ length: 16 }, (_, k) => a[16 * r + k]! * b[8 * k + c]!)
      .reduce((sum, each) => sum + each);
  });
  const found = [...bench.get(out, 256)];
  assertClose(found.slice(0, 128), expected.map((each) => each + 1), 1e-5);
  assertClose(found.slice(128), expected, 1e-5);
});

test("a launch that may start early has to wait for the one before it", (bench) => {
  const launch = (body: string, early: boolean) => {
    const kernel = bench.kernel(`${HEAD} turn(float* out) { ${body} }`, "turn");
    bench.launch(kernel, { ...block(32), early }, [bench.empty(64)]);
    bench.driver.synchronize(bench.stream);
  };
  const late = "if (threadIdx.x == 3) return; griddep_wait();";
  launch(late, false);
  launch("griddep_launch(); griddep_wait(); out[0] = 1;", true);
  assertThrows(
    () => launch(late, true),
    EmulatorError,
    "thread (3, 0, 0): returned without waiting for the launch before",
  );
});

test("a copy that is not waited for is not there yet, and one of nothing gives zeros", (bench) => {
  const kernel = bench.kernel(
    `${HEAD} early(float* out, const float* x) {
      __shared__ __align__(16) float tile[12];
      cp_async_16(tile, x, true);
      cp_async_commit();
      cp_async_16(tile + 4, x + 4, true);
      cp_async_commit();
      cp_async_16(tile + 8, nullptr, false);
      cp_async_commit();
      cp_async_wait<2>();
      out[0] = tile[0], out[1] = tile[4];
      cp_async_wait<0>();
      out[2] = tile[4], out[3] = tile[8];
    }`,
    "early",
  );
  const [out, x] = [bench.empty(16), bench.put(Float32Array.of(1, 2, 3, 4, 5, 6, 7, 8))];
  bench.launch(kernel, block(1), [out, x]);
  assertEquals([...bench.get(out, 4)], [1, NaN, 5, 0]);
});

/** Kernels that break a rule, and what is said about them. */
const FAULTS: readonly [rule: string, body: string, text: string, list?: Argument[]][] = [
  [
    "a barrier that some threads pass by",
    "if (threadIdx.x != 5) __syncthreads();",
    "kernel fault, block (0, 0, 0): barrier reached by 31 of 32 threads",
  ],
  [
    "a shuffle in one branch",
    "if (threadIdx.x < 7) out[0] = __shfl_sync(0xffffffffu, out[0], 0); else __syncthreads();",
    "__shfl_sync with mask ffffffff reached by lanes 0000007f of warp 0 only",
  ],
  [
    "different instructions that meet",
    "if (threadIdx.x < 7) __shfl_sync(~0u, 1, 0); else __syncwarp();",
    "__syncwarp while lanes 0000007f of the warp are in __shfl_sync",
  ],
  [
    "a mask that leaves out the caller",
    "__syncwarp(0xffff);",
    "thread (16, 0, 0): __syncwarp with mask 0000ffff, which leaves out lane 16",
  ],
  [
    "a matrix instruction without its warp",
    "unsigned r[2]; if (threadIdx.x) ldmatrix_x2(r, dynamicShared());",
    "ldmatrix_x2 without lanes 00000001 of its warp",
  ],
  ["a write past an allocation", "out[64 + threadIdx.x] = 1;", "after kernel fault"],
  ["a write before an allocation", "out[-1 - (int)threadIdx.x] = 1;", "after kernel fault"],
  ["a write past dynamic shared memory", "dynamicShared()[64] = 1;", "wrote past its 64 bytes"],
  ["a misaligned vector", "((float4*)(out + 1))->x = 1;", "an access that is misaligned"],
  ["an index outside an array", "__shared__ float x[4]; x[threadIdx.x] = 1;", "outside an array"],
  ["an access to nowhere", "*(volatile int*)(out + (1ll << 40)) = 1;", "to no memory"],
];

for (const [rule, body, text] of FAULTS) {
  test(`${rule} is reported`, (bench) => {
    const kernel = bench.kernel(`${HEAD} fault(float* out) { ${body} }`, "fault");
    const out = bench.empty(256);
    bench.launch(kernel, { ...block(32), shared: 64 }, [out]);
    assertThrows(() => bench.driver.synchronize(bench.stream), EmulatorError, text);
    bench.driver.synchronize(bench.stream);
  });
}

test("unwritten memory is NaN, also shared memory of the next block", (bench) => {
  const kernel = bench.kernel(
    `${HEAD} stale(float* out) {
      __shared__ float left;
      out[blockIdx.x] = left;
      left = 1.0f;
    }`,
    "stale",
  );
  const out = bench.empty(12);
  bench.launch(kernel, block(1, 2), [out]);
  assertEquals([...bench.get(out, 3)], [NaN, NaN, NaN]);
});

const COUNT = `${HEAD} count(int* x, int step) { x[threadIdx.x] += step; }`;

test("work runs in stream order and when something waits for it", (bench) => {
  const { driver, stream } = bench;
  const kernel = bench.kernel(COUNT, "count");
  const x = bench.put(Int32Array.of(5));
  const other = driver.createStream();
  const [start, end] = [driver.createEvent({ timing: true }), driver.createEvent({ timing: true })];
  const pinned = driver.allocatePinned(4);
  driver.recordEvent(start, stream);
  bench.launch(kernel, block(1), [x, ["i32", 2]]);
  driver.recordEvent(end, stream);
  driver.waitEvent(other, end);
  driver.downloadAsync(pinned.address, x, 4, other);
  const seen = new Int32Array(1);
  driver.download(seen, x);
  assertEquals(seen[0], 5, "a blocking copy does not wait for a stream of one's own");
  assertEquals(driver.isDone(end), false);
  assertEquals(driver.isDone(end), true);
  assert(driver.elapsed(start, end) >= 0);
  driver.synchronize(other);
  assertEquals(new Int32Array(pinned.buffer)[0], 7);
  driver.zero(x, 4, stream);
  driver.synchronize(stream);
  driver.download(seen, x);
  assertEquals(seen[0], 0);
  driver.destroyStream(other);
  driver.freePinned(pinned);
});

test("a graph keeps its arguments and reads memory as it is at each launch", (bench) => {
  const { driver, stream } = bench;
  const kernel = bench.kernel(COUNT, "count");
  const [x, copy] = [bench.put(Int32Array.of(1, 2)), bench.empty(8)];
  const site = bench.site(kernel, block(2), [x, ["i32", 10]]);
  const graph = driver.capture(stream, () => {
    site.launch(driver, stream);
    driver.copy(copy, x, 8, stream);
  });
  site.set(1, 1000);
  const read = () => [...new Int32Array(bench.get(copy, 2).buffer)];
  assertEquals(read(), [-1, -1], "nothing runs while it is captured");
  driver.launchGraph(graph, stream);
  driver.launchGraph(graph, stream);
  assertEquals(read(), [21, 22]);
  driver.upload(x, Int32Array.of(100, 200));
  driver.launchGraph(graph, stream);
  assertEquals(read(), [110, 210]);
  driver.destroyGraph(graph);
  assertThrows(() => driver.launchGraph(graph, stream), CudaError, "INVALID_HANDLE");
  const allocate = () => driver.capture(stream, () => void driver.allocate(4));
  assertThrows(allocate, CudaError, "STREAM_CAPTURE_UNSUPPORTED");
  const wait = () => driver.capture(stream, () => driver.synchronize(stream));
  assertThrows(wait, CudaError, "STREAM_CAPTURE_UNSUPPORTED");
  const fork = driver.createStream();
  const unjoined = () =>
    driver.capture(stream, () => {
      const event = driver.createEvent();
      driver.recordEvent(event, stream);
      driver.waitEvent(fork, event);
      driver.zero(x, 8, fork);
    });
  assertThrows(unjoined, CudaError, "STREAM_CAPTURE_UNJOINED");
  driver.destroyStream(fork);
});

test("wrong calls get the codes of a real driver", (bench) => {
  const { driver, stream } = bench;
  const kernel = bench.kernel(COUNT, "count");
  const x = bench.empty(4);
  const step: Argument = ["i32", 1];
  const launch = (geometry: Geometry) => () => bench.launch(kernel, geometry, [x, step]);
  assertThrows(launch(block(129)), CudaError, "INVALID_VALUE");
  assertThrows(launch(block(1, 1, 65536)), CudaError, "INVALID_VALUE");
  assertThrows(launch(block(0)), CudaError, "INVALID_VALUE");
  const large = { ...block(1), shared: 100 * 1024 };
  assertThrows(launch(large), CudaError, "INVALID_VALUE");
  driver.allowShared(kernel, large.shared);
  launch(large)();
  assertThrows(() => driver.allowShared(kernel, 230 * 1024), CudaError, "INVALID_VALUE");
  assertThrows(() => bench.launch(kernel, block(1), [8n, step]), EmulatorError, "argument 0");
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

function assertClose(found: ArrayLike<number>, expected: readonly number[], tolerance: number) {
  assertEquals(found.length, expected.length);
  expected.forEach((each, i) =>
    assertAlmostEquals(found[i]!, each, tolerance * (1 + Math.abs(each)))
  );
}

/** What is left of the accuracy of a result stored in this type. */
const TOLERANCE: Readonly<Record<Type, number>> = { f32: 3e-6, bf16: 4.5e-3 };

for (const type of ["f32", "bf16"] as const) {
  test(`rms_norm in ${type} is what plain TypeScript computes`, (bench) => {
    const [rows, size, epsilon] = [11, 100, 1e-3]; // 100 is no multiple of 8
    const source = fileNamed("forward/rms_norm.cu");
    const kernel = bench.kernel(source.text, "rms_norm", {
      headers: source.headers,
      defines: { BF16: type === "bf16" ? 1 : 0 },
    });
    const [x, weight] = [values(rows * size, 3), values(size, 4)];
    const [y, inverse] = [bench.empty(4 * rows * size), bench.empty(4 * rows)];
    bench.launch(kernel, block(256, Math.ceil(rows / 8)), [
      ...[y, inverse, bench.put(x, type), bench.put(weight, type)],
      ...[["i32", rows], ["i32", size], ["f32", epsilon]] as const,
    ]);
    const scales = Array.from({ length: rows }, (_, row) => {
      const squares = x.subarray(row * size, (row + 1) * size).reduce((sum, v) => sum + v * v, 0);
      return 1 / Math.sqrt(squares / size + epsilon);
    });
    const expected = [...x].map((v, i) => v * scales[Math.floor(i / size)]! * weight[i % size]!);
    assertClose(bench.get(y, rows * size, type), expected, TOLERANCE[type]);
    assertClose(bench.get(inverse, rows), scales, TOLERANCE.f32);
  });

  test(`attention in ${type} is what plain TypeScript computes`, (bench) => {
    const [P, B, T, S, K, G, M, D] = [2, 2, 5, 37, 2, 3, 4, 64] as const;
    const [R, H, scale] = [P * B, K * G, 1 / 8];
    const source = fileNamed("forward/attention.cu");
    const kernel = bench.kernel(source.text, "attention", {
      headers: source.headers,
      defines: { BF16: type === "bf16" ? 1 : 0, HEAD_DIM: D },
    });
    const q = values(R * T * H * D, 5);
    const [keys, moreValues] = [values(R * K * S * D, 6), values(R * K * S * D, 7)];
    const [prefixKeys, prefixValues] = [values(P * K * M * D, 8), values(P * K * M * D, 9)];
    const first = Int32Array.from({ length: B * T }, (_, i) => i < T ? 0 : 3);
    const last = Int32Array.from({ length: B * T }, (_, i) => 32 + i % T);
    const [out, normalizer] = [bench.empty(4 * R * T * H * D), bench.empty(4 * R * T * H)];
    bench.launch(kernel, { grid: [Math.ceil(G * T / 16), K, R], block: [128, 1, 1] }, [
      ...[out, normalizer, bench.put(q, type), bench.put(keys, type), bench.put(moreValues, type)],
      ...[bench.put(first), bench.put(last), null, bench.put(prefixKeys, type)],
      ...[bench.put(prefixValues, type)],
      ...[R, B, T, S, K, G, M].map((size) => ["i32", size] as const),
      ["f32", scale],
    ]);
    const { out: expected, normalizer: normalizers } = plainAttention(
      { P, B, T, S, K, G, M, D, scale },
      { q, keys, values: moreValues, prefixKeys, prefixValues, first, last },
    );
    assertClose(bench.get(out, expected.length, type), expected, TOLERANCE[type]);
    assertClose(bench.get(normalizer, normalizers.length), normalizers, TOLERANCE.f32);
  });
}

const [ROWS, IN, OUT] = [21, 40, 24];
const FORMS: readonly Form[] = [
  { name: "y = x wᵀ + bias", a: [1, IN, OUT], b: [0, IN, ROWS], bias: true },
  { name: "dx = dy w", a: [0, IN, OUT], b: [0, OUT, ROWS] },
  { name: "dw += dyᵀ x", a: [0, IN, ROWS], b: [1, OUT, ROWS], wide: true, beta: 1 },
  { name: "three products at once", a: [1, IN, OUT], b: [0, IN, ROWS], batch: 3 },
];

for (const type of ["f32", "bf16"] as const) {
  for (const form of FORMS) {
    test(`products in ${type}: ${form.name}`, (bench) => {
      const answer = multiply(bench, type, form);
      assertClose(answer.found, answer.expected, TOLERANCE[answer.type]);
    });
  }
}
