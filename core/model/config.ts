/**
 * Sizes and constants of a Qwen2, Qwen2.5, Qwen3, Qwen3.5, Llama or ParScale model.
 *
 * Parsed by `core/checkpoint/config.ts`, the only file that knows the names on disk. Qwen2.5 is Qwen2
 * with other numbers, so it has no family of its own. `prefixTokens` counts only where `prefix` is set.
 */
import type { WeightType } from "../base/dtype.ts";

/**
 * Block type of a checkpoint: Qwen2 has biases on q, k, v; Qwen3 norms each head of q and k; Qwen3.5 also
 * gates attention and has delta nets; Llama, which SmolLM and SmolLM2 are too, has none of these.
 */
export type Family = "qwen2" | "qwen3" | "qwen3_5" | "llama";

export type { WeightType } from "../base/dtype.ts";

/**
 * Aggregation of P streams (appendix A of the paper): a sum with weights that an MLP computes at every
 * token, or a learned linear map of the concatenated streams, [P·C → C].
 */
export type Aggregator = "dynamic" | "linear";

/** Scaling of the rotary embedding to contexts longer than that of pre-training. */
export type RopeScaling =
  | {
    readonly kind: "llama3";
    readonly factor: number;
    readonly lowFrequencyFactor: number;
    readonly highFrequencyFactor: number;
    /** Tokens of the context that the model was pre-trained with. */
    readonly originalContext: number;
  }
  | {
    readonly kind: "yarn";
    readonly factor: number;
    /** Multiplies cosines and sines, so attention scores by its square. */
    readonly attentionFactor: number;
    readonly betaFast: number;
    readonly betaSlow: number;
    /** True if the blended range is rounded out to whole dimensions. */
    readonly truncate: boolean;
    readonly originalContext: number;
  };

/** The factor that YaRN recommends for cosines and sines: 0.1 m ln(s) + 1 for s above 1. */
export function yarnAttentionFactor(factor: number, mscale: number): number {
  return factor <= 1 ? 1 : 0.1 * mscale * Math.log(factor) + 1;
}

/** Layers that are gated delta nets, and their sizes; the other layers are softmax attention. */
export interface DeltaConfig {
  /** For each layer, true if it is a delta net. */
  readonly layers: readonly boolean[];
  /** Heads of queries and keys. */
  readonly keyHeads: number;
  /** H, heads of values and states; a multiple of `keyHeads` */
  readonly valueHeads: number;
  /** Dk */
  readonly keyDim: number;
  /** Dv */
  readonly valueDim: number;
  /** K: tokens that the convolution sees. */
  readonly kernel: number;
}

/** W: channels of the convolution of a delta net, its queries, keys and values. */
export function convWidth({ keyHeads, valueHeads, keyDim, valueDim }: DeltaConfig): number {
  return 2 * keyHeads * keyDim + valueHeads * valueDim;
}

/** The layers of softmax attention. */
export function attentionLayers(config: Pick<ModelConfig, "numHiddenLayers" | "delta">): number[] {
  return Array.from({ length: config.numHiddenLayers }, (_, layer) => layer)
    .filter((layer) => !isDeltaNet(config, layer));
}

/** Returns whether a layer is a delta net. */
export function isDeltaNet({ delta }: Pick<ModelConfig, "delta">, layer: number): boolean {
  return delta?.layers[layer] === true;
}

/** Sizes and constants of a model; fields as in Hugging Face's config.json. */
export interface ModelConfig {
  /** Type of its blocks. */
  readonly family: Family;
  /** V */
  readonly vocabSize: number;
  /** C */
  readonly hiddenSize: number;
  /** F */
  readonly intermediateSize: number;
  /** L */
  readonly numHiddenLayers: number;
  /** H */
  readonly numAttentionHeads: number;
  /** K; divides H */
  readonly numKeyValueHeads: number;
  /** D; even, not always C / H */
  readonly headDim: number;
  /** Elements of each head that rotate, the first ones; all D where it is absent. */
  readonly rotaryDim?: number;
  /** Absent where every layer is softmax attention. */
  readonly delta?: DeltaConfig;
  /** ε of every norm. */
  readonly rmsNormEps: number;
  /** θ of the rotary position embedding. */
  readonly ropeTheta: number;
  /** Absent where frequencies are used as they are. */
  readonly ropeScaling?: RopeScaling;
  /** Longest sequence, in tokens. */
  readonly maxPositionEmbeddings: number;
  /** True if the output matrix is the embedding table. */
  readonly tieWordEmbeddings: boolean;
  /** Bias on q, k and v projections (always in Qwen2, by `attention_bias` in Qwen3 and Llama). */
  readonly attentionBias: boolean;
  /** Bias on the output projection (in Qwen3 and Llama with `attention_bias`). */
  readonly outputBias: boolean;
  /** Bias on the three projections of the MLP (only in Llama, by `mlp_bias`). */
  readonly mlpBias: boolean;
  /** Element type of the stored weights. */
  readonly dtype: WeightType;
  /** Tokens that end a text; may be empty. */
  readonly eosTokenIds: readonly number[];
  /** P: streams; with 1 there is no aggregation. */
  readonly streams: number;
  /**
   * True if each stream has a prefix of its own: always so in the paper's models, which have more than
   * one stream, and never in a plain model. The ablations of the paper's appendix differ.
   */
  readonly prefix: boolean;
  /** Rank of the low-rank update that each stream adds to every projection; 0 means none. */
  readonly loraRank: number;
  /** Of an adapter of PEFT, the factor of the update and the projections that have one; else 2, and all. */
  readonly lora?: { readonly scale: number; readonly targets: readonly string[] } | undefined;
  /** True if each stream adds a bias of its own to every projection. */
  readonly bitfit: boolean;
  /** M: prefix tokens per stream and layer. */
  readonly prefixTokens: number;
  /** ε of the aggregation weights: w ← w (1 − ε) + ε / P. */
  readonly smoothing: number;
  /** Counts only with more than one stream. */
  readonly aggregator: Aggregator;
}

