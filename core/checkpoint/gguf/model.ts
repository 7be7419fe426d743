/**
 * The model in a GGUF file: its keys as the fields of a `config.json`, its tensors under the names of
 * Hugging Face.
 *
 * Fields are checked by `parseConfig` like those of a folder. Rows of q and k of Llama, which ggml
 * orders for its rotation of neighbouring pairs, are put back while they are read.
 */
import { DataError } from "../../base/errors.ts";
import { type JsonObject, openRegularFile, show } from "../../base/files.ts";
import { toF32 } from "../../base/dtype.ts";
import { type Encoding, readsFrom } from "../../quant/stored.ts";
import type { Family } from "../../model/config.ts";
import { ropeFrequencies } from "../../model/rope_frequencies.ts";
import { ARCHITECTURE } from "../config.ts";
import { Fields } from "../fields.ts";
import { readRope } from "../rope_config.ts";
import type { FoundTensor } from "../weight_files.ts";
import type { GgufHead, GgufTensor } from "./head.ts";
import type { Metadata } from "./metadata.ts";

/** Names outside of layers. */
const TENSORS: Readonly<Record<string, string>> = {
  "token_embd.weight": "model.embed_tokens.weight",
  "output.weight": "lm_head.weight",
  "output_norm.weight": "model.norm.weight",
};

/** Names within a layer. */
const PARTS: Readonly<Record<string, string>> = {
  attn_norm: "input_layernorm",
  ffn_norm: "post_attention_layernorm",
  attn_q: "self_attn.q_proj",
  attn_k: "self_attn.k_proj",
  attn_v: "self_attn.v_proj",
  attn_output: "self_attn.o_proj",
  attn_q_norm: "self_attn.q_norm",
  attn_k_norm: "self_attn.k_norm",
  ffn_gate: "mlp.gate_proj",
  ffn_up: "mlp.up_proj",
  ffn_down: "mlp.down_proj",
};

const EMBEDDING = "token_embd.weight", ROPE_FACTORS = "rope_freqs.weight";

/** Keys of numbers that change the computation unless they are 0. */
const UNSUPPORTED: Readonly<Record<string, string>> = {
  expert_count: "mixture-of-experts models are",
  "attention.sliding_window": "sliding-window attention is",
  "attention.scale": "a scale of attention is",
  logit_scale: "a scale of logits is",
};

/** Scalings of Llama 3.1 and later, which GGUF records by their effect alone. */
const LLAMA3 = [8, 32].map((factor) => ({
  rope_type: "llama3",
  factor,
  low_freq_factor: 1,
  high_freq_factor: 4,
  original_max_position_embeddings: 8192,
}));

/** The fields of `config.json` that the metadata and the tensors state. */
export function configOf({ metadata, tensors }: GgufHead): JsonObject {
  const { path } = metadata;
  const kind = metadata.text("general.type") ?? "model";
  if (kind !== "model") {
    throw new DataError(`"${path}" holds no model: general.type is ${show(kind)}`, {
      hints: ["pass the GGUF file of the language model itself"],
    });
  }
  const family = metadata.text("general.architecture") ?? "";
  if (!Object.hasOwn(ARCHITECTURE, family)) {
    throw new DataError(
      `"${path}" has architecture ${show(family)}, expected llama, qwen2 or qwen3`,
      { hints: ["Qwen2.5 is qwen2; Llama, SmolLM and SmolLM2 are llama"] },
    );
  }
  for (const [key, what] of Object.entries(UNSUPPORTED)) {
    if (metadata.number(`${family}.${key}`, 0) === 0) continue;
    throw new DataError(`"${path}" has ${family}.${key}: ${what} not supported`);
  }
  const number = (key: string, fallback?: number) => metadata.integer(`${family}.${key}`, fallback);
  const real = (key: string, fallback?: number) =>
    shortest(metadata.number(`${family}.${key}`, fallback));
  const table = tensors.get(EMBEDDING);
  if (!table) throw new DataError(`"${path}" has no tensor ${EMBEDDING}`);
  const heads = number("attention.head_count");
  const width = number("embedding_length");
  const headDim = number("attention.key_length", width / heads);
  for (const key of ["attention.value_length", "rope.dimension_count"]) {
    if (number(key, headDim) === headDim) continue;
    throw metadata.error(`${family}.${key}`, `the head size, ${headDim}`);
  }
  const hasBias = (part: string) =>
    [...tensors.keys()].some((name) => name.endsWith(`.${part}.bias`));
  const theta = real("rope.freq_base", 10000);
  return {
    architectures: [`${ARCHITECTURE[family as Family]}ForCausalLM`],
    model_type: family,
    vocab_size: number("vocab_size", table.shape[0]),
    hidden_size: width,
    intermediate_size: number("feed_forward_length"),
    num_hidden_layers: number("block_count"),
    num_attention_heads: heads,
    num_key_value_heads: number("attention.head_count_kv", heads),
    head_dim: headDim,
    hidden_act: "silu",
    rms_norm_eps: real("attention.layer_norm_rms_epsilon"),
    rope_theta: theta,
    rope_scaling: scalingOf(metadata, family) ??
      factorsOf(tensors.get(ROPE_FACTORS), headDim, theta),
    max_position_embeddings: number("context_length"),
    tie_word_embeddings: !tensors.has("output.weight"),
    ...(family === "llama" ? {} : { use_sliding_window: false }),
    ...(family === "qwen2" ? {} : { attention_bias: hasBias("attn_q") }),
    ...(family === "llama" ? { mlp_bias: hasBias("ffn_up") } : {}),
  };
}

