/** All model ops by name, so that tests see that every device and every check covers them. */
import type { Op } from "../../../core/graph/program.ts";
import { silu, swiglu } from "../../../core/ops/activation.ts";
import { adamw } from "../../../core/ops/adamw.ts";
import { mixStreams, streamWeights } from "../../../core/ops/aggregate.ts";
import { attentionOp } from "../../../core/ops/attention.ts";
import { causalConv, packedCausalConv } from "../../../core/ops/causal_conv.ts";
import { embedding } from "../../../core/ops/embedding.ts";
import { gatedDelta, packedGatedDelta } from "../../../core/ops/gated_delta.ts";
import { linear } from "../../../core/ops/linear.ts";
import { repeat } from "../../../core/ops/repeat_streams.ts";
import { rmsNorm } from "../../../core/ops/rms_norm.ts";
import { rope } from "../../../core/ops/rope.ts";
import { softmax } from "../../../core/ops/softmax.ts";
import { tokenLogprobs } from "../../../core/ops/token_logprobs.ts";
import { unitLowerInverse } from "../../../core/ops/unit_lower_inverse.ts";

/** Model ops in the order in which a training step meets them. */
export const MODEL_OPS: ReadonlyMap<string, Op> = new Map(
  [
    embedding.op,
    rmsNorm.op,
    linear.op,
    rope.op,
    attentionOp,
    softmax.op,
    causalConv.op,
    packedCausalConv.op,
    unitLowerInverse.op,
    gatedDelta.op,
    packedGatedDelta.op,
    repeat.op,
    silu.op,
    swiglu.op,
    streamWeights.op,
    mixStreams.op,
    tokenLogprobs.op,
    adamw.op,
  ].map((op): [string, Op] => [op.name, op]),
);