/** Additions of ParScale to a plain model: the fields that an adapter decides. */
export type StreamConfig = Pick<
  ModelConfig,
  | "streams"
  | "prefix"
  | "prefixTokens"
  | "loraRank"
  | "lora"
  | "bitfit"
  | "smoothing"
  | "aggregator"
>;

/** Returns whether the projection of a name has a low-rank update. */
export function hasLora(
  { loraRank, lora }: Pick<ModelConfig, "loraRank" | "lora">,
  name: string,
): boolean {
  return loraRank > 0 && (lora?.targets.some((target) => name.endsWith(target)) ?? true);
}

/** The plain model under a ParScale one. */
export function plainConfig({ lora: _, ...config }: ModelConfig): ModelConfig {
  const none = { streams: 1, prefix: false, loraRank: 0, bitfit: false } as const;
  return { ...config, ...none, aggregator: "dynamic" };
}

/** Returns whether each head of q and k is normed. */
export function hasHeadNorms({ family }: Pick<ModelConfig, "family">): boolean {
  return family === "qwen3" || family === "qwen3_5";
}

/** Heads of the matrix of queries: in Qwen3.5 each has a gate after it. */
export function queryHeads(
  { family, numAttentionHeads: H }: Pick<ModelConfig, "family" | "numAttentionHeads">,
): number {
  return family === "qwen3_5" ? 2 * H : H;
}

/** Returns whether each token has a weight for every stream; a linear map has none. */
export function hasStreamWeights({ streams, aggregator }: StreamConfig): boolean {
  return streams === 1 || aggregator === "dynamic";
}

/** Returns whether a model has any introduced tensors. */
export function isParScale({ streams, prefix, loraRank, bitfit }: StreamConfig): boolean {
  return streams > 1 || prefix || loraRank > 0 || bitfit;
}

/** Linear layers of a block, below `model.layers.<i>.`, with their sizes [out, in]. */
export function projections(
  config: ModelConfig,
  layer: number,
): ReadonlyMap<string, readonly [number, number]> {
  const { hiddenSize: C, intermediateSize: F } = config;
  const mixing = isDeltaNet(config, layer)
    ? deltaProjections(config)
    : attentionProjections(config);
  return new Map<string, readonly [number, number]>([
    ...mixing,
    ["mlp.gate_proj", [F, C]],
    ["mlp.up_proj", [F, C]],
    ["mlp.down_proj", [C, F]],
  ]);
}

type Projection = readonly [name: string, sizes: readonly [number, number]];

function attentionProjections(config: ModelConfig): Projection[] {
  const { hiddenSize: C, headDim: D } = config;
  const { numAttentionHeads: H, numKeyValueHeads: K } = config;
  return [
    ["self_attn.q_proj", [queryHeads(config) * D, C]],
    ["self_attn.k_proj", [K * D, C]],
    ["self_attn.v_proj", [K * D, C]],
    ["self_attn.o_proj", [C, H * D]],
  ];
}

function deltaProjections({ hiddenSize: C, delta }: ModelConfig): Projection[] {
  const { valueHeads: H, valueDim: Dv } = delta!;
  return [
    ["linear_attn.in_proj_qkv", [convWidth(delta!), C]],
    ["linear_attn.in_proj_z", [H * Dv, C]],
    ["linear_attn.in_proj_b", [H, C]],
    ["linear_attn.in_proj_a", [H, C]],
    ["linear_attn.out_proj", [C, H * Dv]],
  ];
}
