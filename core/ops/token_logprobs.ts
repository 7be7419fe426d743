/**
 * token_logprobs: log softmax(logits)[target] for each row, natural logarithm, without storing the
 * full distribution.
 *
 *   logits̄ = ȳ (onehot(target) − softmax(logits))
 *
 * Kernel: forward/token_logprobs.
 */
import type { Value } from "../graph/value.ts";
import { modelOp } from "./define.ts";
import { softmax } from "./softmax.ts";

/** logits [N, V], targets [N] i32 → [N] */
export const tokenLogprobs = modelOp()({
  name: "token_logprobs",
  inputs: ["logits", "targets"],
  infer: ({ targets }) => ({ dtype: "f32", shape: targets.shape }),
  decompose: ({ logits, targets }) => logits.takeLast(targets).sub(logSumExp(logits)),
  vjp({ logits, targets }, _, dy) {
    const column = dy.mul(-1).reshape([...dy.shape, 1]);
    return { logits: softmax({ x: logits }).mul(column).addLast(targets, dy) };
  },
});

/** logits [N, V] → log Σ exp(logits) [N] */
export function logSumExp(logits: Value): Value {
  const largest = logits.max(-1);
  const total = logits.sub(largest).exp().sum(-1);
  return total.log().add(largest).reshape(logits.shape.slice(0, -1));
}
