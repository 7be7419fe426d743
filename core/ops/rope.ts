/**
 * rope: rotary position embedding. Element i of a head pairs with element i + D/2 and both turn by the
 * angle position · f[i], where f[i] = θ^(−2i/D) unless scaled for longer contexts:
 *
 *   y[i]       = x[i] cos − x[i + D/2] sin
 *   y[i + D/2] = x[i + D/2] cos + x[i] sin
 *
 * The tables are computed once per program from the positions and shared by all layers. Angles are
 * f32 even in a bf16 model; narrower frequencies visibly change the logits.
 *
 * The gradient is the rotation back, by the negative angle.
 *
 * Kernel: forward/rope.
 */
import { formatType } from "../graph/types.ts";
import { concat, type Value } from "../graph/value.ts";
import { modelOp } from "./define.ts";

/** Cosines and sines for each position, [R, T, D/2] each. */
export interface RopeTables {
  readonly cos: Value;
  readonly sin: Value;
}

/** positions [R, T] i32 → tables by frequencies [D/2], multiplied by `scale` */
export function ropeTables(
  positions: Value,
  frequencies: readonly number[],
  scale = 1,
): RopeTables {
  const [R, T] = positions.shape as [number, number];
  const column = positions.cast("f32").reshape([R, T, 1]);
  const angles = column.mul(positions.graph.constant(frequencies));
  const scaled = (table: Value) => scale === 1 ? table : table.mul(scale);
  return { cos: scaled(angles.cos()), sin: scaled(angles.sin()) };
}

/** x [R, T, heads·D], tables [R, T, D/2] → [R, T, heads·D] */
export const rope = modelOp<{ heads: number }>()({
  name: "rope",
  inputs: ["x", "cos", "sin"],
  infer({ x, cos, sin }, { heads }) {
    const [R, T, width] = x.shape;
    const expected = [R, T, width! / heads / 2].join();
    if (cos.shape.join() !== expected || sin.shape.join() !== expected) {
      throw new TypeError(`cannot rotate ${formatType(x)} by ${formatType(cos)}`);
    }
    return x;
  },
  decompose({ x, cos, sin }, { heads }) {
    const [R, T, width] = x.shape as [number, number, number];
    const D = width / heads;
    const c = cos.reshape([R, T, 1, D / 2]);
    const s = sin.reshape([R, T, 1, D / 2]);
    const split = x.reshape([R, T, heads, D]);
    const low = split.slice(-1, 0, D / 2);
    const high = split.slice(-1, D / 2, D);
    const rotated = concat([low.mul(c).sub(high.mul(s)), high.mul(c).add(low.mul(s))], -1);
    return rotated.reshape(x.shape);
  },
  vjp: ({ cos, sin }, { heads }, dy) => ({ x: rotateBack(dy, { cos, sin }, heads) }),
});

/** Rotation by the negative angle. */
function rotateBack(y: Value, { cos, sin }: RopeTables, heads: number): Value {
  return rope({ x: y, cos, sin: sin.mul(-1) }, { heads });
}
