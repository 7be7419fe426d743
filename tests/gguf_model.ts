/** Small models as GGUF files, written independently of the reader, with the folders they are of. */
import { parseConfig } from "../core/checkpoint/config.ts";
import { openCheckpoint } from "../core/checkpoint/open.ts";
import { readTensor } from "../core/checkpoint/read.ts";
import { writeWeights } from "../core/checkpoint/write.ts";
import { writeJson } from "../core/storage/write_file.ts";
import { fromF32 } from "../core/base/dtype.ts";
import { joinBytes } from "../core/base/files.ts";
import { RandomStream } from "../core/base/random.ts";
import type { Family } from "../core/model/config.ts";
import { elementCount, parameterSpecs } from "../core/model/parameters.ts";
import { FIXTURES } from "./fixtures.ts";

/** Folder whose tokenizer the models have: 490 tokens of text, 22 added ones. */
export const TOKENIZER = `${FIXTURES}models/qwen2-p1-tied-f32`;

/** A metadata value and its type. */
export type Entry =
  | readonly ["u32" | "f32" | "bool" | "u16" | "i32" | "u64", number]
  | readonly ["string", string]
  | readonly ["strings", readonly string[]]
  | readonly ["i32s", readonly number[]];

/** A tensor to be written; dims as HF has them. */
export interface GgufTensor {
  readonly name: string;
  readonly shape: readonly number[];
  readonly type: number;
  readonly data: Uint8Array;
}

/** Content of a file. */
export interface GgufContent {
  readonly metadata: Readonly<Record<string, Entry>>;
  readonly tensors: readonly GgufTensor[];
}

const IDS = { u16: 2, u32: 4, i32: 5, f32: 6, bool: 7, string: 8, u64: 10 } as const;

/** Bytes of a file. */
export function ggufBytes(...content: Parameters<typeof ggufParts>): Uint8Array<ArrayBuffer> {
  return joinBytes(ggufParts(...content));
}

/** The bytes of a file in pieces, one behind the other. */
export function ggufParts(
  { metadata, tensors }: GgufContent,
  { version = 3, alignment = 32 } = {},
): Uint8Array[] {
  const parts: Uint8Array[] = [];
  let length = 0;
  const raw = (bytes: ArrayBufferView | Uint8Array) => {
    const part = new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    parts.push(part);
    length += part.length;
  };
  const u32 = (value: number) => raw(Uint32Array.of(value));
  const u64 = (value: number) => raw(BigUint64Array.of(BigInt(value)));
  const text = (value: string) => {
    const bytes = new TextEncoder().encode(value);
    u64(bytes.length);
    raw(bytes);
  };
  const pad = () => raw(new Uint8Array((alignment - length % alignment) % alignment));
  raw(new TextEncoder().encode("GGUF"));
  u32(version);
  u64(tensors.length);
  u64(Object.keys(metadata).length);
  for (const [key, [type, value]] of Object.entries(metadata)) {
    text(key);
    if (type === "strings" || type === "i32s") {
      u32(9);
      u32(type === "strings" ? 8 : 5);
      u64(value.length);
      if (type === "strings") value.forEach(text);
      else raw(Int32Array.from(value));
      continue;
    }
    u32(IDS[type]);
    if (type === "string") text(value);
    else if (type === "f32") raw(Float32Array.of(value));
    else if (type === "bool") raw(Uint8Array.of(value));
    else if (type === "u16") raw(Uint16Array.of(value));
    else if (type === "u64") u64(value);
    else raw(Int32Array.of(value));
  }
  let offset = 0;
  for (const { name, shape, type, data } of tensors) {
    text(name);
    u32(shape.length);
    shape.toReversed().forEach(u64);
    u32(type);
    u64(offset);
    offset += Math.ceil(data.length / alignment) * alignment;
  }
  pad();
  for (const { data } of tensors) {
    raw(data);
    pad();
  }
  return parts;
}

/** A scale, then codes, for each 32 values. */
function blocks(
  values: Float32Array,
  size: number,
  encode: (block: Float32Array, out: Uint8Array) => number,
): Uint8Array {
  const out = new Uint8Array(values.length / 32 * size);
  for (let i = 0; i < values.length / 32; i++) {
    const block = out.subarray(i * size, (i + 1) * size);
    const scale = encode(values.subarray(i * 32, (i + 1) * 32), block.subarray(2));
    block.set(new Uint8Array(Float16Array.of(scale).buffer));
  }
  return out;
}

const half = (value: number) => Float16Array.of(value)[0]!;

const extreme = (block: Float32Array) =>
  block.reduce((most, x) => Math.abs(x) > Math.abs(most) ? x : most, 0);

