/**
 * softmax: exp(x − max x) / Σ exp(x − max x) over the last axis.
 *
 *   x̄ = y (ȳ − Σ ȳ y)
 *
 * Kernel: inside attention and aggregation; alone only in analysis.
 */
import type { Builder } from "../graph/builder.ts";
import { div, exp, max, mul, sub, sum } from "../graph/primitives.ts";
import type { Value } from "../graph/types.ts";
import { modelOp } from "./define.ts";

export const softmaxOp = modelOp<Record<never, never>>({
  name: "softmax",
  infer: ([x]) => [x!],
  decompose(g, [x]) {
    // Subtracting the maximum changes nothing but keeps exp from overflowing.
    const shifted = exp(g, sub(g, x!, max(g, x!, -1)));
    return [div(g, shifted, sum(g, shifted, -1))];
  },
  vjp(g, { outputs: [y] }, upstream) {
    return [softmaxGradient(g, y!, upstream)];
  },
  memory: "allowed",
});

/** Gradient of the input from the output and its gradient. */
export function softmaxGradient(g: Builder, y: Value, upstream: Value): Value {
  return mul(g, y, sub(g, upstream, sum(g, mul(g, upstream, y), -1)));
}

/** x [..., n] → [..., n], rows summing to 1 */
export function softmax(g: Builder, x: Value): Value {
  return g.apply1(softmaxOp, [x], {});
}
