/** Reductions over one axis, and the matrix product. */
import type { Builder } from "../builder.ts";
import { type DType, formatType, type Value } from "../types.ts";
import { axisOf, broadcastShapes, primitive } from "./define.ts";

type Reduce = (g: Builder, x: Value, axis: number) => Value;

function reduction(name: string, result?: DType): Reduce {
  const op = primitive<{ axis: number }>({
    name,
    infer: ([x], { axis }) => [{
      dtype: result ?? x!.dtype,
      shape: x!.shape.map((size, i) => i === axis ? 1 : size),
    }],
  });
  return (g, x, axis) => g.apply1(op, [x], { axis: axisOf(x, axis) });
}

/** Sum over one axis, which stays with size 1. */
export const sum: Reduce = reduction("sum");
/** Largest element along one axis, which stays with size 1. */
export const max: Reduce = reduction("max");
/** Index of the (first) largest element along one axis, which stays with size 1; i32. */
export const argmax: Reduce = reduction("argmax", "i32");

const matmulOp = primitive<{ transposeA: boolean; transposeB: boolean; scale: number }>({
  name: "matmul",
  infer([a, b], { transposeA, transposeB }) {
    const [m, k1] = transposeA ? [a!.shape.at(-1), a!.shape.at(-2)] : a!.shape.slice(-2);
    const [k2, n] = transposeB ? [b!.shape.at(-1), b!.shape.at(-2)] : b!.shape.slice(-2);
    if (k1 === undefined || k1 !== k2 || m === undefined || n === undefined) {
      throw new TypeError(`Cannot multiply ${formatType(a!)} with ${formatType(b!)}`);
    }
    const batch = broadcastShapes(a!.shape.slice(0, -2), b!.shape.slice(0, -2));
    return [{ dtype: a!.dtype, shape: [...batch, m, n] }];
  },
});

/** Matrix product over the last two axes times `scale`; leading axes broadcast. */
export function matmul(
  g: Builder,
  a: Value,
  b: Value,
  { transposeA = false, transposeB = false, scale = 1 } = {},
): Value {
  return g.apply1(matmulOp, [a, b], { transposeA, transposeB, scale });
}
