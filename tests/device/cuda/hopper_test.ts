/**
 * Hopper's instructions on the emulated machine: copies of boxes, barriers that count bytes, products
 * of a warpgroup. What the PTX ISA says of their layouts holds, and what a kernel must not do is found.
 *
 * Needs Linux and g++; elsewhere every test is skipped.
 */
import { assertAlmostEquals, assertEquals, assertThrows } from "@std/assert";
import { CudaError } from "../../../core/runtime/cuda/driver/errors.ts";
import { KERNEL_HEADERS } from "../../../core/runtime/cuda/kernels/headers.ts";
import { EmulatorError } from "../../emulator/mod.ts";
import { type Bench, test, values } from "../../emulator/testing.ts";

const HEAD = `#include "common/hopper.cuh"
extern "C" __global__ void __launch_bounds__(256) `;

/** A kernel that includes the header. */
function kernel(bench: Bench, entry: string, text: string): bigint {
  return bench.kernel(`${HEAD} ${entry}${text}`, entry, { headers: KERNEL_HEADERS });
}

const geometry = (threads: number, shared: number) =>
  ({ grid: [1, 1, 1], block: [threads, 1, 1], shared }) as const;

test("a box comes swizzled, with zeros for what is outside, and not before it is waited for", (bench) => {
  const [width, height, depth] = [64, 11, 3];
  const x = values(width * height * depth, 1);
  const map = bench.driver.encodeTensorMap({
    address: bench.put(x, "bf16"),
    sizes: [width, height, depth],
    box: [64, 16, 1],
  });
  const copy = kernel(
    bench,
    "boxed",
    `(unsigned short* out, unsigned short* early, const __grid_constant__ TensorMap map) {
      unsigned short* box = (unsigned short*)dynamicShared();
      Barrier* full = (Barrier*)(box + 16 * 64);
      if (threadIdx.x == 0) {
        mbarrier_init(full, 1);
        fence_mbarrier_init();
        for (int i = 0; i < 16 * 64; i++) box[i] = 1;
        mbarrier_arrive_expect_tx(full, 16 * 64 * 2);
        cp_async_bulk_tensor_3d(box, map, 0, 3, 2, full);
      }
      __syncthreads();
      for (int i = threadIdx.x; i < 16 * 64; i += 64) early[i] = box[i];
      while (!mbarrier_try_wait_parity(full, 0, 1)) {}
      for (int i = threadIdx.x; i < 16 * 64; i += 64) out[i] = box[i];
    }`,
  );
  const [out, early] = [bench.empty(16 * 64 * 2), bench.empty(16 * 64 * 2)];
  bench.launch(copy, geometry(64, 16 * 64 * 2 + 8), [out, early, map]);
  assertEquals(new Set(bench.get(early, 16 * 64, "bf16")), new Set([NaN]));
  const found = bench.get(out, 16 * 64, "bf16");
  for (let row = 0; row < 16; row++) {
    for (let column = 0; column < 64; column++) {
      const piece = Math.floor(column / 8) ^ row % 8;
      const expected = row + 3 < height ? x[(2 * height + row + 3) * width + column] : 0;
      assertEquals(found[row * 64 + piece * 8 + column % 8], expected, `row ${row}, ${column}`);
    }
  }
});

/** Both operands in shared memory as B; A from registers, as mma has it. */
const PRODUCTS = `(float* d64, float* d128, float* rows, const unsigned* a,
                   const __grid_constant__ TensorMap map) {
  unsigned short* tile = (unsigned short*)dynamicShared();  // (128, 64)
  Barrier* full = (Barrier*)(tile + 128 * 64);
  if (threadIdx.x == 0) {
    mbarrier_init(full, 1);
    fence_mbarrier_init();
    mbarrier_arrive_expect_tx(full, 128 * 64 * 2);
    cp_async_bulk_tensor_3d(tile, map, 0, 0, 0, full);
  }
  __syncthreads();
  while (!mbarrier_try_wait_parity(full, 0, 1)) {}
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, first = threadIdx.x / 32 * 16;
  unsigned left[4][4];  // A (64, 64)
  for (int k = 0; k < 4; k++) {
    for (int i = 0; i < 4; i++) {
      left[k][i] = a[(first + g + i % 2 * 8) * 32 + k * 8 + t + i / 2 * 4];
    }
  }
  float narrow[32], wide[64], turned[32];
  for (int i = 0; i < 32; i++) turned[i] = 1;
  wgmma_fence();
  for (int k = 0; k < 4; k++) {
    const unsigned long long columns = matrix_descriptor(tile + k * 16);
    wgmma_m64n64k16_bf16<false>(narrow, left[k], columns, k > 0);
    wgmma_m64n128k16_bf16(wide, left[k], columns, k > 0);
    wgmma_m64n64k16_bf16<true>(turned, left[k], matrix_descriptor(tile + k * 16 * 64), true);
  }
  wgmma_commit();
  wgmma_wait<0>();
  for (int i = 0; i < 64; i++) {
    const int row = first + g + i / 2 % 2 * 8, column = i / 4 * 8 + t * 2 + i % 2;
    d128[row * 128 + column] = wide[i];
    if (i < 32) d64[row * 64 + column] = narrow[i], rows[row * 64 + column] = turned[i];
  }
}`;

