/** Kernels of the model ops, and those of inference. */
import { blocks, each, type Kernel, kernelsOf, packStep, perPack, spread } from "./define.ts";

const embedding = kernelsOf("forward/embedding.cu");
const rmsNorm = kernelsOf("forward/rms_norm.cu");
const rope = kernelsOf("forward/rope.cu");
const kvCache = kernelsOf("forward/kv_cache.cu");
const attention = kernelsOf("forward/attention.cu");
const add = kernelsOf("forward/add.cu");
const swiglu = kernelsOf("forward/swiglu.cu");
const aggregate = kernelsOf("forward/aggregate.cu");
const linear = kernelsOf("forward/linear.cu");
const tokenLogprobs = kernelsOf("forward/token_logprobs.cu");
const argmax = kernelsOf("forward/argmax.cu");

/** In the order in which a forward pass meets them. */
export const FORWARD: readonly Kernel[] = [
  embedding(
    "embedding *y *table *ids tokens C V",
    "embedding",
    ({ tokens }) => spread(128, tokens!),
  ),
  rmsNorm(
    "rms_norm *y *inverse *x *weight rows C epsilon:f32",
    "rms_norm",
    ({ rows }) => spread(256, blocks(rows!, 8)),
  ),
  rmsNorm(
    "add_rms_norm *y *sum *inverse *x *residual *weight rows C epsilon:f32",
    "rms_norm",
    ({ rows }) => spread(256, blocks(rows!, 8)),
  ),
  rope(
    "rope *y *x *cosines *sines rows heads half direction:f32",
    "rope",
    ({ rows, heads, half }) => each(rows! * heads! * half!),
  ),
  kvCache(
    "write_slots *cache *update *start R starts T K S D rowStride tokenStride headStride",
    "write_slots",
    (sizes) => {
      const { R, T, K, D } = sizes;
      return each(R! * T! * K! * D!, packStep(sizes, D!));
    },
  ),
  attention(
    "attention *out *normalizer *q *keys *values *first *last *prefixKeys *prefixValues " +
      "R B T S K G M scale:f32",
    "attention",
    // P·B attention rows, of which R have text of their own.
    ({ rows, G, T, K }) => spread(128, blocks(G! * T!, 16), K!, rows!),
  ),
  add("add *y *a *b count:i64", "add", (sizes) => each(sizes.count!, perPack(sizes))),
  swiglu("silu *y *x count:i64", "silu", (sizes) => each(sizes.count!, perPack(sizes))),
  swiglu("swiglu *y *gate *up count:i64", "swiglu", (sizes) => each(sizes.count!, perPack(sizes))),
  aggregate(
    "stream_weights *weights *scores N P smoothing:f32",
    "stream_weights",
    ({ N }) => each(N!, 1, 128),
  ),
  aggregate(
    "mix_streams *y *x *weights P N C",
    "mix_streams",
    (sizes) => each(sizes.N! * sizes.C!, packStep(sizes, sizes.C!)),
  ),
  linear(
    "linear *y *x *weight *bias M N K",
    "linear",
    ({ M, N, ROWS }) => spread(128, blocks(N!, 16), blocks(M!, ROWS!)),
  ),
  tokenLogprobs(
    "token_logprobs *logprobs *normalizer *logits *targets N V",
    "token_logprobs",
    ({ N }) => spread(512, N!),
  ),
  argmax("argmax *index *x N V", "argmax", ({ N }) => spread(512, N!)),
];
