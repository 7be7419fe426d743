/**
 * sample: the next token of each row, greedy or drawn after temperature, top-k, top-p and min-p.
 *
 * On devices where logits would have to travel to the host to be read. The draws come from the
 * host, so a seed gives the same text everywhere.
 *
 * It has no decomposition, since a search is not arithmetic; its meaning is `sample` of
 * core/base/sampling.ts, and only devices with the trait `samplesTokens` know it.
 *
 * Kernel: forward/sample.
 */
import { SAMPLING_NUMBERS } from "../base/sampling.ts";
import type { Op } from "../graph/program.ts";
import { formatType, type TensorType } from "../graph/types.ts";
import type { Value } from "../graph/value.ts";

export const sampleOp: Op = {
  name: "sample",
  infer([logits, sampling]: readonly [TensorType, TensorType]) {
    const [N] = logits.shape;
    if (sampling.shape.join() !== `${N},${SAMPLING_NUMBERS}`) {
      throw new TypeError(`cannot sample ${formatType(logits)} by ${formatType(sampling)}`);
    }
    return [{ dtype: "i32", shape: [N!] }];
  },
};

/**
 * logits [N, V], sampling [N, 6] → [N] i32, −1 where a logit is NaN; a row of `sampling` is what
 * `samplingNumbers` gives
 */
export function sampleTokens(logits: Value, sampling: Value): Value {
  return logits.graph.apply1(sampleOp, [logits, sampling], {});
}
