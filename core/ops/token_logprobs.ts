/**
 * token_logprobs: log softmax(logits)[target] for each row, natural logarithm, without storing the
 * full distribution.
 *
 * Kernel: forward/cross_entropy (its negative).
 */
import type { Builder } from "../graph/builder.ts";
import { add, exp, log, max, reshape, sub, sum, takeLast } from "../graph/primitives.ts";
import type { Value } from "../graph/types.ts";
import { modelOp } from "./define.ts";

export const tokenLogprobsOp = modelOp<Record<never, never>>({
  name: "token_logprobs",
  infer: ([, targets]) => [{ dtype: "f32", shape: targets!.shape }],
  decompose(g, [logits, targets]) {
    const peak = max(g, logits!, -1);
    const total = sum(g, exp(g, sub(g, logits!, peak)), -1);
    const logSumExp = reshape(g, add(g, log(g, total), peak), targets!.shape);
    return [sub(g, takeLast(g, logits!, targets!), logSumExp)];
  },
});

/** logits [N, V], targets [N] i32 → [N] */
export function tokenLogprobs(g: Builder, logits: Value, targets: Value): Value {
  return g.apply1(tokenLogprobsOp, [logits, targets], {});
}
