/**
 * rms_norm: y = x / √(mean(x²) + ε) · w over the last axis.
 *
 * With n = x / √(mean(x²) + ε) and n̄ = ȳ w:  x̄ = (n̄ − n mean(n̄ n)) / √(mean(x²) + ε),  w̄ = Σ ȳ n.
 *
 * Kernel: forward/rms_norm; statistics in f32 whatever the type of x.
 */
import type { Builder } from "../graph/builder.ts";
import { add, constant, div, mul, sqrt, sub, sum } from "../graph/primitives.ts";
import { unbroadcast } from "../graph/derivatives.ts";
import { formatType, type Value } from "../graph/types.ts";
import { modelOp } from "./define.ts";

export const rmsNormOp = modelOp<{ epsilon: number }>({
  name: "rms_norm",
  infer([x, weight]) {
    if (weight!.shape.join() !== `${x!.shape.at(-1)}`) {
      throw new TypeError(`Cannot norm ${formatType(x!)} with weight ${formatType(weight!)}`);
    }
    return [x!];
  },
  decompose(g, [x, weight], { epsilon }) {
    return [mul(g, div(g, x!, rootMeanSquare(g, x!, epsilon)), weight!)];
  },
  vjp(g, { inputs: [x, weight], attributes }, upstream) {
    const rms = rootMeanSquare(g, x!, attributes.epsilon);
    const normed = div(g, x!, rms);
    const inner = mul(g, upstream, weight!);
    const along = mul(g, normed, mean(g, mul(g, inner, normed)));
    return [
      div(g, sub(g, inner, along), rms),
      unbroadcast(g, mul(g, upstream, normed), weight!.shape),
    ];
  },
});

/** Mean over the last axis, which stays with size 1. */
function mean(g: Builder, x: Value): Value {
  return div(g, sum(g, x, -1), constant(g, x.shape.at(-1)!));
}

/** √(mean(x²) + ε), [..., 1] */
function rootMeanSquare(g: Builder, x: Value, epsilon: number): Value {
  return sqrt(g, add(g, mean(g, mul(g, x, x)), constant(g, epsilon)));
}

/** x [..., C], weight [C] → [..., C] */
export function rmsNorm(g: Builder, x: Value, weight: Value, epsilon: number): Value {
  return g.apply1(rmsNormOp, [x, weight], { epsilon });
}
