/**
 * `config.json` to `ModelConfig` and back: the only place that knows the names on disk.
 *
 * A converted folder keeps every field of its source. A field that is missing has the default of the
 * official ParScale class, which is not always the value used in the paper: smoothing falls back to
 * 0.01, not to 0.1.
 */
import { DataError } from "../base/errors.ts";
import {
  type Aggregator,
  type Family,
  hasHeadNorms,
  hasStreamWeights,
  isParScale,
  type ModelConfig,
  type StreamConfig,
  type WeightType,
} from "../model/config.ts";
import { type JsonObject, show } from "../base/files.ts";
import { readDelta, textFields } from "./delta_config.ts";
import { Fields } from "./fields.ts";
import { isForeignQuantization, QUANTIZATION_KEY } from "./quantization.ts";
import { readRope, ropeToJson } from "./rope_config.ts";

const TORCH_DTYPE: Readonly<Record<WeightType, string>> = {
  f32: "float32",
  bf16: "bfloat16",
  f16: "float16",
};

/** Families as classes of transformers begin with them. */
export const ARCHITECTURE: Readonly<Record<Family, string>> = {
  qwen2: "Qwen2",
  qwen3: "Qwen3",
  qwen3_5: "Qwen3_5",
  llama: "Llama",
};

/** A model of Qwen3.5 for text alone; `qwen3_5` is for images too, and its text model is read. */
const TEXT_MODEL = "qwen3_5_text";

/** Values of `model_type`: a family, or its ParScale models. */
const MODEL_TYPES = Object.keys(ARCHITECTURE).flatMap((family) => [
  family,
  ...(family === "qwen3_5" ? [TEXT_MODEL] : []),
  `${family}_parscale`,
]);

/** Sizes that a file may leave out, as the classes of the families have them. */
const QWEN_SIZES = { vocab: 151936, intermediate: 22016, context: 32768, layers: 32, heads: 32 };
const SIZES: Readonly<Record<Family, typeof QWEN_SIZES & { kvHeads?: number }>> = {
  qwen2: QWEN_SIZES,
  qwen3: QWEN_SIZES,
  qwen3_5: { ...QWEN_SIZES, vocab: 248320, intermediate: 12288, heads: 16, kvHeads: 4 },
  llama: { ...QWEN_SIZES, vocab: 32000, intermediate: 11008, context: 2048 },
};

/** In an adapter's config: the hash of the backbone it was made for. */
export const BACKBONE_KEY = "parscale_backbone_sha256";

/** In an adapter's config: path or name on the hub of its backbone. */
export const BASE_KEY = "base_model_name_or_path";

/** Keys that a conversion sets anew or leaves out. */
const CONVERSION_KEYS = [
  "auto_map",
  "parscale_n",
  "parscale_n_tokens",
  "parscale_attn_smooth",
  "parscale_transforms",
  "parscale_lora_rank",
  "parscale_lora",
  "parscale_aggregation",
  BACKBONE_KEY,
  BASE_KEY,
  QUANTIZATION_KEY,
];

/** Keys about quantized weights: of transformers, MLX and the first compressed-tensors. */
const QUANTIZATION_KEYS = [QUANTIZATION_KEY, "quantization", "compression_config"];

/** File with the model in Python, for transformers. */
export const MODELING_FILE = "modeling_parscale.py";

/** Input transformations of streams; anything but prefixes is our extension, for ablations. */
const TRANSFORMS: readonly unknown[] = ["prefix", "lora", "bitfit"];

/** Limits that keep a damaged file from asking for absurd work. */
const MAX_LAYERS = 4096;
const MAX_STREAMS = 1024;

/** The norm's epsilon; 1e-6 and 1e-5 are in use. At 0 a row of zeros would have no norm. */
const EPSILON = { low: 1e-12, high: 0.1 };

