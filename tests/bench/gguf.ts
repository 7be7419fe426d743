/**
 * Writes a GGUF file of a Qwen2 or Llama shape with random weights, for timing llama.cpp beside us.
 *
 * The vocabulary is made up: 256 bytes and numbered tokens. Only what llama.cpp insists on is written.
 */
import { existsSync } from "node:fs";
import { CODE_OF_BYTE } from "../../core/tokenizer/byte_alphabet.ts";
import type { ModelConfig } from "../../core/model/config.ts";
import { elementCount } from "../../core/graph/types.ts";
import { writeAllSync } from "../../core/base/write_all.ts";
import { type Entry, ggufParts, type GgufTensor } from "../gguf_model.ts";
import { lastingFile, SHAPES } from "./random_model.ts";

/** Storage of matrices, as llama.cpp names it. */
export type GgufType = "F32" | "Q8_0" | "Q4_0";

/** Types of the kinds of `--quantize`. */
export const GGUF_TYPES: Readonly<Record<string, GgufType>> = {
  none: "F32",
  q8: "Q8_0",
  q4: "Q4_0",
};

const TYPE_ID: Readonly<Record<GgufType, number>> = { F32: 0, Q4_0: 2, Q8_0: 8 };
/** Bytes per 32 elements; quantised blocks begin with a float16 scale. */
const BLOCK_BYTES: Readonly<Record<GgufType, number>> = { F32: 128, Q4_0: 18, Q8_0: 34 };

function tensorsOf(config: ModelConfig, type: GgufType): GgufTensor[] {
  const { hiddenSize: C, intermediateSize: F, vocabSize: V, headDim: D } = config;
  const { numAttentionHeads: H, numKeyValueHeads: K } = config;
  const list: GgufTensor[] = [];
  const elements = randomElements(type, V * C);
  const matrix = (name: string, ...shape: number[]) => {
    const data = elements.subarray(0, bytesOf(type, elementCount(shape)));
    list.push({ name, shape, type: TYPE_ID[type], data });
  };
  const vector = (name: string, size: number) =>
    list.push({ name, shape: [size], type: TYPE_ID.F32, data: randomElements("F32", size) });
  matrix("token_embd.weight", V, C);
  vector("output_norm.weight", C);
  for (let i = 0; i < config.numHiddenLayers; i++) {
    vector(`blk.${i}.attn_norm.weight`, C);
    for (const [part, rows] of [["q", H * D], ["k", K * D], ["v", K * D]] as const) {
      matrix(`blk.${i}.attn_${part}.weight`, rows, C);
      if (config.attentionBias) vector(`blk.${i}.attn_${part}.bias`, rows);
    }
    matrix(`blk.${i}.attn_output.weight`, C, H * D);
    vector(`blk.${i}.ffn_norm.weight`, C);
    matrix(`blk.${i}.ffn_gate.weight`, F, C);
    matrix(`blk.${i}.ffn_up.weight`, F, C);
    matrix(`blk.${i}.ffn_down.weight`, C, F);
  }
  return list;
}

function metadataOf(config: ModelConfig): Record<string, Entry> {
  const V = config.vocabSize, architecture = config.family;
  const tokens = Array.from({ length: V }, (_, id) => {
    const numbered = id < V - 1 ? `token${id}` : "ab";
    return id < 256 ? String.fromCharCode(CODE_OF_BYTE[id]!) : numbered;
  });
  return {
    "general.architecture": ["string", architecture],
    [`${architecture}.block_count`]: ["u32", config.numHiddenLayers],
    [`${architecture}.context_length`]: ["u32", config.maxPositionEmbeddings],
    [`${architecture}.embedding_length`]: ["u32", config.hiddenSize],
    [`${architecture}.feed_forward_length`]: ["u32", config.intermediateSize],
    [`${architecture}.attention.head_count`]: ["u32", config.numAttentionHeads],
    [`${architecture}.attention.head_count_kv`]: ["u32", config.numKeyValueHeads],
    [`${architecture}.rope.dimension_count`]: ["u32", config.headDim],
    [`${architecture}.attention.layer_norm_rms_epsilon`]: ["f32", config.rmsNormEps],
    [`${architecture}.rope.freq_base`]: ["f32", config.ropeTheta],
    "tokenizer.ggml.model": ["string", "gpt2"],
    "tokenizer.ggml.pre": ["string", "qwen2"],
    "tokenizer.ggml.tokens": ["strings", tokens],
    "tokenizer.ggml.token_type": ["i32s", new Array(V).fill(1)],
    "tokenizer.ggml.merges": ["strings", ["a b"]],
    "tokenizer.ggml.eos_token_id": ["u32", V - 1],
  };
}

const bytesOf = (type: GgufType, count: number) => count / 32 * BLOCK_BYTES[type];

/** Random elements: small floats, or blocks of random codes under a small scale. */
function randomElements(type: GgufType, count: number): Uint8Array {
  const bytes = new Uint8Array(bytesOf(type, count));
  let state = 1;
  const next = () => state = Math.imul(state, 1664525) + 1013904223 >>> 0;
  if (type === "F32") {
    const values = new Float32Array(bytes.buffer);
    for (let i = 0; i < count; i++) values[i] = (next() / 2 ** 32 - 0.5) / 16;
    return bytes;
  }
  for (let i = 0; i < bytes.length; i++) bytes[i] = next() >>> 24;
  const scale = new Uint8Array(new Float16Array([0.001]).buffer);
  for (let at = 0; at < bytes.length; at += BLOCK_BYTES[type]) bytes.set(scale, at);
  return bytes;
}

/** A file of a shape in the system's temporary folder, written once. */
export function randomGguf(shape: keyof typeof SHAPES, type: GgufType): string {
  const path = lastingFile(`${shape}-${type}.gguf`);
  if (existsSync(path)) return path;
  const config = SHAPES[shape](1);
  const content = { metadata: metadataOf(config), tensors: tensorsOf(config, type) };
  using file = Deno.openSync(path, { write: true, create: true, truncate: true });
  for (const part of ggufParts(content)) writeAllSync(file, part);
  return path;
}
