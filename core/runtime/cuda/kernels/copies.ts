/**
 * Kernels that change the type or the place of elements and compute nothing. Every rule may need one, so
 * they stand without rules; those of casts and of movements are in `elementwise.ts` and `movement.ts`.
 */
import castText from "../../../../kernels/primitive/cast.cu" with { type: "text" };
import movementText from "../../../../kernels/primitive/movement.cu" with { type: "text" };
import { each, kernel, kernelFile } from "./define.ts";

export const CAST = kernelFile("primitive/cast.cu", castText);
export const MOVEMENT = kernelFile("primitive/movement.cu", movementText, [
  { BYTES: 1 },
  { BYTES: 2 },
  { BYTES: 4 },
]);

const all = ({ count }: Record<string, number>) => each(count!);

/** f32 → bf16 */
export const f32ToBf16 = kernel(CAST, "f32_to_bf16 *y *x count:i64", all);
/** bf16 → f32 */
export const bf16ToF32 = kernel(CAST, "bf16_to_f32 *y *x count:i64", all);
export const castIntegers = kernel(CAST, "cast_integers *y *x count:i64", all);
export const castBools = kernel(CAST, "cast_bools *y *x count:i64", all);
export const truncateFloats = kernel(CAST, "truncate_floats *y *x count:i64", all);
export const iota = kernel(CAST, "iota *y count:i64", all);

/** From and to any strides over four axes. */
export const copy = kernel(
  MOVEMENT,
  "copy *y *x count:i64 n1 n2 n3 yFirst:i64 y0 y1 y2 y3 xFirst:i64 x0 x1 x2 x3",
  all,
);
export const gather = kernel(
  MOVEMENT,
  "gather *y *x *indices outer size count inner",
  ({ outer, count, inner }) => each(outer! * count! * inner!),
);
