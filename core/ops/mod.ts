/** All model ops by name; tests walk it to see that every device and every check covers them. */
import type { Op } from "../graph/program.ts";
import { silu, swiglu } from "./activation.ts";
import { adamw } from "./adamw.ts";
import { mixStreams, streamWeights } from "./aggregate.ts";
import { attentionOp } from "./attention.ts";
import { causalConv, packedCausalConv } from "./causal_conv.ts";
import { embedding } from "./embedding.ts";
import { gatedDelta, packedGatedDelta } from "./gated_delta.ts";
import { linear } from "./linear.ts";
import { repeat } from "./repeat_streams.ts";
import { rmsNorm } from "./rms_norm.ts";
import { rope } from "./rope.ts";
import { softmax } from "./softmax.ts";
import { tokenLogprobs } from "./token_logprobs.ts";
import { unitLowerInverse } from "./unit_lower_inverse.ts";

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
