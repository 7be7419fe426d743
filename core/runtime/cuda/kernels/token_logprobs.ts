/** The log-probability of each row's target, and its gradient. */
import backwardText from "../../../../kernels/backward/token_logprobs.cu" with { type: "text" };
import forwardText from "../../../../kernels/forward/token_logprobs.cu" with { type: "text" };
import type { Value } from "../../../graph/value.ts";
import { tokenLogprobs } from "../../../ops/token_logprobs.ts";
import type { Lowering } from "../lowering.ts";
import { grid, kernel, kernelFile } from "./define.ts";
import { f32, rowsOf } from "./reduce.ts";
import { gradientRule, type Rule, rule } from "./rule.ts";

export const LOGPROBS = kernelFile("forward/token_logprobs.cu", forwardText);
export const LOGPROBS_BACKWARD = kernelFile("backward/token_logprobs.cu", backwardText);

const byRow = ({ N }: Record<string, number>) => grid(512, N!);

const forward = kernel(LOGPROBS, "token_logprobs", byRow);
const backward = kernel(LOGPROBS_BACKWARD, "token_logprobs_backward", byRow);

/** Log-probabilities, and the logarithm of the sum of exponents of each row. */
function logprobsOf(l: Lowering, logits: Value, targets: Value): readonly Value[] {
  const [N, V] = rowsOf(logits.shape);
  return l.shared("token_logprobs", [logits, targets], () =>
    l.launch(forward, {
      reads: { logits: l.operand(logits), targets: l.get(targets) },
      writes: { logprobs: f32(N), normalizer: f32(N) },
      scalars: { N, V },
    }));
}

export const LOGPROBS_RULES: readonly Rule[] = [
  rule(tokenLogprobs, (l, { logits, targets }) => logprobsOf(l, logits, targets).slice(0, 1)),
  gradientRule(tokenLogprobs, (l, { logits, targets }, { upstream }) => {
    const [N, V] = rowsOf(logits.shape);
    const [, normalizer] = logprobsOf(l, logits, targets);
    const reads = { dy: l.f32(upstream), logits: l.operand(logits), targets: l.get(targets) };
    const [dlogits] = l.launch(backward, {
      reads: { ...reads, normalizer },
      writes: { dlogits: l.type(logits.shape) },
      scalars: { N, V },
      reuse: "logits",
    });
    return { logits: dlogits };
  }),
];
