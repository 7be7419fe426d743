/** Codes of 8 and 4 bits against the arithmetic of their definition. */
import { assertEquals } from "@std/assert";
import { dequantize, quantize } from "../../../core/base/quantize.ts";

/** Codes and scale of one block of 16. */
function codesOf(values: readonly number[], bits: 8 | 4) {
  const codes = new Uint8Array(16 * bits / 8), scales = new Float32Array(1);
  quantize(Float32Array.from(values), 1, 16, bits, 16, { codes, scales });
  const each = bits === 8 ? [...codes] : [...codes].flatMap((byte) => [byte & 15, byte >> 4]);
  return { codes: each, scale: scales[0]!, back: dequantize({ codes, scales }, 1, 16, bits, 16) };
}

for (const bits of [8, 4] as const) {
  const zero = 1 << (bits - 1);
  Deno.test(`${bits} bits: values round to the nearest code, and the largest is exact`, () => {
    for (const sign of [1, -1]) {
      // In steps of the scale: the largest is −z, +z is one code too many.
      const steps = [
        -zero,
        zero,
        0,
        1,
        -1,
        2.4,
        2.6,
        -2.4,
        -2.6,
        0.49,
        -0.49,
        3,
        -3,
        0,
        0.51,
        -0.51,
      ];
      const { codes, scale, back } = codesOf(steps.map((step) => sign * step / 4), bits);
      const rounded = steps.map((step) => Math.min(zero - 1, Math.round(step)));
      assertEquals(scale, sign / 4);
      assertEquals(codes, rounded.map((step) => step + zero));
      assertEquals([...back], rounded.map((step) => sign / 4 * step));
    }
  });

  Deno.test(`${bits} bits: a block of zeros has the code of zero and the scale 0`, () => {
    const { codes, scale } = codesOf(new Array<number>(16).fill(0), bits);
    assertEquals([Math.abs(scale), ...codes], [0, ...new Array<number>(16).fill(zero)]);
  });
}
