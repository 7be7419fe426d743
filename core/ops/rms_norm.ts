/**
 * rms_norm: y = x / √(mean(x²) + ε) · w over the last axis.
 *
 * With n = x / √(mean(x²) + ε) and n̄ = ȳ w:  x̄ = (n̄ − n mean(n̄ n)) / √(mean(x²) + ε),  w̄ = Σ ȳ n.
 *
 * Kernel: forward/rms_norm; statistics in f32 whatever the type of x.
 */
import { unbroadcast } from "../graph/derivatives.ts";
import { formatType } from "../graph/types.ts";
import type { Value } from "../graph/value.ts";
import { modelOp } from "./define.ts";

/** x [..., C], weight [C] → [..., C] */
export const rmsNorm = modelOp<{ epsilon: number }>()({
  name: "rms_norm",
  inputs: ["x", "weight"],
  infer({ x, weight }) {
    if (weight.shape.join() !== `${x.shape.at(-1)}`) {
      throw new TypeError(`cannot norm ${formatType(x)} with weight ${formatType(weight)}`);
    }
    return x;
  },
  decompose: ({ x, weight }, { epsilon }) => x.div(rootMeanSquare(x, epsilon)).mul(weight),
  vjp({ x, weight }, { epsilon }, dy) {
    const rms = rootMeanSquare(x, epsilon);
    const normed = x.div(rms);
    const inner = dy.mul(weight);
    const along = normed.mul(mean(inner.mul(normed)));
    return { x: inner.sub(along).div(rms), weight: unbroadcast(dy.mul(normed), weight.shape) };
  },
});

/** Mean over the last axis, which stays with size 1. */
function mean(x: Value): Value {
  return x.sum(-1).div(x.shape.at(-1)!);
}

/** √(mean(x²) + ε), [..., 1] */
export function rootMeanSquare(x: Value, epsilon: number): Value {
  return mean(x.mul(x)).add(epsilon).sqrt();
}