/** Checks a parsed `config.json`; `path` names the file in messages. */
export function parseConfig(stated: JsonObject, path: string): ModelConfig {
  const modelType = readModelType(new Fields(stated, path));
  const family = modelType.replace(/_(parscale|text)$/, "") as Family;
  const isHybrid = family === "qwen3_5";
  const json = isHybrid ? textFields(stated) : stated;
  const fields = new Fields(json, path);
  refuseUnsupported(fields, isHybrid);

  const sizes = SIZES[family];
  const hiddenSize = fields.integer("hidden_size", 4096);
  const numAttentionHeads = fields.integer("num_attention_heads", sizes.heads);
  const sameHeads = json.num_key_value_heads === null ||
    family === "llama" && json.num_key_value_heads === undefined;
  const numKeyValueHeads = sameHeads
    ? numAttentionHeads
    : fields.integer("num_key_value_heads", sizes.kvHeads ?? 32);
  if (numAttentionHeads % numKeyValueHeads !== 0) {
    throw fields.error("num_key_value_heads", `a divisor of the ${numAttentionHeads} query heads`);
  }
  const attentionBias = family !== "qwen2" && fields.boolean("attention_bias", false);
  const numHiddenLayers = fields.integer("num_hidden_layers", sizes.layers, 1, MAX_LAYERS);
  const headDim = readHeadDim(fields, family, hiddenSize, numAttentionHeads);
  return {
    family,
    vocabSize: fields.integer("vocab_size", sizes.vocab),
    hiddenSize,
    intermediateSize: fields.integer("intermediate_size", sizes.intermediate),
    numHiddenLayers,
    numAttentionHeads,
    numKeyValueHeads,
    headDim,
    ...(isHybrid && readDelta(fields, numHiddenLayers, headDim)),
    rmsNormEps: fields.within("rms_norm_eps", EPSILON, 1e-6),
    ...readRope(fields, fields.integer("max_position_embeddings", sizes.context), {
      partly: isHybrid,
    }),
    tieWordEmbeddings: fields.boolean("tie_word_embeddings", false),
    attentionBias: family === "qwen2" || attentionBias,
    outputBias: attentionBias,
    mlpBias: family === "llama" && fields.boolean("mlp_bias", false),
    dtype: readDtype(fields),
    eosTokenIds: parseTokenIds(json.eos_token_id, "eos_token_id", path),
    ...readStreams(fields, modelType),
  };
}

function readModelType(fields: Fields): string {
  const modelType = fields.json.model_type;
  if (typeof modelType === "string" && MODEL_TYPES.includes(modelType)) return modelType;
  const hints = typeof modelType === "string" && /moe|next/.test(modelType)
    ? [
      "mixture-of-experts models are not supported; use a dense Qwen2, Qwen2.5, Qwen3, Qwen3.5 or " +
      "Llama model",
    ]
    : ["Qwen2.5 has model_type qwen2; Llama 3, SmolLM and SmolLM2 have model_type llama"];
  throw fields.error("model_type", `one of ${MODEL_TYPES.join(", ")}`, hints);
}

/** Refuses by name whatever would silently be computed wrongly. */
function refuseUnsupported(fields: Fields, isHybrid: boolean): void {
  const { json } = fields;
  if (fields.boolean("use_sliding_window", false)) {
    throw fields.refusal("sliding-window attention is not supported", "use_sliding_window", [
      "set use_sliding_window to false if the model was trained with full attention",
    ]);
  }
  const types = json.layer_types ?? [];
  const isFull = Array.isArray(types) && types.every((type) => type === "full_attention");
  if (!isFull && !isHybrid) {
    throw fields.error("layer_types", '"full_attention" in every layer');
  }
  for (const key of ["num_experts", "num_local_experts"]) {
    if ((json[key] ?? 0) !== 0) {
      throw fields.refusal("mixture-of-experts models are not supported", key);
    }
  }
  for (const key of QUANTIZATION_KEYS) {
    if (!isForeignQuantization(json[key])) continue;
    throw fields.refusal("quantized weights are not supported", key, [
      "use the checkpoint this one was quantized from",
    ]);
  }
  if ((json.hidden_act ?? "silu") !== "silu") throw fields.error("hidden_act", '"silu"');
}

