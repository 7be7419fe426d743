/** Kernels of attention and of its gradient; sizes are named in `core/ops/attention.ts`. */
import backwardText from "../../../../../kernels/backward/attention.cu" with { type: "text" };
import deltaText from "../../../../../kernels/backward/attention_delta.cu" with { type: "text" };
import backwardMmaText from "../../../../../kernels/backward/attention_mma.cu" with {
  type: "text",
};
import forwardText from "../../../../../kernels/forward/attention.cu" with { type: "text" };
import combineText from "../../../../../kernels/forward/attention_combine.cu" with { type: "text" };
import mmaText from "../../../../../kernels/forward/attention_mma.cu" with { type: "text" };
import splitText from "../../../../../kernels/forward/attention_split.cu" with { type: "text" };
import splitMmaText from "../../../../../kernels/forward/attention_split_mma.cu" with {
  type: "text",
};
import wgmmaText from "../../../../../kernels/forward/attention_wgmma.cu" with { type: "text" };
import { blocks, type Kernel, kernel, kernelFile, overHeads, spread } from "../define.ts";

const NARROW = overHeads([{ BF16: 1 }]);

export const ATTENTION = kernelFile("forward/attention.cu", forwardText, overHeads());
export const ATTENTION_MMA = kernelFile("forward/attention_mma.cu", mmaText, NARROW);
export const ATTENTION_WGMMA = kernelFile(
  "forward/attention_wgmma.cu",
  wgmmaText,
  NARROW,
  "sm_90a",
);
export const ATTENTION_SPLIT = kernelFile(
  "forward/attention_split.cu",
  splitText,
  overHeads([{ BF16: 0 }]),
);
export const ATTENTION_SPLIT_MMA = kernelFile(
  "forward/attention_split_mma.cu",
  splitMmaText,
  NARROW,
);
export const ATTENTION_COMBINE = kernelFile(
  "forward/attention_combine.cu",
  combineText,
  overHeads(),
);
export const ATTENTION_DELTA = kernelFile("backward/attention_delta.cu", deltaText, overHeads());
export const ATTENTION_BACKWARD = kernelFile("backward/attention.cu", backwardText, overHeads());
export const ATTENTION_BACKWARD_MMA = kernelFile(
  "backward/attention_mma.cu",
  backwardMmaText,
  NARROW,
);

/** Queries of one block of `attention_split`. */
const SPLIT_QUERIES = 8;

export const simple: Kernel = kernel(
  ATTENTION,
  "attention *out *normalizer *q *keys *values *first *last *table *prefixKeys " +
    "*prefixValues R B T S K G M scale:f32",
  // P·B attention rows, of which R have text of their own.
  ({ rows, G, T, K }) => spread(128, blocks(G! * T!, 16), K!, rows!),
);
export const mma: Kernel = kernel(
  ATTENTION_MMA,
  "attention_mma *out *normalizer *q *keys *values *first *last *prefixKeys *prefixValues " +
    "R B T S K G M scale:f32",
  ({ rows, G, T, K, HEAD_DIM }) =>
    spread(128, blocks(G! * T!, HEAD_DIM! <= 64 ? 128 : 64), K!, rows!),
);
export const wgmma: Kernel = kernel(
  ATTENTION_WGMMA,
  "attention_wgmma *out *normalizer *q #keys:64x128 #values:64x128 *first *last " +
    "#prefixKeys:64x128 #prefixValues:64x128 R B T S K G M scale:f32",
  ({ rows, G, T, K, HEAD_DIM }) => ({
    ...spread(384, blocks(G! * T!, 128), K!, rows!),
    // Three stages of 128 keys and as many values in bf16, each with two barriers.
    shared: 3 * (2 * 128 * HEAD_DIM! * 2 + 2 * 8),
  }),
);
export const split: Kernel = kernel(
  ATTENTION_SPLIT,
  "attention_split *partial *peaks *totals *q *keys *values *first *last *table " +
    "*prefixKeys *prefixValues R rows B T S K G M chunk scale:f32",
  ({ rows, G, T, S, K, M, chunk }) =>
    spread(128, Math.sign(M!) + blocks(S!, chunk!), K! * blocks(G! * T!, SPLIT_QUERIES), rows!),
);
export const splitMma: Kernel = kernel(
  ATTENTION_SPLIT_MMA,
  "attention_split_mma *partial *peaks *totals *q *keys *values *first *last *table " +
    "*prefixKeys *prefixValues R rows B T S K G M chunk scale:f32",
  ({ rows, S, K, M, chunk }) => spread(64, Math.sign(M!) + blocks(S!, chunk!), K!, rows!),
);
export const combine: Kernel = kernel(
  ATTENTION_COMBINE,
  "attention_combine *out *normalizer *partial *peaks *totals heads:i64 splits",
  ({ heads }) => spread(128, heads!),
);
export const delta: Kernel = kernel(
  ATTENTION_DELTA,
  "attention_delta *delta *dout *out heads:i64",
  ({ heads }) => spread(128, blocks(heads!, 4)),
);

/** The three kernels of the gradient, by queries, by keys and values, and by the prefix. */
export interface BackwardKernels {
  readonly queries: Kernel;
  readonly keys: Kernel;
  readonly prefix: Kernel;
  /** Slots of the prefix that one block computes. */
  readonly tile: number;
}

function backwardKernels(file: typeof ATTENTION, suffix: string, tile: number): BackwardKernels {
  const read = "*dout *normalizer *delta *q";
  return {
    tile,
    queries: kernel(
      file,
      `attention_queries${suffix} *dq ${read} *keys *values *first *last *prefixKeys ` +
        "*prefixValues R rows B T S K G M scale:f32",
      ({ R, G, T, K }) => spread(128, blocks(G! * T!, tile), K!, R!),
    ),
    keys: kernel(
      file,
      `attention_keys${suffix} *dkeys *dvalues ${read} *keys *values *first *last ` +
        "R rows B T S K G scale:f32",
      ({ R, S, K }) => spread(128, blocks(S!, tile), K!, R!),
    ),
    prefix: kernel(
      file,
      `attention_prefix${suffix} *partialKeys *partialValues ${read} *prefixKeys ` +
        "*prefixValues R P B T K G M chunks scale:f32",
      ({ P, M, K, chunks }) => spread(128, blocks(M!, tile), K!, P! * chunks!),
    ),
  };
}

export const backward: BackwardKernels = backwardKernels(ATTENTION_BACKWARD, "", 16);
export const backwardMma: BackwardKernels = backwardKernels(ATTENTION_BACKWARD_MMA, "_mma", 64);