/** Q6_K whose groups of 16 have one scale. */
function sixBits(values: Float32Array): Uint8Array {
  const out = new Uint8Array(values.length / 256 * 210);
  for (let block = 0; block < values.length / 256; block++) {
    const b = out.subarray(block * 210), part = values.subarray(block * 256, (block + 1) * 256);
    const d = half(Math.abs(extreme(part)) / 31);
    part.forEach((x, i) => {
      const q = Math.round(x / d) + 32, [h, k, l] = [i >> 7, i >> 5 & 3, i & 31];
      b[64 * h + 32 * (k % 2) + l]! |= (q & 15) << 4 * (k >> 1);
      b[128 + 32 * h + l]! |= q >> 4 << 2 * k;
    });
    b.fill(1, 192, 208);
    b.set(new Uint8Array(Float16Array.of(d).buffer), 208);
  }
  return out;
}

/** Q4_K whose groups of 32 have one scale and one minimum. */
function fourBits(values: Float32Array): Uint8Array {
  const out = new Uint8Array(values.length / 256 * 144);
  for (let block = 0; block < values.length / 256; block++) {
    const b = out.subarray(block * 144), part = values.subarray(block * 256, (block + 1) * 256);
    const min = half(Math.max(0, -Math.min(...part))), d = half((Math.max(...part) + min) / 15);
    b.set(new Uint8Array(Float16Array.of(d, min).buffer));
    b.fill(1, 4, 12).fill(0x11, 12, 16);
    part.forEach((x, i) => {
      b[16 + (i >> 6) * 32 + i % 32]! |= Math.round((x + min) / d) << (i >> 5 & 1) * 4;
    });
  }
  return out;
}

/** Types that are written: id and encoder. */
const TYPES = {
  F32: [0, (values: Float32Array<ArrayBuffer>) => fromF32(values, "f32")],
  F16: [1, (values: Float32Array<ArrayBuffer>) => fromF32(values, "f16")],
  BF16: [30, (values: Float32Array<ArrayBuffer>) => fromF32(values, "bf16")],
  Q8_0: [8, (values: Float32Array) =>
    blocks(values, 34, (block, out) => {
      const d = half(Math.abs(extreme(block)) / 127);
      block.forEach((x, i) => out[i] = Math.round(x / d) & 255);
      return d;
    })],
  Q4_0: [2, (values: Float32Array) =>
    blocks(values, 18, (block, out) => {
      const d = half(extreme(block) / -8);
      block.forEach((x, i) =>
        out[i % 16]! |= Math.max(0, Math.min(15, Math.floor(x / d + 8.5))) << (i < 16 ? 0 : 4)
      );
      return d;
    })],
  Q4_1: [3, (values: Float32Array) =>
    blocks(values, 20, (block, out) => {
      const min = half(Math.min(...block)), d = half((Math.max(...block) - min) / 15);
      out.set(new Uint8Array(Float16Array.of(min).buffer));
      block.forEach((x, i) => out[2 + i % 16]! |= Math.round((x - min) / d) << (i < 16 ? 0 : 4));
      return d;
    })],
  Q4_K: [12, fourBits],
  Q6_K: [14, sixBits],
} as const;

/** A type that is written. */
export type WrittenType = keyof typeof TYPES;

/** A tensor of values in a type. */
export function tensorOf(
  name: string,
  shape: readonly number[],
  values: Float32Array<ArrayBuffer>,
  type: WrittenType = "F32",
): GgufTensor {
  const [id, encode] = TYPES[type];
  return { name, shape, type: id, data: encode(values) };
}

/** Writes a folder with a random model of two layers, all of whose matrices have rows of whole blocks. */
export async function writeTinyFolder(
  folder: string,
  family: Family,
  changes: Readonly<Record<string, unknown>> = {},
): Promise<void> {
  const json = {
    model_type: family,
    vocab_size: 512,
    hidden_size: 64,
    intermediate_size: 96,
    num_hidden_layers: 2,
    num_attention_heads: 4,
    num_key_value_heads: 2,
    head_dim: 16,
    rms_norm_eps: 1e-5,
    rope_theta: 10000,
    max_position_embeddings: 256,
    tie_word_embeddings: family !== "qwen2",
    eos_token_id: [490, 492],
    torch_dtype: "float32",
    ...changes,
  };
  const tensors = parameterSpecs(parseConfig(json, "config.json")).map(({ name, shape }) => {
    const values = new Float32Array(elementCount(shape));
    new RandomStream(1, name).fillNormal(values, name.includes("proj") ? 0.15 : 0.5);
    if (name.includes("norm")) values.forEach((value, i) => values[i] = 1 + value / 4);
    const source = fromF32(values, "f32");
    return { name, dtype: "f32" as const, shape, byteLength: source.length, source };
  });
  await Deno.mkdir(folder);
  writeJson(`${folder}/config.json`, json);
  await writeWeights(folder, tensors);
  for (const file of ["tokenizer.json", "tokenizer_config.json"]) {
    await Deno.copyFile(`${TOKENIZER}/${file}`, `${folder}/${file}`);
  }
}