test("products of a warpgroup have the layouts of the PTX ISA", (bench) => {
  const [a, b] = [values(64 * 64, 2), values(128 * 64, 3)];
  const map = bench.driver.encodeTensorMap({
    address: bench.put(b, "bf16"),
    sizes: [64, 128, 1],
    box: [64, 128, 1],
  });
  const [d64, d128, rows] = [64, 128, 64].map((columns) => bench.empty(64 * columns * 4)) as
    & bigint[]
    & [bigint, bigint, bigint];
  const products = kernel(bench, "products", PRODUCTS);
  const all = [d64, d128, rows, bench.put(a, "bf16"), map];
  bench.launch(products, geometry(128, 128 * 64 * 2 + 8), all);
  const check = (found: Float32Array, columns: number, of: (k: number, n: number) => number) =>
    found.forEach((each, i) => {
      const [row, n] = [Math.floor(i / columns), i % columns];
      const terms = Array.from({ length: 64 }, (_, k) => a[row * 64 + k]! * of(k, n));
      assertAlmostEquals(each, terms.reduce((sum, term) => sum + term), 1e-4);
    });
  check(bench.get(d64, 64 * 64), 64, (k, n) => b[n * 64 + k]!);
  check(bench.get(d128, 64 * 128), 128, (k, n) => b[n * 64 + k]!);
  const turned = bench.get(rows, 64 * 64).map((each) => each - 1);
  check(turned, 64, (k, n) => b[k * 64 + n]!);
});

test("a product reads its tile when it is waited for, but for the newest groups", (bench) => {
  const late = kernel(
    bench,
    "late",
    `(float* out) {
      unsigned short* tile = (unsigned short*)dynamicShared();  // (64, 64), all the same
      const auto fill = [&](unsigned short bits) {
        __syncthreads();
        for (int i = threadIdx.x; i < 64 * 64; i += 128) tile[i] = bits;
        fence_proxy_async();
        __syncthreads();
      };
      const unsigned ones[4] = {0x3f803f80, 0x3f803f80, 0x3f803f80, 0x3f803f80};
      float d[2][32];
      wgmma_fence();
      for (int i = 0; i < 2; i++) {
        wgmma_m64n64k16_bf16<false>(d[i], ones, matrix_descriptor(tile), false);
        wgmma_commit();
      }
      fill(0x3f80);  // 1
      wgmma_wait<1>();
      fill(0x4000);  // 2
      wgmma_wait<0>();
      if (threadIdx.x == 77) out[0] = d[0][5], out[1] = d[1][5];
    }`,
  );
  const out = bench.empty(8);
  bench.launch(late, geometry(128, 64 * 64 * 2), [out]);
  assertEquals([...bench.get(out, 2)], [16, 32]);
});

