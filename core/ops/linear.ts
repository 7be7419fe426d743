/**
 * linear: y = x Wᵀ + b, with W stored [out, in] as in every checkpoint.
 *
 *   x̄ = ȳ W,  W̄ = ȳᵀ x,  b̄ = Σ ȳ
 *
 * Kernel: GEMM, or a small-M GEMM when there are few rows.
 */
import type { Builder } from "../graph/builder.ts";
import { add, matmul } from "../graph/primitives.ts";
import { unbroadcast } from "../graph/derivatives.ts";
import { formatType, type Value } from "../graph/types.ts";
import { modelOp } from "./define.ts";

export const linearOp = modelOp<Record<never, never>>({
  name: "linear",
  infer([x, weight, bias]) {
    const [N, K] = weight!.shape;
    if (x!.shape.length !== 2 || x!.shape[1] !== K || (bias && bias.shape.join() !== `${N}`)) {
      throw new TypeError(`Cannot apply weight ${formatType(weight!)} to ${formatType(x!)}`);
    }
    return [{ dtype: x!.dtype, shape: [x!.shape[0]!, N!] }];
  },
  decompose(g, [x, weight, bias]) {
    const product = matmul(g, x!, weight!, { transposeB: true });
    return [bias ? add(g, product, bias) : product];
  },
  vjp(g, { inputs: [x, weight, bias] }, upstream) {
    return [
      matmul(g, upstream, weight!),
      matmul(g, upstream, x!, { transposeA: true }),
      bias && unbroadcast(g, upstream, bias.shape),
    ];
  },
});

/** x [rows, in], weight [out, in], bias [out] → [rows, out] */
export function linear(g: Builder, x: Value, weight: Value, bias?: Value): Value {
  return g.apply1(linearOp, bias ? [x, weight, bias] : [x, weight], {});
}