/** Qwen3 fixes the head size at 128, Qwen3.5 at 256; the others divide the width by the heads. */
function readHeadDim(fields: Fields, family: Family, hiddenSize: number, heads: number): number {
  const given = fields.json.head_dim !== null && fields.json.head_dim !== undefined;
  if (!given && !hasHeadNorms({ family })) {
    if (hiddenSize % heads !== 0) {
      throw fields.error("hidden_size", `a multiple of the ${heads} query heads without head_dim`);
    }
    if (hiddenSize / heads % 2 !== 0) {
      throw fields.refusal(`the head size must be even, not ${hiddenSize / heads}`, "hidden_size");
    }
    return hiddenSize / heads;
  }
  const headDim = fields.integer("head_dim", family === "qwen3" ? 128 : 256);
  if (headDim % 2 !== 0) throw fields.error("head_dim", "an even number, as rotary pairs need");
  return headDim;
}

function readDtype(fields: Fields): WeightType {
  const key = fields.json.dtype === undefined ? "torch_dtype" : "dtype";
  const name = fields.json[key] ?? "float32";
  if (name === "auto") return "f32"; // says nothing: tensors have their own types
  for (const type of Object.keys(TORCH_DTYPE) as WeightType[]) {
    if (name === TORCH_DTYPE[type] || name === `torch.${TORCH_DTYPE[type]}`) return type;
  }
  throw fields.error(key, `one of ${Object.values(TORCH_DTYPE).join(", ")}`);
}

function readStreams(fields: Fields, modelType: string): StreamConfig {
  const streams = fields.integer("parscale_n", 1, 1, MAX_STREAMS);
  if (streams > 1 && !modelType.endsWith("_parscale")) {
    throw fields.error("parscale_n", `1 in a model of type ${show(modelType)}`, [
      `set model_type to ${show(modelType + "_parscale")} if the folder holds a ParScale model`,
    ]);
  }
  const transforms = readTransforms(fields, streams);
  const prefix = transforms.has("prefix");
  return {
    streams,
    prefix,
    prefixTokens: fields.integer("parscale_n_tokens", 48, prefix ? 1 : 0),
    loraRank: transforms.has("lora") ? fields.integer("parscale_lora_rank", 8) : 0,
    ...("parscale_lora" in fields.json && { lora: readLora(fields) }),
    bitfit: transforms.has("bitfit"),
    smoothing: fields.within("parscale_attn_smooth", { low: 0, high: 1 }, 0.01),
    aggregator: readAggregator(fields),
  };
}

/** Reads the input transformations. In the official format several streams have prefixes. */
function readTransforms(fields: Fields, streams: number): ReadonlySet<unknown> {
  const usual = streams > 1 ? ["prefix"] : [];
  const value = fields.json.parscale_transforms ?? usual;
  const known = Array.isArray(value) && value.every((name) => TRANSFORMS.includes(name));
  // An empty list makes all streams equal, a control for experiments; it takes `parscale_n_tokens` 0 too.
  const mayBeEmpty = streams === 1 || fields.json.parscale_n_tokens === 0;
  if (known && (value.length > 0 || mayBeEmpty)) return new Set(value);
  throw fields.error("parscale_transforms", `a list of ${TRANSFORMS.join(", ")}`);
}

/** Reads the factor and targets of an update that began as an adapter of PEFT. */
function readLora(fields: Fields): ModelConfig["lora"] {
  const { scale, targets } = (fields.json.parscale_lora ?? {}) as NonNullable<ModelConfig["lora"]>;
  const isList = Array.isArray(targets) && targets.every((name) => typeof name === "string");
  if (Number.isFinite(scale) && isList) return { scale, targets };
  throw fields.error("parscale_lora", "an object with scale and targets");
}

/** Returns the kind of aggregation. The official format has no such field: it is always dynamic. */
function readAggregator(fields: Fields): Aggregator {
  const value = fields.json.parscale_aggregation ?? "dynamic";
  if (value === "dynamic" || value === "linear") return value;
  throw fields.error("parscale_aggregation", '"dynamic" or "linear"');
}