test("a ring of barriers carries tiles from one warp to another, and named barriers part them", (bench) => {
  const ring = kernel(
    bench,
    "ring",
    `(float* out, int tiles, const __grid_constant__ TensorMap map) {
      float* stages = (float*)dynamicShared();  // (2, 64), as bf16 pairs
      Barrier* full = (Barrier*)(stages + 2 * 512);
      Barrier* empty = full + 2;
      if (threadIdx.x == 0) {
        for (int i = 0; i < 2; i++) mbarrier_init(&full[i], 1), mbarrier_init(&empty[i], 64);
        fence_mbarrier_init();
      }
      __syncthreads();
      if (threadIdx.x >= 64) {
        if (threadIdx.x > 64) return;
        for (int i = 0; i < tiles; i++) {
          if (i > 1) while (!mbarrier_try_wait_parity(&empty[i % 2], (i / 2 - 1) % 2, 1)) {}
          mbarrier_arrive_expect_tx(&full[i % 2], 128);
          cp_async_bulk_tensor_3d(stages + i % 2 * 512, map, 0, i, 0, &full[i % 2]);
        }
        return;
      }
      float sum = 0;
      for (int i = 0; i < tiles; i++) {
        while (!mbarrier_try_wait_parity(&full[i % 2], i / 2 % 2, 1)) {}
        sum += __uint_as_float((unsigned)((unsigned short*)(stages + i % 2 * 512))[threadIdx.x] << 16);
        bar_sync(1 + threadIdx.x / 32, 32);
        mbarrier_arrive(&empty[i % 2]);
      }
      out[threadIdx.x] = sum;
    }`,
  );
  const [tiles, x] = [7, values(64 * 7, 4)];
  const address = bench.put(x, "bf16");
  const map = bench.driver.encodeTensorMap({ address, sizes: [64, tiles, 1], box: [64, 1, 1] });
  const out = bench.empty(64 * 4);
  bench.launch(ring, geometry(96, 2 * 2048 + 32), [out, ["i32", tiles], map]);
  const expected = Array.from(
    { length: 64 },
    (_, column) =>
      Array.from({ length: tiles }, (_, row) => x[row * 64 + column]!).reduce((a, b) => a + b),
  );
  assertEquals([...bench.get(out, 64)], expected);
});

/** Kernels that break a rule, and what is said about them. */
const FAULTS: readonly [rule: string, body: string, text: string][] = [
  [
    "a wait for a phase that never ends",
    "if (threadIdx.x < 5) mbarrier_try_wait_parity(barrier, 0, 1);",
    "5 threads wait in mbarrier_try_wait_parity for ever, the first of them (0, 0, 0)",
  ],
  [
    "a named barrier that too few reach",
    "if (threadIdx.x < 96) bar_sync(3, 128);",
    "96 threads wait in bar_sync for ever",
  ],
  ["a wait at memory of no barrier", "mbarrier_arrive(barrier + 1);", "mbarrier_arrive of no barr"],
  [
    "an arrival too many",
    "if (threadIdx.x < 2) mbarrier_arrive_expect_tx(barrier, 16);",
    "more often than the barrier expects",
  ],
  ["a product without a fence", "wgmma_m64n64k16_bf16<true>(d, a, b, false);", "wgmma_fence"],
  [
    "a product without a wait",
    "wgmma_fence(); wgmma_m64n64k16_bf16<true>(d, a, b, false); wgmma_commit();",
    "ended with 1 products under way",
  ],
  [
    "a copy without a map",
    "cp_async_bulk_tensor_3d(dynamicShared(), map, 0, 0, 0, barrier);",
    "map",
  ],
];

for (const [rule, body, text] of FAULTS) {
  test(`${rule} is reported`, (bench) => {
    const fault = kernel(
      bench,
      "fault",
      `(const __grid_constant__ TensorMap map) {
        Barrier* barrier = (Barrier*)(dynamicShared() + 8192);
        if (threadIdx.x == 0) mbarrier_init(barrier, 1);
        __syncthreads();
        const unsigned long long b = matrix_descriptor(dynamicShared());
        const unsigned a[4] = {};
        float d[32];
        ${body}
      }`,
    );
    bench.launch(fault, geometry(128, 8192 + 64), [new Uint8Array(128)]);
    assertThrows(() => bench.driver.synchronize(bench.stream), EmulatorError, text);
    bench.driver.synchronize(bench.stream);
  });
}

test("maps that the hardware cannot use are refused", (bench) => {
  const address = bench.empty(64 * 64 * 2);
  const encode = (sizes: number[], box: number[], from = address) => () =>
    bench.driver.encodeTensorMap({ address: from, sizes, box });
  encode([64, 64, 1], [64, 64, 1])();
  assertThrows(encode([64, 64, 1], [72, 64, 1]), CudaError, "INVALID_VALUE");
  assertThrows(encode([60, 64, 1], [48, 64, 1]), CudaError, "INVALID_VALUE");
  assertThrows(encode([64, 0, 1], [64, 64, 1]), CudaError, "INVALID_VALUE");
  assertThrows(encode([64, 64, 1], [64, 257, 1]), CudaError, "INVALID_VALUE");
  assertThrows(encode([64, 63, 1], [64, 64, 1], address + 8n), CudaError, "INVALID_VALUE");
  assertThrows(encode([64, 65, 1], [64, 64, 1]), EmulatorError, "found no allocation");
});
