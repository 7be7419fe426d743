/**
 * Plans to fold an adapter, LoRA or BitFit into one folder that stands by itself.
 *
 * Prefixes and aggregator are written beside the backbone. With one stream LoRA is added to the weights
 * it belongs to and BitFit to their biases, piece by piece while they are written, so that the result is
 * a plain model. With several streams each has its own, and no weight could hold them all.
 *
 *   W + s B A     s = 2, or as PEFT has it; W [out, in], B [1, out, r], A [1, r, in]
 *   b + c         b [out] or absent, c [1, out]
 *
 * Sums are taken in double precision and rounded once, to the stored type of W.
 */
import { ELEMENT_BYTES, fromF32, type WeightType } from "../base/dtype.ts";
import { DataError } from "../base/errors.ts";
import type { JsonObject } from "../base/files.ts";
import { hasHeadNorms, type ModelConfig } from "../model/config.ts";
import { elementCount, type ParameterSpec, parameterSpecs } from "../model/parameters.ts";
import { LORA_SCALE } from "../model/transforms.ts";
import { configToJson } from "../checkpoint/config.ts";
import type { Checkpoint, StoredTensor } from "../checkpoint/open.ts";
import { valuesOf } from "../checkpoint/read.ts";
import { type ByteGenerator, castTensor, type OutputTensor } from "../checkpoint/write.ts";

/** Content of a folder that is to be written. */
export interface MergedModel {
  /** Config of the result; for an adapter, together with its backbone. */
  readonly config: ModelConfig;
  readonly configJson: JsonObject;
  /** Tensors written, in file order. */
  readonly tensors: readonly OutputTensor[];
  /** True if weights of the backbone differ from those of the source. */
  readonly folds: boolean;
}

/** Works out the merged model of an opened checkpoint, with its adapter if it has one. */
export function mergeModel(
  options: {
    readonly modelingCode?: boolean;
    readonly model: string;
    readonly dtype?: WeightType | undefined;
  },
  source: Checkpoint,
): MergedModel {
  refuseWhatCannotFold(source);
  const { loraRank, bitfit } = source.config;
  const { dtype = source.config.dtype } = options;
  const config = { ...mergedConfig(source.config), dtype };
  return {
    config,
    configJson: mergedJson(config, source, options.modelingCode),
    tensors: parameterSpecs(config)
      .map((spec) => castTensor(mergedTensor(spec, source), options.dtype)),
    folds: loraRank > 0 || bitfit || options.dtype !== undefined,
  };
}

function refuseWhatCannotFold({ config, directory, adapter }: Checkpoint): void {
  const { streams, loraRank, bitfit, family } = config;
  const name = adapter?.directory ?? directory;
  const kind = [...(loraRank > 0 ? ["LoRA"] : []), ...(bitfit ? ["BitFit"] : [])].join(" and ");
  if (streams > 1 && kind !== "") {
    throw new DataError(
      `cannot merge "${name}": its ${streams} streams have ${kind} parameters of their own, which ` +
        "one set of weights cannot hold",
      { hints: ["run it as it is, with `--model` and `--adapter`; prefixes alone can be merged"] },
    );
  }
  if (bitfit && hasHeadNorms({ family })) {
    const label = family === "qwen3" ? "Qwen3" : "Qwen3.5";
    throw new DataError(
      `cannot merge "${name}": BitFit has biases in the MLP, for which ${label} has no place`,
      { hints: ["run it as it is, with `--model` and `--adapter`"] },
    );
  }
}

/** BitFit needs a bias at every projection, which the Llama block has and the Qwen2 block has not. */
function mergedConfig({ lora: _, ...source }: ModelConfig): ModelConfig {
  const folded = { ...source, loraRank: 0, bitfit: false };
  if (!source.bitfit) return folded;
  return { ...folded, family: "llama", attentionBias: true, outputBias: true, mlpBias: true };
}

/** Fields of Qwen2 that mean nothing to Llama or would be taken for something else. */
const QWEN_FIELDS = ["use_sliding_window", "sliding_window", "max_window_layers", "layer_types"];

function mergedJson(
  config: ModelConfig,
  source: Checkpoint,
  modelingCode: boolean | undefined,
): JsonObject {
  const json = configToJson(config, source.configJson, { modelingCode });
  if (config.family !== "llama" || !source.config.bitfit) return json;
  for (const key of QWEN_FIELDS) delete json[key];
  return {
    ...json,
    // Sizes that the source may leave to the defaults of another class.
    vocab_size: config.vocabSize,
    hidden_size: config.hiddenSize,
    intermediate_size: config.intermediateSize,
    num_hidden_layers: config.numHiddenLayers,
    num_attention_heads: config.numAttentionHeads,
    num_key_value_heads: config.numKeyValueHeads,
    head_dim: config.headDim,
    rms_norm_eps: config.rmsNormEps,
    max_position_embeddings: config.maxPositionEmbeddings,
    tie_word_embeddings: config.tieWordEmbeddings,
    attention_bias: true,
    mlp_bias: true,
  };
}

function mergedTensor({ name, shape }: ParameterSpec, source: Checkpoint): OutputTensor {
  const at = name.replace(/\.(weight|bias)$/, "");
  const find = (which: string) => source.tensors.get(`${at}.${which}`);
  const stored = source.tensors.get(name);
  const low = find("lora_a"), high = find("lora_b");
  if (name.endsWith(".weight") && stored && low && high) {
    return { ...stored, source: foldedMatrix(stored, low, high, source.config.lora?.scale) };
  }
  const own = name.endsWith(".bias") ? find("stream_bias") : undefined;
  if (own) {
    const { dtype } = source.tensors.get(`${at}.weight`)!;
    const byteLength = elementCount(shape) * ELEMENT_BYTES[dtype];
    return { name, dtype, shape, byteLength, source: foldedBias(stored, own, dtype) };
  }
  return { ...stored!, source: stored! };
}

/** A matrix with its low-rank update. Nothing is read before the first piece is asked for. */
function foldedMatrix(
  matrix: StoredTensor,
  lowRank: StoredTensor,
  highRank: StoredTensor,
  scale = LORA_SCALE,
): ByteGenerator {
  const [, width] = matrix.shape as [number, number];
  const rank = lowRank.shape[1]!;
  const size = ELEMENT_BYTES[matrix.dtype];
  let factors: { a: Float32Array; b: Float32Array } | undefined;
  return (start, length) => {
    factors ??= { a: valuesOf(lowRank), b: valuesOf(highRank) };
    const { a, b } = factors;
    const values = valuesOf(matrix, start, length);
    const first = start / size;
    for (let i = 0; i < values.length; i++) {
      const row = Math.floor((first + i) / width), column = (first + i) % width;
      let update = 0;
      for (let k = 0; k < rank; k++) update += b[row * rank + k]! * a[k * width + column]!;
      values[i] = values[i]! + scale * update;
    }
    return fromF32(values, matrix.dtype);
  };
}

/** A bias with that of the stream added. Nothing is read before it is asked for. */
function foldedBias(
  bias: StoredTensor | undefined,
  own: StoredTensor,
  dtype: WeightType,
): ByteGenerator {
  const size = ELEMENT_BYTES[dtype];
  return (start, length) => {
    const added = valuesOf(own), present = bias && valuesOf(bias);
    const values = added.map((value, i) => value + (present?.[i] ?? 0));
    return fromF32(values.slice(start / size, (start + length) / size), dtype);
  };
}
