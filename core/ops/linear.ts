/**
 * linear: y = x Wᵀ + b, with W stored [out, in] as in every checkpoint.
 *
 *   x̄ = ȳ W,  W̄ = ȳᵀ x,  b̄ = Σ ȳ
 *
 * Kernel: GEMM, or a small-M GEMM when there are few rows.
 */
import { unbroadcast } from "../graph/derivatives.ts";
import { formatType } from "../graph/types.ts";
import { modelOp } from "./define.ts";

/** x [rows, in], weight [out, in], bias [out] → [rows, out] */
export const linear = modelOp()({
  name: "linear",
  inputs: ["x", "weight"],
  optional: ["bias"],
  infer({ x, weight, bias }) {
    const [N, K] = weight.shape;
    if (x.shape.length !== 2 || x.shape[1] !== K || (bias && bias.shape.join() !== `${N}`)) {
      throw new TypeError(`cannot apply weight ${formatType(weight)} to ${formatType(x)}`);
    }
    return { dtype: x.dtype, shape: [x.shape[0]!, N!] };
  },
  decompose({ x, weight, bias }) {
    const product = x.matmul(weight, { transposeB: true });
    return bias ? product.add(bias) : product;
  },
  vjp: ({ x, weight, bias }, _, dy) => ({
    x: dy.matmul(weight),
    weight: dy.matmul(x, { transposeA: true }),
    bias: bias && unbroadcast(dy, bias.shape),
  }),
});
