/**
 * What a Qwen2, Qwen2.5, Qwen3 or ParScale model is made of: its sizes and constants, nothing else.
 *
 * Comes in through `core/checkpoint/config.ts`, the only file that knows the names on disk. Qwen2.5
 * is Qwen2 with other numbers, so it has no family of its own. With one stream there is no prefix
 * and no aggregator, whatever `prefixTokens` says.
 */
import type { WeightType } from "../widen.ts";

/** Which block the checkpoint uses: Qwen2 has biases on q, k, v; Qwen3 norms each head of q and k. */
export type Family = "qwen2" | "qwen3";

export type { WeightType } from "../widen.ts";

/** Sizes and constants of a model; see `specs` of the Hugging Face configuration for each field. */
export interface ModelConfig {
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
  readonly rmsNormEps: number;
  readonly ropeTheta: number;
  readonly maxPositionEmbeddings: number;
  readonly tieWordEmbeddings: boolean;
  /** Bias on q, k and v projections (always in Qwen2, by flag in Qwen3). */
  readonly attentionBias: boolean;
  /** Bias on the output projection (only in Qwen3 with `attention_bias`). */
  readonly outputBias: boolean;
  /** Element type of the stored weights. */
  readonly dtype: WeightType;
  /** Tokens that end a text; may be empty. */
  readonly eosTokenIds: readonly number[];
  /** P: streams; 1 means a plain model. */
  readonly streams: number;
  /** M: prefix tokens per stream and layer. */
  readonly prefixTokens: number;
  /** ε of the aggregation weights: w ← w (1 − ε) + ε / P. */
  readonly smoothing: number;
}
