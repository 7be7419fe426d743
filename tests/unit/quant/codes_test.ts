/** Codes of 8 and 4 bits against the arithmetic of their definition. */
import { assertEquals } from "@std/assert";
import wabt from "wabt";
import { fromF32, toF32, type WeightType } from "../../../core/base/dtype.ts";
import { dequantize, packing, quantize } from "../../../core/quant/codes.ts";
import { RandomStream } from "../../../core/base/random.ts";

/** Codes and scales of a matrix. */
function quantized(
  stored: Uint8Array,
  type: WeightType,
  shape: readonly [number, number],
  bits: 8 | 4,
  block: number,
) {
  const format = { kind: bits === 8 ? "q8" : "q4", block } as const;
  const { rows, blocks, rowBytes } = packing(shape, format);
  const codes = new Uint8Array(rows * rowBytes), scales = new Float32Array(rows * blocks);
  quantize(stored, type, shape, format, { codes, scales });
  const each = bits === 8 ? [...codes] : [...codes].flatMap((byte) => [byte & 15, byte >> 4]);
  return { codes: each, scales, back: dequantize({ codes, scales }, shape, format) };
}

/** The definition, element by element: scales of blocks, codes of values, and what they stand for. */
function defined(values: Float32Array, columns: number, bits: 8 | 4, block: number) {
  const zero = 1 << (bits - 1);
  const codes: number[] = [], scales: number[] = [], back: number[] = [];
  for (let start = 0; start < values.length; start += columns) {
    for (let first = 0; first < columns; first += block) {
      const row = values.subarray(start, start + columns);
      const own = Array.from({ length: block }, (_, i) => row[first + i] ?? 0);
      const largest = Math.max(...own.map(Math.abs));
      const scale = Math.fround(own.find((value) => Math.abs(value) === largest)! / -zero);
      const steps = own.map((value) => scale === 0 ? 0 : value * (1 / scale));
      const rounded = steps.map((step) => Math.floor(step + zero + 0.5));
      const kept = rounded.map((code) => Math.max(0, Math.min(2 * zero - 1, code)));
      codes.push(...kept);
      scales.push(scale);
      back.push(...kept.slice(0, columns - first).map((code) => (code - zero) * scale));
    }
  }
  return { codes, scales, back };
}

for (const bits of [8, 4] as const) {
  const zero = 1 << (bits - 1);
  for (const type of ["f32", "bf16", "f16"] as const) {
    Deno.test(`${bits} bits of ${type}: matrices of many sizes have the codes of the definition`, () => {
      const random = new RandomStream(7, "matrices");
      // Rows of many parts, columns that no block divides, a row longer than a part, numbers near the smallest.
      const shapes = [[1000, 200], [3, 70], [2, 70_000], [5, 64]] as const;
      for (const [i, [rows, columns]] of shapes.entries()) {
        const drawn = Float32Array.from({ length: rows * columns }, () => random.uniform() - 0.5);
        if (i === 0) drawn.set([-zero, zero, 2.5, -2.5, 0.5, -0.5]); // both ends, and ties
        const stored = fromF32(i === 3 ? drawn.map((x) => x * 1e-43) : drawn, type);
        const values = toF32(stored, type);
        for (const block of [16, 32, 128]) {
          const found = quantized(stored, type, [rows, columns], bits, block);
          const expected = defined(values, columns, bits, block);
          assertEquals(found.scales, Float32Array.from(expected.scales), `${columns} by ${block}`);
          assertEquals(Uint8Array.from(found.codes), Uint8Array.from(expected.codes));
          assertEquals(found.back, Float32Array.from(expected.back));
        }
      }
    });
  }
}

Deno.test("quantize.wasm is what quantize.wat says", async () => {
  const folder = new URL("../../../kernels/cpu/", import.meta.url);
  const text = await Deno.readTextFile(new URL("quantize.wat", folder));
  const module = (await wabt()).parseWat("quantize.wat", text, { relaxed_simd: true });
  const { buffer } = module.toBinary({});
  module.destroy();
  const stored = await Deno.readFile(new URL("quantize.wasm", folder));
  assertEquals(stored, buffer, "run `deno task wasm`");
});
