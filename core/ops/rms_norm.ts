/**
 * rms_norm: y = x / √(mean(x²) + ε) · w over the last axis.
 *
 * Kernel: forward/rms_norm; statistics in f32 whatever the type of x.
 */
import type { Builder } from "../graph/builder.ts";
import { add, constant, div, mul, sqrt, sum } from "../graph/primitives.ts";
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
    const total = sum(g, mul(g, x!, x!), -1);
    const mean = div(g, total, constant(g, x!.shape.at(-1)!));
    const rms = sqrt(g, add(g, mean, constant(g, epsilon)));
    return [mul(g, div(g, x!, rms), weight!)];
  },
});

/** x [..., C], weight [C] → [..., C] */
export function rmsNorm(g: Builder, x: Value, weight: Value, epsilon: number): Value {
  return g.apply1(rmsNormOp, [x, weight], { epsilon });
}