const NAMES: readonly (readonly [RegExp, string])[] = [
  [/^model\.embed_tokens/, "token_embd"],
  [/^lm_head/, "output"],
  [/^model\.norm/, "output_norm"],
  [/^model\.layers\.(\d+)\./, "blk.$1."],
  [/self_attn\.([qkv])_proj/, "attn_$1"],
  [/self_attn\.o_proj/, "attn_output"],
  [/self_attn\.([qk])_norm/, "attn_$1_norm"],
  [/mlp\.(gate|up|down)_proj/, "ffn_$1"],
  [/input_layernorm/, "attn_norm"],
  [/post_attention_layernorm/, "ffn_norm"],
];

/** Rows as ggml rotates them: those of neighbouring pairs beside each other. */
function permuted(values: Float32Array<ArrayBuffer>, rows: number, D: number) {
  const width = values.length / rows, out = new Float32Array(values.length);
  for (let row = 0; row < rows; row++) {
    const head = row - row % D, t = Math.floor(row % D / (D / 2)), i = row % (D / 2);
    const to = head + 2 * i + t;
    out.set(values.subarray(row * width, (row + 1) * width), to * width);
  }
  return out;
}

/** Options of turning a folder into a GGUF file. */
export interface GgufOptions {
  /** Type of a matrix by its GGUF name; vectors are F32. */
  readonly type?: WrittenType | ((name: string) => WrittenType);
  /** True if q and k of Llama are permuted, as they must be (default true). */
  readonly permutes?: boolean;
  readonly metadata?: Readonly<Record<string, Entry | undefined>>;
}

/** The content of a GGUF file of a folder, with the tokenizer of its `tokenizer.json`. */
export async function ggufOf(
  folder: string,
  { type = "F32", permutes = true, metadata = {} }: GgufOptions = {},
): Promise<GgufContent> {
  const { config, tensors } = await openCheckpoint(folder);
  const A = config.family;
  const written = await Promise.all([...tensors.values()].map(async ({ name, shape }) => {
    let values = await readTensor(tensors.get(name)!);
    const own = NAMES.reduce((text, [from, to]) => text.replace(from, to), name);
    if (A === "llama" && permutes && /attn_[qk]\.(weight|bias)$/.test(own)) {
      values = permuted(values, shape[0]!, config.headDim);
    }
    const chosen = typeof type === "string" ? type : type(own);
    return tensorOf(own, shape, values, shape.length === 1 ? "F32" : chosen);
  }));
  const entries = {
    "general.architecture": ["string", A],
    "general.type": ["string", "model"],
    [`${A}.block_count`]: ["u32", config.numHiddenLayers],
    [`${A}.context_length`]: ["u64", config.maxPositionEmbeddings],
    [`${A}.embedding_length`]: ["u32", config.hiddenSize],
    [`${A}.feed_forward_length`]: ["u32", config.intermediateSize],
    [`${A}.attention.head_count`]: ["u32", config.numAttentionHeads],
    [`${A}.attention.head_count_kv`]: ["u32", config.numKeyValueHeads],
    [`${A}.attention.key_length`]: ["u32", config.headDim],
    [`${A}.attention.layer_norm_rms_epsilon`]: ["f32", config.rmsNormEps],
    [`${A}.rope.freq_base`]: ["f32", config.ropeTheta],
    ...tokenizerEntries(JSON.parse(await Deno.readTextFile(`${folder}/tokenizer.json`))),
    "tokenizer.ggml.eos_token_id": ["u32", config.eosTokenIds[0] ?? 0],
    ...metadata,
  } as const;
  const given = Object.entries(entries).filter(([, entry]) => entry !== undefined);
  return { metadata: Object.fromEntries(given) as GgufContent["metadata"], tensors: written };
}

// deno-lint-ignore no-explicit-any -- a parsed tokenizer.json
function tokenizerEntries({ model, added_tokens }: any): Record<string, Entry> {
  const tokens: string[] = [], types: number[] = [];
  for (const [token, id] of Object.entries<number>(model.vocab)) {
    [tokens[id], types[id]] = [token, 1];
  }
  for (const { id, content, special } of added_tokens) {
    // As converters do: a token whose name looks special is of type CONTROL, whatever it was.
    [tokens[id], types[id]] = [content, special || /^<\|.*\|>$/.test(content) ? 3 : 4];
  }
  for (let id = 0; id < tokens.length; id++) {
    if (tokens[id] === undefined) [tokens[id], types[id]] = [`[PAD${id}]`, 5];
  }
  const merges = model.merges.map((merge: string | string[]) =>
    typeof merge === "string" ? merge : merge.join(" ")
  );
  return {
    "tokenizer.ggml.model": ["string", "gpt2"],
    "tokenizer.ggml.pre": ["string", "qwen2"],
    "tokenizer.ggml.tokens": ["strings", tokens],
    "tokenizer.ggml.token_type": ["i32s", types],
    "tokenizer.ggml.merges": ["strings", merges],
  };
}

/** Writes a GGUF file of a folder. */
export async function writeGguf(
  path: string,
  folder: string,
  options: GgufOptions = {},
): Promise<void> {
  await Deno.writeFile(path, ggufBytes(await ggufOf(folder, options)));
}
