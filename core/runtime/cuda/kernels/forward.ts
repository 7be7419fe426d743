/** Kernels of the model ops, and those of inference. */
import { blocks, each, type Kernel, kernelsOf, packStep, perPack, spread } from "./define.ts";

const embedding = kernelsOf("forward/embedding.cu");
const rmsNorm = kernelsOf("forward/rms_norm.cu");
const rope = kernelsOf("forward/rope.cu");
const kvCache = kernelsOf("forward/kv_cache.cu");
const attention = kernelsOf("forward/attention.cu");
const attentionMma = kernelsOf("forward/attention_mma.cu");
const attentionWgmma = kernelsOf("forward/attention_wgmma.cu");
const attentionSplit = kernelsOf("forward/attention_split.cu");
const attentionCombine = kernelsOf("forward/attention_combine.cu");
const attentionSplitMma = kernelsOf("forward/attention_split_mma.cu");
const add = kernelsOf("forward/add.cu");
const swiglu = kernelsOf("forward/swiglu.cu");
const aggregate = kernelsOf("forward/aggregate.cu");
const linear = kernelsOf("forward/linear.cu");
const linearMma = kernelsOf("forward/linear_mma.cu");
const tokenLogprobs = kernelsOf("forward/token_logprobs.cu");
const argmax = kernelsOf("forward/argmax.cu");
const sample = kernelsOf("forward/sample.cu");
const publish = kernelsOf("forward/publish.cu");

/** Queries of one block of `attention_split`. */
const SPLIT_QUERIES = 8;

/** Weight rows of one block of `linear_mma`. */
const mmaColumns = (ROWS: number) => ROWS <= 16 ? 16 : 32;

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
  rope(
    "rope_write_slots *keyCache *valueCache *y *q *k *v *cosines *sines *start R starts T H K S half",
    "rope",
    ({ R, T, H, K, half }) => each(R! * T! * (H! + 2 * K!) * half!),
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
    "attention *out *normalizer *q *keys *values *first *last *table *prefixKeys " +
      "*prefixValues R B T S K G M scale:f32",
    "attention",
    // P·B attention rows, of which R have text of their own.
    ({ rows, G, T, K }) => spread(128, blocks(G! * T!, 16), K!, rows!),
  ),
  attentionMma(
    "attention_mma *out *normalizer *q *keys *values *first *last *prefixKeys *prefixValues " +
      "R B T S K G M scale:f32",
    "attention",
    ({ rows, G, T, K, HEAD_DIM }) =>
      spread(128, blocks(G! * T!, HEAD_DIM! <= 64 ? 128 : 64), K!, rows!),
  ),
  attentionWgmma(
    "attention_wgmma *out *normalizer *q #keys:64x128 #values:64x128 *first *last " +
      "#prefixKeys:64x128 #prefixValues:64x128 R B T S K G M scale:f32",
    "attention",
    ({ rows, G, T, K, HEAD_DIM }) => ({
      ...spread(384, blocks(G! * T!, 128), K!, rows!),
      // Three stages of 128 keys and as many values in bf16, each with two barriers.
      shared: 3 * (2 * 128 * HEAD_DIM! * 2 + 2 * 8),
    }),
  ),
  attentionSplit(
    "attention_split *partial *peaks *totals *q *keys *values *first *last *table " +
      "*prefixKeys *prefixValues R rows B T S K G M chunk scale:f32",
    "attention",
    ({ rows, G, T, S, K, M, chunk }) =>
      spread(128, Math.sign(M!) + blocks(S!, chunk!), K! * blocks(G! * T!, SPLIT_QUERIES), rows!),
  ),
  attentionCombine(
    "attention_combine *out *normalizer *partial *peaks *totals heads:i64 splits",
    "attention",
    ({ heads }) => spread(128, heads!),
  ),
  attentionSplitMma(
    "attention_split_mma *partial *peaks *totals *q *keys *values *first *last *table " +
      "*prefixKeys *prefixValues R rows B T S K G M chunk scale:f32",
    "attention",
    ({ rows, S, K, M, chunk }) => spread(64, Math.sign(M!) + blocks(S!, chunk!), K!, rows!),
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
    "linear *y0 *y1 *y2 *x *weight0 *weight1 *weight2 *bias0 *bias1 *bias2 M N0 N1 N2 K",
    "linear",
    ({ M, N0, N1, N2, ROWS }) =>
      spread(128, blocks(N0!, 16) + blocks(N1!, 16) + blocks(N2!, 16), blocks(M!, ROWS!)),
  ),
  linear(
    "linear_swiglu *y *x *gate *up M N K",
    "swiglu",
    ({ M, N, ROWS }) => spread(128, blocks(N!, 8), blocks(M!, ROWS!)),
  ),
  linearMma(
    "linear_mma *y0 *y1 *y2 *x *weight0 *weight1 *weight2 *bias0 *bias1 *bias2 M N0 N1 N2 K",
    "linear",
    ({ N0, N1, N2, ROWS }) => {
      const columns = mmaColumns(ROWS!);
      return spread(256, blocks(N0!, columns) + blocks(N1!, columns) + blocks(N2!, columns));
    },
  ),
  linearMma(
    "linear_swiglu_mma *y *x *gate *up M N K",
    "swiglu",
    ({ N }) => spread(256, blocks(N!, 16)),
  ),
  tokenLogprobs(
    "token_logprobs *logprobs *normalizer *logits *targets N V",
    "token_logprobs",
    ({ N }) => spread(512, N!),
  ),
  argmax("argmax *index *x N V", "argmax", ({ N }) => spread(512, N!)),
  sample("sample *tokens *logits *sampling N V", "sample", ({ N }) => spread(1024, N!)),
  publish("publish *slot *values count sequence", "sample", () => spread(256, 1)),
];
