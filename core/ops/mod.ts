/** All model ops by name; tests walk it to see that every device and every check covers them. */
import type { Op } from "../graph/types.ts";
import { adamwOp } from "./adamw.ts";
import { siluOp, swigluOp } from "./activation.ts";
import { mixStreamsOp, streamWeightsOp } from "./aggregate.ts";
import { attentionOp } from "./attention.ts";
import { embeddingOp } from "./embedding.ts";
import { linearOp } from "./linear.ts";
import { repeatStreamsOp } from "./repeat_streams.ts";
import { rmsNormOp } from "./rms_norm.ts";
import { ropeOp } from "./rope.ts";
import { softmaxOp } from "./softmax.ts";
import { tokenLogprobsOp } from "./token_logprobs.ts";

/** Model ops in the order in which a training step meets them. */
export const MODEL_OPS: ReadonlyMap<string, Op> = new Map(
  ([
    embeddingOp,
    rmsNormOp,
    linearOp,
    ropeOp,
    attentionOp,
    softmaxOp,
    repeatStreamsOp,
    siluOp,
    swigluOp,
    streamWeightsOp,
    mixStreamsOp,
    tokenLogprobsOp,
    adamwOp,
  ] as Op[]).map((op) => [op.name, op]),
);
