/** The log-probability of each row's target, and its gradient. */
import backwardText from "../../../../kernels/backward/token_logprobs.cu" with { type: "text" };
import forwardText from "../../../../kernels/forward/token_logprobs.cu" with { type: "text" };
import { tokenLogprobs } from "../../../ops/token_logprobs.ts";
import { tokenLogprobsWithStatistic } from "../fuse/statistics.ts";
import { grid, kernel, kernelFile } from "./define.ts";
import { listRule, type Rule, statisticGradientRule } from "./rule.ts";
import { rowsOf } from "./sums.ts";

export const LOGPROBS = kernelFile("forward/token_logprobs.cu", forwardText);
export const LOGPROBS_BACKWARD = kernelFile("backward/token_logprobs.cu", backwardText);

const byRow = ({ N }: Record<string, number>) => grid(512, N!);

const forward = kernel(
  LOGPROBS,
  "token_logprobs *logprobs *normalizer *logits *targets N V",
  byRow,
);
const backward = kernel(
  LOGPROBS_BACKWARD,
  "token_logprobs_backward *dlogits *dy *logits *targets *normalizer N V",
  byRow,
);

export const LOGPROBS_RULES: readonly Rule[] = [
  // With and without the statistic, which is the second output.
  ...[tokenLogprobs.op, tokenLogprobsWithStatistic.forward].map((op) =>
    listRule(op, (l, [logits, targets], _, [logprobs, normalizer]) => {
      const [N, V] = rowsOf(logits.shape);
      return l.launch(forward, {
        reads: { logits: l.operand(logits), targets: l.get(targets) },
        writes: { logprobs, normalizer: normalizer as typeof normalizer | undefined },
        numbers: { N, V },
      });
    })
  ),
  statisticGradientRule(
    tokenLogprobs,
    tokenLogprobsWithStatistic,
    (l, { logits, targets }, { upstream, statistic }) => ({
      logits() {
        const [N, V] = rowsOf(logits.shape);
        return l.launch(backward, {
          reads: {
            ...{ dy: l.f32(upstream), logits: l.operand(logits), targets: l.get(targets) },
            normalizer: l.get(statistic),
          },
          writes: { dlogits: l.type(logits.shape) },
          numbers: { N, V },
          reuse: "logits",
        })[0]!;
      },
    }),
  ),
];
