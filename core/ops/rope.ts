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
import type { Builder } from "../graph/builder.ts";
import {
  add,
  cast,
  concat,
  constant,
  cos,
  mul,
  reshape,
  sin,
  slice,
  sub,
} from "../graph/primitives.ts";
import { formatType, type Value } from "../graph/types.ts";
import { modelOp } from "./define.ts";

/** Cosines and sines for each position, [R, T, D/2] each. */
export interface RopeTables {
  readonly cos: Value;
  readonly sin: Value;
}

/** positions [R, T] i32 → tables by frequencies [D/2], multiplied by `scale` */
export function ropeTables(
  g: Builder,
  positions: Value,
  frequencies: readonly number[],
  scale = 1,
): RopeTables {
  const [R, T] = positions.shape;
  const column = reshape(g, cast(g, positions, "f32"), [R!, T!, 1]);
  const angles = mul(g, column, constant(g, frequencies));
  const scaled = (table: Value) => scale === 1 ? table : mul(g, table, constant(g, scale));
  return { cos: scaled(cos(g, angles)), sin: scaled(sin(g, angles)) };
}

export const ropeOp = modelOp<{ heads: number }>({
  name: "rope",
  infer([x, cosines, sines], { heads }) {
    const [R, T, width] = x!.shape;
    const expected = [R, T, width! / heads / 2].join();
    if (cosines!.shape.join() !== expected || sines!.shape.join() !== expected) {
      throw new TypeError(`Cannot rotate ${formatType(x!)} by ${formatType(cosines!)}`);
    }
    return [x!];
  },
  decompose(g, [x, cosines, sines], { heads }) {
    const [R, T, width] = x!.shape as [number, number, number];
    const D = width / heads;
    const c = reshape(g, cosines!, [R, T, 1, D / 2]);
    const s = reshape(g, sines!, [R, T, 1, D / 2]);
    const split = reshape(g, x!, [R, T, heads, D]);
    const low = slice(g, split, -1, 0, D / 2);
    const high = slice(g, split, -1, D / 2, D);
    const rotated = concat(g, [
      sub(g, mul(g, low, c), mul(g, high, s)),
      add(g, mul(g, high, c), mul(g, low, s)),
    ], -1);
    return [reshape(g, rotated, x!.shape)];
  },
  vjp(g, { inputs: [, cosines, sines], attributes }, upstream) {
    const back = { cos: cosines!, sin: mul(g, sines!, constant(g, -1)) };
    return [rope(g, upstream, back, attributes.heads), undefined, undefined];
  },
});

/** x [R, T, heads·D], tables [R, T, D/2] → [R, T, heads·D] */
export function rope(g: Builder, x: Value, tables: RopeTables, heads: number): Value {
  return g.apply1(ropeOp, [x, tables.cos, tables.sin], { heads });
}
