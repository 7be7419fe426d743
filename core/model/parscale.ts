/**
 * The ParScale model: P streams of a Qwen model, each after its own learned prefix, mixed per token.
 *
 *   h_p = Qwen(x; prefix_p)                      final-normed hidden state of stream p
 *   w   = softmax(MLP([h_1 … h_P])) (1 − ε) + ε/P
 *   logits = W_head Σ_p w_p h_p
 *
 * or, with linear aggregation, W_head (W_agg [h_1 … h_P] + b).
 *
 * Two programs are built from these parts: `forward.ts` appends tokens to a KV cache, `loss.ts`
 * reads whole rows for training. With P = 1 there is no aggregator, and without a prefix this is a
 * plain model.
 */
import type { Builder } from "../graph/builder.ts";
import { checkpoint } from "../graph/differentiate.ts";
import type { Value } from "../graph/value.ts";
import { silu } from "../ops/activation.ts";
import { mixStreams, streamWeights } from "../ops/aggregate.ts";
import { embedding } from "../ops/embedding.ts";
import { linear } from "../ops/linear.ts";
import { repeatStreams } from "../ops/repeat_streams.ts";
import { type RopeTables, ropeTables } from "../ops/rope.ts";
import { isDeltaNet, type ModelConfig } from "./config.ts";
import { EMBEDDING, HEAD, parameterSpecs } from "./parameters.ts";
import { ropeFrequencies } from "./rope_frequencies.ts";
import { type BlockContext, norm } from "./block_context.ts";
import { block } from "./qwen.ts";
import { sharesFirstLayer } from "./transforms.ts";

/** Finds the value of a parameter by its name in the checkpoint. */
export type Parameter = (name: string) => Value;

/** Declares parameters on demand with the shapes of the checkpoint. */
export function parameterDeclarer(g: Builder, config: ModelConfig): Parameter {
  const shapes = new Map(parameterSpecs(config).map(({ name, shape }) => [name, shape]));
  return (name) => {
    const shape = shapes.get(name);
    if (!shape) throw new TypeError(`cannot use parameter "${name}": this model has none`);
    return g.parameter(name, { dtype: "f32", shape });
  };
}

/** Rotation tables of all rows: for B rows, and repeated for P·B. */
export function tablesByRows(config: ModelConfig, positions: Value): (rows: number) => RopeTables {
  const { frequencies, scale } = ropeFrequencies(config);
  const tables = ropeTables(positions, frequencies, scale);
  const repeated = {
    cos: repeatStreams(tables.cos, config.streams),
    sin: repeatStreams(tables.sin, config.streams),
  };
  return (rows) => rows === positions.shape[0] ? tables : repeated;
}

/**
 * All layers: ids [B, T] i32 → residual streams [P·B·T, C]. `trace` is shown the embeddings and the
 * result of each layer.
 */
export function runLayers(
  context: BlockContext,
  ids: Value,
  trace: (layer: number, x: Value) => void = () => {},
): Value {
  const { config, parameter } = context;
  const { streams: P, prefix } = config;
  const [B, T] = ids.shape as [number, number];
  let x = embedding({ table: parameter("model.embed_tokens.weight"), ids: ids.reshape([B * T]) });
  trace(0, repeatStreams(x, P));
  if (!sharesFirstLayer(config)) x = repeatStreams(x, P);
  for (let layer = 0; layer < config.numHiddenLayers; layer++) {
    const at = `model.layers.${layer}.self_attn`;
    const own = prefix && !isDeltaNet(config, layer)
      ? { keys: parameter(`${at}.prefix_k`), values: parameter(`${at}.prefix_v`) }
      : undefined;
    x = checkpoint(x);
    x = block(context, layer, x, { rows: x.shape[0]! / T, T, prefix: own });
    trace(layer + 1, x);
  }
  return checkpoint(x);
}

/** Results of `mixAndProject`. */
export interface Head {
  /** [N, V] */
  readonly logits: Value;
  /** Aggregation weights [N, P], where several streams have any. */
  readonly weights: Value | undefined;
}

/** Final norm, aggregation and output matrix: x [P, N, C] → logits [N, V] */
export function mixAndProject(
  context: Pick<BlockContext, "config" | "parameter">,
  x: Value,
  trace: (name: string, x: Value) => void = () => {},
): Head {
  const { config, parameter } = context;
  const [P, N, C] = x.shape as [number, number, number];
  const normed = norm(context, "model.norm", x);
  trace("final_norm", normed);
  const { mixed, weights } = P > 1
    ? aggregate(context, normed)
    : { mixed: normed.reshape([N, C]), weights: undefined };
  trace("mixed", mixed);
  const tied = config.tieWordEmbeddings;
  const matrix = parameter(tied ? EMBEDDING : HEAD);
  return { logits: linear({ x: mixed, weight: matrix }), weights };
}

/** Aggregates the P streams of every token: normed [P, N, C] → [N, C] */
function aggregate(
  { config, parameter }: Pick<BlockContext, "config" | "parameter">,
  normed: Value,
): { mixed: Value; weights: Value | undefined } {
  const [P, N, C] = normed.shape as [number, number, number];
  const at = "model.aggregate_layer";
  // The stream index runs fastest: column c·P + p multiplies component c of stream p.
  const interleaved = normed.transpose([1, 2, 0]).reshape([N, C * P]);
  const layer = (x: Value, name: string) =>
    linear({ x, weight: parameter(`${name}.weight`), bias: parameter(`${name}.bias`) });
  if (config.aggregator === "linear") {
    return { mixed: layer(interleaved, at), weights: undefined };
  }
  const scores = layer(silu({ x: layer(interleaved, `${at}.0`) }), `${at}.2`);
  const weights = streamWeights({ scores }, { smoothing: config.smoothing });
  return { mixed: mixStreams({ x: normed, weights }), weights };
}
