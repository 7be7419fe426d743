/**
 * Weights with LoRA and biases with BitFit of a single stream added to them, piece by piece while they
 * are written.
 *
 *   W + 2 B A     W [out, in], B [1, out, r], A [1, r, in]
 *   b + c         b [out] or absent, c [1, out]
 *
 * Sums are taken in double precision and rounded once, to the stored type of W.
 */
import { ELEMENT_BYTES, fromF32, type WeightType } from "../base/dtype.ts";
import { LORA_SCALE } from "../model/transforms.ts";
import type { StoredTensor } from "./open.ts";
import { valuesOf } from "./read.ts";
import type { ByteGenerator } from "./write.ts";

/** A matrix with its low-rank update. Nothing is read before the first piece is asked for. */
export function foldedMatrix(
  matrix: StoredTensor,
  lowRank: StoredTensor,
  highRank: StoredTensor,
): ByteGenerator {
  const [, width] = matrix.shape as [number, number];
  const rank = lowRank.shape[1]!;
  const size = ELEMENT_BYTES[matrix.dtype];
  let factors: { a: Float32Array; b: Float32Array } | undefined;
  return (start, length) => {
    factors ??= { a: valuesOf(lowRank), b: valuesOf(highRank) };
    const { a, b } = factors;
    const values = valuesOf(matrix, start, length);
    const first = start / size;
    for (let i = 0; i < values.length; i++) {
      const row = Math.floor((first + i) / width), column = (first + i) % width;
      let update = 0;
      for (let k = 0; k < rank; k++) update += b[row * rank + k]! * a[k * width + column]!;
      values[i] = values[i]! + LORA_SCALE * update;
    }
    return fromF32(values, matrix.dtype);
  };
}

/** A bias with that of the stream added. Nothing is read before it is asked for. */
export function foldedBias(
  bias: StoredTensor | undefined,
  own: StoredTensor,
  dtype: WeightType,
): ByteGenerator {
  const size = ELEMENT_BYTES[dtype];
  return (start, length) => {
    const added = valuesOf(own), present = bias && valuesOf(bias);
    const values = added.map((value, i) => value + (present?.[i] ?? 0));
    return fromF32(values.slice(start / size, (start + length) / size), dtype);
  };
}
