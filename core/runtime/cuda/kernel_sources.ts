/**
 * The text of every kernel file, carried inside the program, so that a compiled binary needs no files.
 *
 * Files include only headers of `kernels/common`, which the compiler is handed from memory. Neither
 * text nor anything compiled of it has run on a GPU yet.
 */
import angle from "../../../kernels/common/angle.cuh" with { type: "text" };
import hopper from "../../../kernels/common/hopper.cuh" with { type: "text" };
import linearHeader from "../../../kernels/common/linear.cuh" with { type: "text" };
import mixtures from "../../../kernels/common/mixtures.cuh" with { type: "text" };
import ptx from "../../../kernels/common/ptx.cuh" with { type: "text" };
import reduce from "../../../kernels/common/reduce.cuh" with { type: "text" };
import tiles from "../../../kernels/common/tiles.cuh" with { type: "text" };
import turn from "../../../kernels/common/turn.cuh" with { type: "text" };
import types from "../../../kernels/common/types.cuh" with { type: "text" };
import aggregateBackward from "../../../kernels/backward/aggregate.cu" with { type: "text" };
import attentionBackward from "../../../kernels/backward/attention.cu" with { type: "text" };
import attentionDelta from "../../../kernels/backward/attention_delta.cu" with { type: "text" };
import attentionMmaBackward from "../../../kernels/backward/attention_mma.cu" with { type: "text" };
import linearBackward from "../../../kernels/backward/linear.cu" with { type: "text" };
import repeatBackward from "../../../kernels/backward/repeat_streams.cu" with { type: "text" };
import rmsNormBackward from "../../../kernels/backward/rms_norm.cu" with { type: "text" };
import swigluBackward from "../../../kernels/backward/swiglu.cu" with { type: "text" };
import logprobsBackward from "../../../kernels/backward/token_logprobs.cu" with { type: "text" };
import add from "../../../kernels/forward/add.cu" with { type: "text" };
import aggregate from "../../../kernels/forward/aggregate.cu" with { type: "text" };
import argmax from "../../../kernels/forward/argmax.cu" with { type: "text" };
import attention from "../../../kernels/forward/attention.cu" with { type: "text" };
import attentionCombine from "../../../kernels/forward/attention_combine.cu" with { type: "text" };
import attentionMma from "../../../kernels/forward/attention_mma.cu" with { type: "text" };
import attentionSplit from "../../../kernels/forward/attention_split.cu" with { type: "text" };
import attentionSplitMma from "../../../kernels/forward/attention_split_mma.cu" with {
  type: "text",
};
import attentionWgmma from "../../../kernels/forward/attention_wgmma.cu" with { type: "text" };
import embedding from "../../../kernels/forward/embedding.cu" with { type: "text" };
import kvCache from "../../../kernels/forward/kv_cache.cu" with { type: "text" };
import linear from "../../../kernels/forward/linear.cu" with { type: "text" };
import linearMma from "../../../kernels/forward/linear_mma.cu" with { type: "text" };
import rmsNorm from "../../../kernels/forward/rms_norm.cu" with { type: "text" };
import rope from "../../../kernels/forward/rope.cu" with { type: "text" };
import publish from "../../../kernels/forward/publish.cu" with { type: "text" };
import sample from "../../../kernels/forward/sample.cu" with { type: "text" };
import swiglu from "../../../kernels/forward/swiglu.cu" with { type: "text" };
import tokenLogprobs from "../../../kernels/forward/token_logprobs.cu" with { type: "text" };
import adamw from "../../../kernels/optimizer/adamw.cu" with { type: "text" };
import elementwise from "../../../kernels/primitive/elementwise.cu" with { type: "text" };
import cast from "../../../kernels/primitive/cast.cu" with { type: "text" };
import movement from "../../../kernels/primitive/movement.cu" with { type: "text" };
import reduceAxis from "../../../kernels/primitive/reduce.cu" with { type: "text" };
import indexing from "../../../kernels/primitive/indexing.cu" with { type: "text" };
import matmul from "../../../kernels/primitive/matmul.cu" with { type: "text" };
import type { KernelSource } from "./nvrtc.ts";

/** Headers by the name in `#include`. */
export const KERNEL_HEADERS: ReadonlyMap<string, string> = new Map([
  ["common/angle.cuh", angle],
  ["common/hopper.cuh", hopper],
  ["common/linear.cuh", linearHeader],
  ["common/mixtures.cuh", mixtures],
  ["common/ptx.cuh", ptx],
  ["common/reduce.cuh", reduce],
  ["common/tiles.cuh", tiles],
  ["common/turn.cuh", turn],
  ["common/types.cuh", types],
]);

const TEXTS = {
  "forward/embedding.cu": embedding,
  "forward/rms_norm.cu": rmsNorm,
  "forward/rope.cu": rope,
  "forward/kv_cache.cu": kvCache,
  "forward/attention.cu": attention,
  "forward/attention_mma.cu": attentionMma,
  "forward/attention_wgmma.cu": attentionWgmma,
  "forward/attention_split.cu": attentionSplit,
  "forward/attention_split_mma.cu": attentionSplitMma,
  "forward/attention_combine.cu": attentionCombine,
  "forward/add.cu": add,
  "forward/swiglu.cu": swiglu,
  "forward/aggregate.cu": aggregate,
  "forward/linear.cu": linear,
  "forward/linear_mma.cu": linearMma,
  "forward/token_logprobs.cu": tokenLogprobs,
  "forward/argmax.cu": argmax,
  "forward/sample.cu": sample,
  "forward/publish.cu": publish,
  "backward/repeat_streams.cu": repeatBackward,
  "backward/rms_norm.cu": rmsNormBackward,
  "backward/attention_delta.cu": attentionDelta,
  "backward/attention.cu": attentionBackward,
  "backward/attention_mma.cu": attentionMmaBackward,
  "backward/swiglu.cu": swigluBackward,
  "backward/aggregate.cu": aggregateBackward,
  "backward/linear.cu": linearBackward,
  "backward/token_logprobs.cu": logprobsBackward,
  "optimizer/adamw.cu": adamw,
  "primitive/elementwise.cu": elementwise,
  "primitive/cast.cu": cast,
  "primitive/movement.cu": movement,
  "primitive/reduce.cu": reduceAxis,
  "primitive/indexing.cu": indexing,
  "primitive/matmul.cu": matmul,
} as const;

/** A file of kernels, by its path below `kernels/`. */
export type KernelFile = keyof typeof TEXTS;

/** All files, in the order in which a training step meets them. */
export const KERNEL_FILES = Object.keys(TEXTS) as readonly KernelFile[];

/** A file with the headers it may include. */
export function kernelSource(file: KernelFile): KernelSource {
  return { name: file, text: TEXTS[file], headers: KERNEL_HEADERS };
}
