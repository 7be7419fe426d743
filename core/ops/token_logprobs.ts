/**
 * token_logprobs: log softmax(logits)[target] for each row, natural logarithm, without storing the
 * full distribution.
 *
 *   logits̄ = ȳ (onehot(target) − softmax(logits))
 *
 * Kernel: forward/cross_entropy (its negative).
 */
import type { Builder } from "../graph/builder.ts";
import {
  add,
  addLast,
  constant,
  exp,
  log,
  max,
  mul,
  reshape,
  sub,
  sum,
  takeLast,
} from "../graph/primitives.ts";
import type { Value } from "../graph/types.ts";
import { modelOp } from "./define.ts";
import { softmax } from "./softmax.ts";

export const tokenLogprobsOp = modelOp<Record<never, never>>({
  name: "token_logprobs",
  infer: ([, targets]) => [{ dtype: "f32", shape: targets!.shape }],
  decompose(g, [logits, targets]) {
    const peak = max(g, logits!, -1);
    const total = sum(g, exp(g, sub(g, logits!, peak)), -1);
    const logSumExp = reshape(g, add(g, log(g, total), peak), targets!.shape);
    return [sub(g, takeLast(g, logits!, targets!), logSumExp)];
  },
  vjp(g, { inputs: [logits, targets] }, upstream) {
    const minus = mul(g, upstream, constant(g, -1));
    const column = reshape(g, minus, [...upstream.shape, 1]);
    const spread = mul(g, softmax(g, logits!), column);
    return [addLast(g, spread, targets!, upstream), undefined];
  },
});

/** logits [N, V], targets [N] i32 → [N] */
export function tokenLogprobs(g: Builder, logits: Value, targets: Value): Value {
  return g.apply1(tokenLogprobsOp, [logits, targets], {});
}
