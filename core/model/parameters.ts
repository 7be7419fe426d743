/**
 * The list of tensors a model consists of: names as in the checkpoint, shapes from the config.
 *
 * The one place that knows the names. Code that reads, writes, initialises, counts or trains
 * parameters goes through this list. Its order is the order in which files are written.
 */
import { elementCount } from "../graph/types.ts";
import {
  convWidth,
  hasHeadNorms,
  hasLora,
  isDeltaNet,
  type ModelConfig,
  projections,
  queryHeads,
} from "./config.ts";

export { elementCount };

/** The embedding table, which is the output matrix too where the two are tied. */
export const EMBEDDING = "model.embed_tokens.weight";

/** The output matrix of a model where the two are not tied. */
export const HEAD = "lm_head.weight";

/** One tensor of a checkpoint. */
export interface ParameterSpec {
  /** Name in the checkpoint, for example `model.layers.0.self_attn.q_proj.weight`. */
  readonly name: string;
  readonly shape: readonly number[];
  /** True for prefixes and aggregator: what ParScale adds to a plain model. */
  readonly introduced: boolean;
}

/** Every tensor of the model, in file order. A tied output matrix is not listed. */
export function parameterSpecs(config: ModelConfig): ParameterSpec[] {
  const specs: ParameterSpec[] = [];
  const backbone = (name: string, ...shape: number[]) =>
    specs.push({ name, shape, introduced: false });
  const introduced = (name: string, ...shape: number[]) =>
    specs.push({ name, shape, introduced: true });

  const { hiddenSize: C, intermediateSize: F, vocabSize: V, streams: P } = config;

  backbone(EMBEDDING, V, C);
  for (let layer = 0; layer < config.numHiddenLayers; layer++) {
    const at = `model.layers.${layer}`;
    const matrices = [...projections(config, layer)];
    const isMixing = ([name]: (typeof matrices)[number]) => !name.startsWith("mlp.");
    backbone(`${at}.input_layernorm.weight`, C);
    for (const [name, sizes] of matrices.filter(isMixing)) {
      backbone(`${at}.${name}.weight`, ...sizes);
    }
    for (const { name, shape, introduced } of mixingSpecs(config, layer)) {
      specs.push({ name: `${at}.${name}`, shape, introduced });
    }
    for (const [name, [out, input]] of matrices) {
      const r = hasLora(config, name) ? config.loraRank : 0;
      if (r > 0) introduced(`${at}.${name}.lora_a`, P, r, input);
      if (r > 0) introduced(`${at}.${name}.lora_b`, P, out, r);
      if (config.bitfit) introduced(`${at}.${name}.stream_bias`, P, out);
    }
    backbone(`${at}.post_attention_layernorm.weight`, C);
    backbone(`${at}.mlp.gate_proj.weight`, F, C);
    backbone(`${at}.mlp.up_proj.weight`, F, C);
    backbone(`${at}.mlp.down_proj.weight`, C, F);
    if (config.mlpBias) {
      backbone(`${at}.mlp.gate_proj.bias`, F);
      backbone(`${at}.mlp.up_proj.bias`, F);
      backbone(`${at}.mlp.down_proj.bias`, C);
    }
  }
  backbone("model.norm.weight", C);
  if (P > 1 && config.aggregator === "linear") {
    introduced("model.aggregate_layer.weight", C, P * C);
    introduced("model.aggregate_layer.bias", C);
  } else if (P > 1) {
    introduced("model.aggregate_layer.0.weight", C, P * C);
    introduced("model.aggregate_layer.0.bias", C);
    introduced("model.aggregate_layer.2.weight", P, C);
    introduced("model.aggregate_layer.2.bias", P);
  }
  if (!config.tieWordEmbeddings) backbone(HEAD, V, C);
  return specs;
}

/** Tensors of attention or a delta net beside its matrices, below `model.layers.<i>.`. */
function mixingSpecs(config: ModelConfig, layer: number): ParameterSpec[] {
  const own = isDeltaNet(config, layer) ? deltaShapes(config) : attentionShapes(config);
  return Object.entries(own).map(([name, shape]) => ({
    name,
    shape,
    introduced: name.includes(".prefix_"),
  }));
}

type Shapes = Record<string, readonly number[]>;

function attentionShapes(config: ModelConfig): Shapes {
  const { hiddenSize: C, headDim: D } = config;
  const { numKeyValueHeads: K, streams: P, prefixTokens: M } = config;
  const shapes: Shapes = {};
  if (config.attentionBias) {
    shapes["self_attn.q_proj.bias"] = [queryHeads(config) * D];
    shapes["self_attn.k_proj.bias"] = [K * D];
    shapes["self_attn.v_proj.bias"] = [K * D];
  }
  if (config.outputBias) shapes["self_attn.o_proj.bias"] = [C];
  if (hasHeadNorms(config)) {
    shapes["self_attn.q_norm.weight"] = [D];
    shapes["self_attn.k_norm.weight"] = [D];
  }
  if (config.prefix) {
    shapes["self_attn.prefix_k"] = [P, K, M, D];
    shapes["self_attn.prefix_v"] = [P, K, M, D];
  }
  return shapes;
}

function deltaShapes({ delta, prefix, streams: P }: ModelConfig): Shapes {
  const { valueHeads: H, keyDim: Dk, valueDim: Dv, kernel: K } = delta!;
  const W = convWidth(delta!);
  return {
    "linear_attn.conv1d.weight": [W, 1, K],
    "linear_attn.dt_bias": [H],
    "linear_attn.A_log": [H],
    "linear_attn.norm.weight": [Dv],
    ...(prefix && {
      "linear_attn.prefix_conv": [P, W, K - 1],
      "linear_attn.prefix_state": [P, H, Dk, Dv],
    }),
  };
}

/** The introduced tensors of the model, out of a map that holds all of them. */
export function introducedTensors<T>(
  config: ModelConfig,
  tensors: ReadonlyMap<string, T>,
): Map<string, T> {
  const introduced = parameterSpecs(config).filter((spec) => spec.introduced);
  return new Map(introduced.map(({ name }) => [name, tensors.get(name)!]));
}

/** Matrices that activations are multiplied by: those that can be kept in 8 or 4 bits. */
export function linearSpecs(config: ModelConfig): ParameterSpec[] {
  return parameterSpecs(config).filter(({ name, shape }) =>
    name === EMBEDDING ? config.tieWordEmbeddings : shape.length === 2 && name.endsWith(".weight")
  );
}

/** Parameter counts, by the groups the paper reports. */
export interface ParameterCounts {
  readonly total: number;
  /** Prefixes and aggregator. */
  readonly introduced: number;
  /** Embedding table, and output matrix when it is not tied. */
  readonly embedding: number;
}

/** Counts parameters exactly as the table of the ParScale paper does. */
export function countParameters(config: ModelConfig): ParameterCounts {
  let total = 0, introduced = 0, embedding = 0;
  for (const spec of parameterSpecs(config)) {
    const count = elementCount(spec.shape);
    total += count;
    if (spec.introduced) introduced += count;
    if (spec.name === EMBEDDING || spec.name === HEAD) {
      embedding += count;
    }
  }
  return { total, introduced, embedding };
}
