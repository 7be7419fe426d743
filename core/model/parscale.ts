/**
 * The ParScale model: P streams of a Qwen model, each behind its own learned prefix, mixed per token.
 *
 *   h_p = Qwen(x; prefix_p)                      final-normed hidden state of stream p
 *   w   = softmax(MLP([h_1 … h_P])) (1 − ε) + ε/P
 *   logits = W_head Σ_p w_p h_p
 *
 * One program serves prefill, decoding and scoring: it appends T tokens to each of B sequences,
 * starting at slot `start[b]` of the KV cache, and computes results for the `select`ed tokens only.
 * Sequences may have different lengths: what lies in the cache after a sequence's last token is never
 * looked at, and is overwritten by its next tokens.
 *
 * With P = 1 there are no prefixes and no aggregator, and this is a plain Qwen model.
 */
import { Builder } from "../graph/builder.ts";
import { argmax, gather, reshape, transpose } from "../graph/primitives.ts";
import type { Program, Value } from "../graph/types.ts";
import { silu } from "../ops/activation.ts";
import { mixStreams, streamWeights } from "../ops/aggregate.ts";
import type { Prefix } from "../ops/attention.ts";
import { embedding } from "../ops/embedding.ts";
import { linear } from "../ops/linear.ts";
import { repeatStreams } from "../ops/repeat_streams.ts";
import { rmsNorm } from "../ops/rms_norm.ts";
import { ropeTables } from "../ops/rope.ts";
import { tokenLogprobs } from "../ops/token_logprobs.ts";
import type { ModelConfig } from "./config.ts";
import { parameterSpecs } from "./parameters.ts";
import { block, type BlockContext } from "./qwen.ts";

/** Sizes of one forward program. */
export interface ForwardSizes {
  /** B: sequences. */
  readonly batch: number;
  /** T: new tokens per sequence. */
  readonly tokens: number;
  /** S: slots of the KV cache; at least `start + tokens` of every sequence. */
  readonly capacity: number;
  /** N: tokens for which results are computed. */
  readonly selected: number;
}

/** What a forward program computes for the selected tokens. */
export interface ForwardOptions {
  /**
   * `logits`: `logits` [N, V]. `score`: `logprobs` [N] of the input `targets` [N], and `argmax` [N].
   */
  readonly head: "logits" | "score";
  /** Adds `trace.layer<i>` outputs, the residual stream after each layer, for tests. */
  readonly trace?: boolean;
}

/**
 * Builds the forward program.
 *
 * Inputs, all i32: `ids` [B, T]; `start` [B], the slot of the first new token; `positions` [B, T],
 * `start[b] + t`; `select` [N], flat indices b·T + t; for `score` also `targets` [N]. State: `keys.<layer>`, `values.<layer>` [P·B, K, S, D], with B rows in layer 0.
 * Outputs: see `ForwardOptions.head`; with P > 1 also `weights` [N, P], the aggregation weights.
 */
export function buildForward(
  config: ModelConfig,
  sizes: ForwardSizes,
  options: ForwardOptions,
): Program {
  const { batch: B, tokens: T, capacity: S, selected: N } = sizes;
  const { streams: P, hiddenSize: C } = config;
  const g = new Builder(`forward.${options.head}`);
  const parameter = parameterDeclarer(g, config);
  const ids = g.input("ids", { dtype: "i32", shape: [B, T] });
  const start = g.input("start", { dtype: "i32", shape: [B] });
  const chosen = g.input("select", { dtype: "i32", shape: [N] });
  const positions = g.input("positions", { dtype: "i32", shape: [B, T] });

  const tables = ropeTables(g, positions, config.headDim, config.ropeTheta);
  const forRows = new Map([[B, { start, tables }]]);
  if (P > 1) {
    forRows.set(P * B, {
      start: repeatStreams(g, start, P),
      tables: {
        cos: repeatStreams(g, tables.cos, P),
        sin: repeatStreams(g, tables.sin, P),
      },
    });
  }
  const context: BlockContext = {
    g,
    config,
    parameter,
    positions,
    capacity: S,
    byRows: (rows) => forRows.get(rows)!,
  };

  const tokens = reshape(g, ids, [B * T]);
  const table = parameter("model.embed_tokens.weight");
  let x = embedding(g, table, tokens); // [B·T, C]
  if (options.trace) g.output("trace.layer0", repeatStreams(g, x, P));
  for (let layer = 0; layer < config.numHiddenLayers; layer++) {
    const prefix = P > 1 ? prefixOf(parameter, layer) : undefined;
    x = block(context, layer, x, { rows: x.shape[0]! / T, T, prefix }); // [P·B·T, C]
    if (options.trace) g.output(`trace.layer${layer + 1}`, x);
  }

  // Everything after the last layer is per token, so only the selected tokens take part.
  const byStream = gather(g, reshape(g, x, [P, B * T, C]), chosen, 1); // [P, N, C]
  const normed = rmsNorm(g, byStream, parameter("model.norm.weight"), config.rmsNormEps);
  if (options.trace) g.output("trace.final_norm", normed);
  const mixed = P > 1 ? aggregate(g, config, parameter, normed) : reshape(g, normed, [N, C]);
  if (options.trace) g.output("trace.mixed", mixed);
  const head = config.tieWordEmbeddings ? table : parameter("lm_head.weight");
  const logits = linear(g, mixed, head); // [N, V]
  if (options.head === "logits") g.output("logits", logits);
  else {
    const targets = g.input("targets", { dtype: "i32", shape: [N] });
    g.output("logprobs", tokenLogprobs(g, logits, targets));
    g.output("argmax", reshape(g, argmax(g, logits, -1), [N]));
  }
  return g.build();
}

/** Mixes the streams per token and names their weights: normed [P, N, C] → [N, C]. */
function aggregate(
  g: Builder,
  config: ModelConfig,
  parameter: (name: string) => Value,
  normed: Value,
): Value {
  const [P, N, C] = normed.shape as [number, number, number];
  const at = "model.aggregate_layer";
  // The stream index runs fastest: column c·P + p multiplies component c of stream p.
  const interleaved = reshape(g, transpose(g, normed, [1, 2, 0]), [N, C * P]);
  const hidden = silu(
    g,
    linear(g, interleaved, parameter(`${at}.0.weight`), parameter(`${at}.0.bias`)),
  );
  const scores = linear(g, hidden, parameter(`${at}.2.weight`), parameter(`${at}.2.bias`));
  const weights = streamWeights(g, scores, config.smoothing); // [N, P]
  g.output("weights", weights);
  return mixStreams(g, normed, weights);
}

function prefixOf(parameter: (name: string) => Value, layer: number): Prefix {
  const at = `model.layers.${layer}.self_attn`;
  return { keys: parameter(`${at}.prefix_k`), values: parameter(`${at}.prefix_v`) };
}

/** Declares parameters on demand with the shapes of the checkpoint. */
function parameterDeclarer(g: Builder, config: ModelConfig): (name: string) => Value {
  const shapes = new Map(parameterSpecs(config).map(({ name, shape }) => [name, shape]));
  return (name) => {
    const shape = shapes.get(name);
    if (!shape) throw new TypeError(`Cannot use parameter "${name}": this model has none`);
    return g.parameter(name, { dtype: "f32", shape });
  };
}
