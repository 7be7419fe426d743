/**
 * token_logprobs: log softmax(logits)[target] for each row, natural logarithm, without storing the
 * full distribution.
 *
 *   logits̄ = ȳ (onehot(target) − softmax(logits))
 *
 * Kernel: forward/cross_entropy (its negative).
 */
import { modelOp } from "./define.ts";
import { softmax } from "./softmax.ts";

/** logits [N, V], targets [N] i32 → [N] */
export const tokenLogprobs = modelOp()({
  name: "token_logprobs",
  inputs: ["logits", "targets"],
  infer: ({ targets }) => ({ dtype: "f32", shape: targets.shape }),
  decompose({ logits, targets }) {
    const peak = logits.max(-1);
    const total = logits.sub(peak).exp().sum(-1);
    const logSumExp = total.log().add(peak).reshape(targets.shape);
    return logits.takeLast(targets).sub(logSumExp);
  },
  vjp({ logits, targets }, _, dy) {
    const column = dy.mul(-1).reshape([...dy.shape, 1]);
    return { logits: softmax({ x: logits }).mul(column).addLast(targets, dy) };
  },
});
