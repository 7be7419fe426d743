/** Kernels of the gradients of model ops, and of the optimiser. */
import { blocks, each, type Kernel, kernelsOf, perPack, spread } from "./define.ts";

/** Rows of which one block makes a partial sum, in `rms_norm_weight` and `bias_partials`. */
export const PARTIAL_ROWS = 64;

const rmsNorm = kernelsOf("backward/rms_norm.cu");
const attention = kernelsOf("backward/attention.cu");
const attentionDelta = kernelsOf("backward/attention_delta.cu");
const attentionMma = kernelsOf("backward/attention_mma.cu");
const repeatStreams = kernelsOf("backward/repeat_streams.cu");
const swiglu = kernelsOf("backward/swiglu.cu");
const aggregate = kernelsOf("backward/aggregate.cu");
const linear = kernelsOf("backward/linear.cu");
const tokenLogprobs = kernelsOf("backward/token_logprobs.cu");
const adamw = kernelsOf("optimizer/adamw.cu");

/** In the order of the forward pass. */
export const BACKWARD: readonly Kernel[] = [
  repeatStreams(
    "sum_streams *dx *dy count:i64 P",
    "gradient of repeat_streams",
    ({ count }) => each(count!),
  ),
  rmsNorm(
    "rms_norm_backward *dx *dy *residual *x *weight *inverse rows C",
    "gradient of rms_norm",
    ({ rows }) => spread(256, blocks(rows!, 8)),
  ),
  rmsNorm(
    "rms_norm_weight *partial *dy *x *inverse rows C",
    "gradient of rms_norm",
    ({ rows, C }) => spread(128, blocks(C!, 128), blocks(rows!, PARTIAL_ROWS)),
  ),
  attentionDelta(
    "attention_delta *delta *dout *out heads:i64",
    "gradient of attention",
    ({ heads }) => spread(128, blocks(heads!, 4)),
  ),
  attention(
    "attention_queries *dq *dout *normalizer *delta *q *keys *values *first *last *prefixKeys " +
      "*prefixValues R rows B T S K G M scale:f32",
    "gradient of attention",
    ({ R, G, T, K }) => spread(128, blocks(G! * T!, 16), K!, R!),
  ),
  attention(
    "attention_keys *dkeys *dvalues *dout *normalizer *delta *q *keys *values *first *last " +
      "R rows B T S K G scale:f32",
    "gradient of attention",
    ({ R, S, K }) => spread(128, blocks(S!, 16), K!, R!),
  ),
  attention(
    "attention_prefix *partialKeys *partialValues *dout *normalizer *delta *q *prefixKeys " +
      "*prefixValues R P B T K G M chunks scale:f32",
    "gradient of attention",
    ({ P, M, K, chunks }) => spread(128, blocks(M!, 16), K!, P! * chunks!),
  ),
  attentionMma(
    "attention_queries_mma *dq *dout *normalizer *delta *q *keys *values *first *last *prefixKeys " +
      "*prefixValues R rows B T S K G M scale:f32",
    "gradient of attention",
    ({ R, G, T, K }) => spread(128, blocks(G! * T!, 64), K!, R!),
  ),
  attentionMma(
    "attention_keys_mma *dkeys *dvalues *dout *normalizer *delta *q *keys *values *first *last " +
      "R rows B T S K G scale:f32",
    "gradient of attention",
    ({ R, S, K }) => spread(128, blocks(S!, 64), K!, R!),
  ),
  attentionMma(
    "attention_prefix_mma *partialKeys *partialValues *dout *normalizer *delta *q *prefixKeys " +
      "*prefixValues R P B T K G M chunks scale:f32",
    "gradient of attention",
    ({ P, M, K, chunks }) => spread(128, blocks(M!, 64), K!, P! * chunks!),
  ),
  swiglu(
    "silu_backward *dx *dy *x count:i64",
    "gradient of silu",
    (sizes) => each(sizes.count!, perPack(sizes)),
  ),
  swiglu(
    "swiglu_backward *dgate *dup *dy *gate *up count:i64",
    "gradient of swiglu",
    (sizes) => each(sizes.count!, perPack(sizes)),
  ),
  aggregate(
    "mix_streams_backward *dx *dweights *dy *x *weights P N C",
    "gradient of mix_streams",
    ({ N }) => spread(128, N!),
  ),
  aggregate(
    "stream_weights_backward *dscores *dweights *weights N P smoothing:f32",
    "gradient of stream_weights",
    ({ N }) => each(N!, 1, 128),
  ),
  linear(
    "bias_partials *partial *dy rows N",
    "gradient of linear",
    ({ rows, N }) => spread(128, blocks(N!, 128), blocks(rows!, PARTIAL_ROWS)),
  ),
  linear("sum_partials *sum *partial chunks N", "sum", ({ N }) => each(N!, 1, 128)),
  tokenLogprobs(
    "token_logprobs_backward *dlogits *dy *logits *targets *normalizer N V",
    "gradient of token_logprobs",
    ({ N }) => spread(512, N!),
  ),
  adamw(
    "adamw *parameter *m *v *gradient *scale *decay *stepSize *correction count:i64 beta1:f32 " +
      "beta2:f32 epsilon:f32",
    "adamw",
    ({ count }) => each(count!),
  ),
];
