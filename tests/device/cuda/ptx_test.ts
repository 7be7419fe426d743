/**
 * The emulated PTX instructions against the tables of the PTX ISA manual (chapter "Warp-level matrix
 * instructions"), written from the manual: lanes and elements are named as there.
 */
import { assertEquals } from "@std/assert";
import { fromF32, toF32 } from "../../../core/base/dtype.ts";
import { test, values } from "../../emulator/testing.ts";
import { blocks } from "./checks.ts";

/** groupID and threadID_in_group of a lane. */
const groupOf = (lane: number) => lane >> 2;
const inGroup = (lane: number) => lane % 4;

/** 16-bit elements as whole 32-bit words in f32 memory. */
function packed(elements: readonly number[]): Float32Array<ArrayBuffer> {
  return new Float32Array(fromF32(Float32Array.from(elements), "bf16").slice().buffer);
}

/** Registers of all lanes, `each` elements a lane. */
const registers = (each: number, element: (lane: number, i: number) => number): number[] =>
  Array.from({ length: 32 * each }, (_, at) => element(Math.floor(at / each), at % each));

/*
 * mma.m16n8k16, .bf16: fragment of A, elements a0 … a7 in four registers
 *
 *   row = groupID          for a_i where 0 <= i < 2 or 4 <= i < 6
 *         groupID + 8      otherwise
 *   col = threadID_in_group * 2 + (i & 1)        for a_i where i < 4
 *         threadID_in_group * 2 + (i & 1) + 8    for a_i where i >= 4
 *
 * B, elements b0 … b3 in two registers
 *
 *   row = threadID_in_group * 2 + (i & 1)        for b_i where i < 2
 *         threadID_in_group * 2 + (i & 1) + 8    for b_i where i >= 2
 *   col = groupID
 *
 * C and D, f32 elements c0 … c3
 *
 *   row = groupID          for c_i where i < 2
 *         groupID + 8      for c_i where i >= 2
 *   col = threadID_in_group * 2 + (i & 1)
 */
test("mma.m16n8k16 multiplies the fragments of the manual and adds to D", (bench) => {
  const A = values(16 * 16, 1), B = values(16 * 8, 2), C = values(16 * 8, 3);
  const minor = (lane: number, i: number) => inGroup(lane) * 2 + (i & 1);
  const cell = (lane: number, i: number) => (groupOf(lane) + (i < 2 ? 0 : 8)) * 8 + minor(lane, i);
  const a = registers(8, (lane, i) => {
    const row = i < 2 || (4 <= i && i < 6) ? groupOf(lane) : groupOf(lane) + 8;
    return A[row * 16 + minor(lane, i) + (i < 4 ? 0 : 8)]!;
  });
  const b = registers(4, (lane, i) => {
    const row = minor(lane, i) + (i < 2 ? 0 : 8);
    return B[row * 8 + groupOf(lane)]!;
  });
  const c = Float32Array.from(registers(4, (lane, i) => C[cell(lane, i)]!));
  const kernel = bench.kernelFrom(`product(
    float* d, const unsigned* a, const unsigned* b, const float* c) {
    const int lane = threadIdx.x;
    unsigned left[4], right[2];
    float sum[4];
    for (int i = 0; i < 4; i++) left[i] = a[lane * 4 + i], sum[i] = c[lane * 4 + i];
    for (int i = 0; i < 2; i++) right[i] = b[lane * 2 + i];
    mma_m16n8k16_bf16(sum, left, right);
    for (int i = 0; i < 4; i++) d[lane * 4 + i] = sum[i];
  }`);
  const d = bench.empty(4 * 128);
  bench.launch(kernel, blocks(32), [d, bench.put(packed(a)), bench.put(packed(b)), bench.put(c)]);
  const expected = registers(4, (lane, i) => {
    const at = cell(lane, i), row = Math.floor(at / 8), column = at % 8;
    let sum = C[at]!;
    for (let k = 0; k < 16; k++) sum += A[row * 16 + k]! * B[k * 8 + column]!;
    return sum;
  });
  assertEquals([...bench.get(d, 128)], expected);
});

/*
 * ldmatrix.m8n8.x4.b16: threads 0–7, 8–15, 16–23 and 24–31 give the addresses of rows 0–7 of the first, second,
 * third and fourth matrix; register i receives a fragment of matrix i:
 *
 *   row 0   T0: (0, 1)   T1: (2, 3)   T2: (4, 5)   T3: (6, 7)
 *   row 1   T4: (0, 1)   T5: (2, 3)   …
 *   row 7   T28: (0, 1)  T29: (2, 3)  T30: (4, 5)  T31: (6, 7)
 *
 * With .trans each matrix is loaded in column-major format: rows above are columns.
 */
for (const transposed of [false, true]) {
  const name = transposed ? "ldmatrix_x4_trans" : "ldmatrix_x4";
  test(`${name} gives each lane the elements of the manual`, (bench) => {
    const kernel = bench.kernelFrom(`load(unsigned* out, const unsigned* x) {
      __shared__ __align__(16) unsigned rows[32][4];  // row of 8 elements for each address
      const int lane = threadIdx.x;
      for (int i = 0; i < 4; i++) rows[lane][i] = x[lane * 4 + i];
      __syncthreads();
      unsigned r[4];
      ${name}(r, rows[lane]);
      for (int i = 0; i < 4; i++) out[lane * 4 + i] = r[i];
    }`);
    // Element (matrix, row, column) is a number of its own.
    const x = Array.from({ length: 256 }, (_, i) => i);
    const out = bench.empty(4 * 128);
    bench.launch(kernel, blocks(32), [out, bench.put(packed(x))]);
    const found = toF32(new Uint8Array(bench.get(out, 128).buffer), "bf16");
    const expected = registers(8, (lane, i) => {
      const matrix = i >> 1, major = groupOf(lane), minor = inGroup(lane) * 2 + (i & 1);
      return matrix * 64 + (transposed ? minor * 8 + major : major * 8 + minor);
    });
    assertEquals([...found], expected);
  });
}

/** cvt.rn: to the nearest, ties to even; NaN becomes the canonical NaN of bf16, 0x7fff. */
test("cvt.rn.bf16.f32 rounds to nearest even, and NaN is 0x7fff", (bench) => {
  const kernel = bench.kernelFrom(`convert(unsigned* out, const float* x) {
    out[threadIdx.x] = cvt_rn_bf16(x[threadIdx.x]);
  }`);
  const cases = [
    [1, 0x3f80],
    [1 + 2 ** -8, 0x3f80], // a tie, to even
    [1 + 3 * 2 ** -8, 0x3f82], // a tie, to even
    [1 + 2 ** -8 + 2 ** -20, 0x3f81],
    [-1 - 2 ** -7, 0xbf81],
    [3.4e38, 0x7f80], // above the largest bf16 by more than half a unit
    [Infinity, 0x7f80],
    [-0, 0x8000],
    [NaN, 0x7fff],
  ] as const;
  const x = bench.put(Float32Array.from({ length: 32 }, (_, i) => cases[i % cases.length]![0]));
  const out = bench.empty(4 * 32);
  bench.launch(kernel, blocks(32), [out, x]);
  const found = new Int32Array(bench.get(out, 32).buffer);
  cases.forEach(([value, bits], i) => assertEquals(found[i], bits, `${value}`));
});