/** The hash of the backbone an adapter was made for; older adapters do not tell. */
export function parseBackboneHash(json: JsonObject, path: string): string | undefined {
  return (json[BACKBONE_KEY] ?? null) === null
    ? undefined
    : new Fields(json, path).sha256(BACKBONE_KEY);
}

/** One id, a list of ids, or null for none. */
export function parseTokenIds(value: unknown, key: string, path: string): number[] {
  const ids = value === undefined || value === null ? [] : Array.isArray(value) ? value : [value];
  // A negative id stands for none.
  if (ids.every(Number.isSafeInteger)) return ids.filter((id) => id >= 0);
  throw new DataError(
    `${key} in "${path}" must be a token id or a list of them, not ${show(value)}`,
  );
}

/**
 * The `config.json` of a folder that holds `config`, keeping every other field of `source`.
 *
 * Introduced tensors give a ParScale config, a model without gives back the plain one. Without
 * `modelingCode` the folder has no Python file that `auto_map` could name.
 */
export function configToJson(
  config: ModelConfig,
  source: JsonObject,
  { modelingCode = true }: { modelingCode?: boolean | undefined } = {},
): JsonObject {
  const isHybrid = config.family === "qwen3_5";
  const json: JsonObject = isHybrid ? textFields({ ...source }) : { ...source };
  if (!isHybrid) useOldNames(json, config);
  for (const key of CONVERSION_KEYS) delete json[key];
  const parscale = isParScale(config);
  const suffix = parscale ? "ParScale" : "";
  const architecture = `${ARCHITECTURE[config.family]}${suffix}ForCausalLM`;
  json.architectures = [architecture];
  // A file with an output matrix of its own may come with a config that ties it.
  if (json.tie_word_embeddings === true) json.tie_word_embeddings = config.tieWordEmbeddings;
  const plain = isHybrid ? TEXT_MODEL : config.family;
  json.model_type = parscale ? `${config.family}_parscale` : plain;
  if (!parscale) return json;

  const { streams, prefix, loraRank, bitfit } = config;
  if (!isOfficial(config)) {
    const used = { prefix, lora: loraRank > 0, bitfit };
    json.parscale_transforms = Object.entries(used).flatMap(([name, on]) => on ? [name] : []);
    if (loraRank > 0) json.parscale_lora_rank = loraRank;
    if (loraRank > 0 && config.lora) json.parscale_lora = config.lora;
  }
  if (!hasStreamWeights(config)) json.parscale_aggregation = config.aggregator;
  if (modelingCode && opensInTransformers(config)) {
    const module = MODELING_FILE.replace(".py", "");
    json.auto_map = {
      AutoConfig: `${module}.${ARCHITECTURE[config.family]}ParScaleConfig`,
      AutoModelForCausalLM: `${module}.${architecture}`,
    };
  }
  json.parscale_n = streams;
  json.parscale_n_tokens = config.prefixTokens;
  json.parscale_attn_smooth = config.smoothing;
  return json;
}

/** Returns whether our Python file runs the model: a backbone but Qwen3.5, with prefixes alone. */
export function opensInTransformers(config: ModelConfig): boolean {
  const { family, prefix, loraRank, bitfit } = config;
  return family !== "qwen3_5" && prefix && loraRank === 0 && !bitfit;
}

/** Returns whether the format is that of the authors: Qwen2, prefixes alone, dynamic aggregation. */
function isOfficial(config: ModelConfig): boolean {
  const { family, streams, prefix, loraRank, bitfit } = config;
  return family === "qwen2" && streams > 1 && prefix && loraRank === 0 && !bitfit &&
    hasStreamWeights(config);
}

/** Writes the spellings that both old and new readers understand. */
function useOldNames(json: JsonObject, config: ModelConfig): void {
  if (json.rope_parameters !== undefined) {
    delete json.rope_parameters;
    Object.assign(json, ropeToJson(config));
  }
  delete json.dtype;
  json.torch_dtype = TORCH_DTYPE[config.dtype];
}
