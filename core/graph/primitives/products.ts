/** Reductions over one axis, and the matrix product. */
import { type DType, formatType } from "../types.ts";
import { broadcastShapes, type Named, type One, type Two } from "./shapes.ts";

function reduction<N extends string>(name: N, result?: DType): Named<N, { axis: number }> {
  return {
    name,
    infer: ([x]: One, { axis }) => [{
      dtype: result ?? x.dtype,
      shape: x.shape.map((size, i) => i === axis ? 1 : size),
    }],
  };
}

const matmul: Named<"matmul", { transposeA: boolean; transposeB: boolean; scale: number }> = {
  name: "matmul",
  infer([a, b]: Two, { transposeA, transposeB }) {
    const [m, k1] = transposeA ? [a.shape.at(-1), a.shape.at(-2)] : a.shape.slice(-2);
    const [k2, n] = transposeB ? [b.shape.at(-1), b.shape.at(-2)] : b.shape.slice(-2);
    if (k1 === undefined || k1 !== k2 || m === undefined || n === undefined) {
      throw new TypeError(`cannot multiply ${formatType(a)} with ${formatType(b)}`);
    }
    const batch = broadcastShapes(a.shape.slice(0, -2), b.shape.slice(0, -2));
    return [{ dtype: a.dtype, shape: [...batch, m, n] }];
  },
};

export const PRODUCTS = {
  sum: reduction("sum"),
  max: reduction("max"),
  argmax: reduction("argmax", "i32"),
  matmul,
} as const;
