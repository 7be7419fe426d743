/**
 * softmax: exp(x − max x) / Σ exp(x − max x) over the last axis.
 *
 *   x̄ = y (ȳ − Σ ȳ y)
 *
 * Kernel: inside attention; else it is expanded.
 */
import type { Value } from "../graph/value.ts";
import { modelOp } from "./define.ts";

/** x [..., n] → [..., n], rows summing to 1 */
export const softmax = modelOp()({
  name: "softmax",
  inputs: ["x"],
  infer: ({ x }) => x,
  decompose({ x }) {
    // Subtracting the maximum changes nothing but keeps exp from overflowing.
    const shifted = x.sub(x.max(-1)).exp();
    return shifted.div(shifted.sum(-1));
  },
  vjp: (_inputs, _attributes, dy, y) => ({ x: softmaxGradient(y, dy) }),
  memory: "allowed",
});

/** Gradient of the input from the output and its gradient. */
export function softmaxGradient(y: Value, dy: Value): Value {
  return y.mul(dy.sub(dy.mul(y).sum(-1)));
}