/** The shortest decimal that rounds to a number in f32, as 1e-05 for 9.999999747378752e-06. */
function shortest(value: number): number {
  for (let digits = 1; digits < 9; digits++) {
    const short = Number(value.toPrecision(digits));
    if (Math.fround(short) === Math.fround(value)) return short;
  }
  return value;
}

function scalingOf(metadata: Metadata, family: string): JsonObject | undefined {
  const key = `${family}.rope.scaling`;
  const old = metadata.number(`${family}.rope.scale_linear`, 1);
  const type = metadata.text(`${key}.type`) ?? (old === 1 ? "none" : "linear");
  if (type === "none") return undefined;
  for (const part of ["attn_factor", "yarn_attn_factor", "yarn_ext_factor"]) {
    if (metadata.number(`${key}.${part}`, 1) === 1) continue;
    throw metadata.error(`${key}.${part}`, "1, as other factors are not supported");
  }
  const original = metadata.optionalInteger(`${key}.original_context_length`);
  return {
    rope_type: type,
    factor: shortest(metadata.number(`${key}.factor`, old)),
    ...(type === "yarn" && {
      beta_fast: shortest(metadata.number(`${key}.yarn_beta_fast`, 32)),
      beta_slow: shortest(metadata.number(`${key}.yarn_beta_slow`, 1)),
    }),
    ...(original === undefined ? {} : { original_max_position_embeddings: original }),
  };
}

/** The scaling whose divisors of the frequencies a tensor holds; null where it holds ones. */
function factorsOf(
  tensor: GgufTensor | undefined,
  headDim: number,
  ropeTheta: number,
): JsonObject | null {
  if (!tensor) return null;
  const { path, offset, byteLength, type } = tensor;
  if (type === "F32" && byteLength === headDim * 2) {
    using file = openRegularFile(path);
    const factors = toF32(readsFrom(file, path)(offset, byteLength), "f32");
    if (factors.every((factor) => factor === 1)) return null;
    const plain = ropeFrequencies({ headDim, ropeTheta }).frequencies;
    for (const scaling of LLAMA3) {
      const { ropeScaling } = readRope(new Fields({ rope_scaling: scaling }, path), 0);
      const { frequencies } = ropeFrequencies({ headDim, ropeTheta, ropeScaling });
      const agrees = (factor: number, i: number) =>
        Math.abs(plain[i]! / frequencies[i]! / factor - 1) < 1e-4;
      if (factors.every(agrees)) return scaling;
    }
  }
  throw new DataError(
    `tensor ${ROPE_FACTORS} in "${path}" holds rotary factors that are not those of Llama 3`,
    { hints: ["use the Hugging Face folder of this model, which states its rope_scaling"] },
  );
}

/** Tensors by the names of Hugging Face; those that are not plain in order have an encoding. */
export function tensorsOf(
  { metadata, tensors }: GgufHead,
  { model_type: family, head_dim: headDim }: JsonObject,
): Map<string, FoundTensor> {
  const found = new Map<string, FoundTensor>();
  for (const tensor of tensors.values()) {
    if (tensor.name === ROPE_FACTORS) continue;
    const name = nameOf(tensor.name);
    if (name === undefined) {
      throw new DataError(
        `"${metadata.path}" has tensor ${show(tensor.name)}, which no ${family} model has`,
        { hints: ["use the Hugging Face folder of this model"] },
      );
    }
    const permuted = family === "llama" && /\.[qk]_proj\./.test(name);
    found.set(name, foundTensor(name, tensor, permuted ? headDim as number : undefined));
  }
  return found;
}

function nameOf(name: string): string | undefined {
  if (Object.hasOwn(TENSORS, name)) return TENSORS[name];
  const [, layer, part, kind] = /^blk\.(\d+)\.(\w+)\.(weight|bias)$/.exec(name) ?? [];
  if (part === undefined || !Object.hasOwn(PARTS, part)) return undefined;
  return `model.layers.${layer}.${PARTS[part]}.${kind}`;
}

function foundTensor(
  name: string,
  { type, shape, path, offset, byteLength }: GgufTensor,
  headDim: number | undefined,
): FoundTensor {
  const isPlain = type === "F32" || type === "F16" || type === "BF16";
  const at = { name, shape, path, offset };
  if (isPlain && headDim === undefined) return { ...at, dtype: type, byteLength };
  if (headDim !== undefined && shape[0]! % headDim !== 0) {
    throw new DataError(
      `tensor ${name} in "${path}" has ${shape[0]} rows, no multiple of the head size ${headDim}`,
    );
  }
  const encoding: Encoding = { type, byteLength, ...(headDim === undefined ? {} : { headDim }) };
  if (isPlain) return { ...at, dtype: type, byteLength, encoding };
  const elements = shape.reduce((product, size) => product * size, 1);
  return { ...at, dtype: "F32", byteLength: elements * 4, encoding };
}
