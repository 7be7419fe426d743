/**
 * Writes a GGUF file of a Qwen2 or Llama shape with random weights, for timing llama.cpp beside us.
 *
 * The vocabulary is made up: 256 bytes and numbered tokens. Only what llama.cpp insists on is written.
 */
import { CODE_OF_BYTE } from "../../core/tokenizer/byte_alphabet.ts";
import type { ModelConfig } from "../../core/model/config.ts";
import { elementCount } from "../../core/graph/types.ts";
import { isThere, SHAPES } from "./random_model.ts";

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
const ALIGNMENT = 32;
const [U32, F32, STRING, ARRAY, I32] = [4, 6, 8, 9, 5];

const encoder = new TextEncoder();

class Bytes {
  readonly parts: Uint8Array[] = [];
  length = 0;

  raw(bytes: Uint8Array): this {
    this.parts.push(bytes);
    this.length += bytes.length;
    return this;
  }

  u32(value: number): this {
    return this.raw(new Uint8Array(new Uint32Array([value]).buffer));
  }

  u64(value: number): this {
    return this.raw(new Uint8Array(new BigUint64Array([BigInt(value)]).buffer));
  }

  text(value: string): this {
    const bytes = encoder.encode(value);
    return this.u64(bytes.length).raw(bytes);
  }
}

interface Tensor {
  readonly name: string;
  /** Outermost first, as elsewhere here; GGUF wants the reverse. */
  readonly shape: readonly number[];
  readonly type: GgufType;
}

function tensorsOf(config: ModelConfig, type: GgufType): Tensor[] {
  const { hiddenSize: C, intermediateSize: F, vocabSize: V, headDim: D } = config;
  const { numAttentionHeads: H, numKeyValueHeads: K } = config;
  const list: Tensor[] = [];
  const matrix = (name: string, ...shape: number[]) => list.push({ name, shape, type });
  const vector = (name: string, size: number) => list.push({ name, shape: [size], type: "F32" });
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

function metadata(config: ModelConfig): [count: number, bytes: Bytes] {
  const out = new Bytes();
  let count = 0;
  const key = (name: string, type: number) => (count++, out.text(name).u32(type));
  const array = (name: string, type: number, length: number) =>
    key(name, ARRAY).u32(type).u64(length);
  const architecture = config.family;
  key("general.architecture", STRING).text(architecture);
  const sizes = {
    block_count: config.numHiddenLayers,
    context_length: config.maxPositionEmbeddings,
    embedding_length: config.hiddenSize,
    feed_forward_length: config.intermediateSize,
    "attention.head_count": config.numAttentionHeads,
    "attention.head_count_kv": config.numKeyValueHeads,
    "rope.dimension_count": config.headDim,
  };
  for (const [name, value] of Object.entries(sizes)) key(`${architecture}.${name}`, U32).u32(value);
  const floats = {
    "attention.layer_norm_rms_epsilon": config.rmsNormEps,
    "rope.freq_base": config.ropeTheta,
  };
  for (const [name, value] of Object.entries(floats)) {
    key(`${architecture}.${name}`, F32).raw(new Uint8Array(new Float32Array([value]).buffer));
  }
  key("tokenizer.ggml.model", STRING).text("gpt2");
  key("tokenizer.ggml.pre", STRING).text("qwen2");
  array("tokenizer.ggml.tokens", STRING, config.vocabSize);
  for (let id = 0; id < config.vocabSize; id++) {
    const numbered = id < config.vocabSize - 1 ? `token${id}` : "ab";
    out.text(id < 256 ? String.fromCharCode(CODE_OF_BYTE[id]!) : numbered);
  }
  array("tokenizer.ggml.token_type", I32, config.vocabSize);
  out.raw(new Uint8Array(new Int32Array(config.vocabSize).fill(1).buffer));
  array("tokenizer.ggml.merges", STRING, 1).text("a b");
  key("tokenizer.ggml.eos_token_id", U32).u32(config.vocabSize - 1);
  return [count, out];
}

/** Random elements: small floats, or blocks of random codes under a small scale. */
function randomChunk(type: GgufType): Uint8Array {
  const blocks = 1 << 14;
  const bytes = new Uint8Array(blocks * BLOCK_BYTES[type]);
  let state = 1;
  const next = () => state = Math.imul(state, 1664525) + 1013904223 >>> 0;
  if (type === "F32") {
    const values = new Float32Array(bytes.buffer);
    for (let i = 0; i < values.length; i++) values[i] = (next() / 2 ** 32 - 0.5) / 16;
    return bytes;
  }
  for (let i = 0; i < bytes.length; i++) bytes[i] = next() >>> 24;
  const scale = new Uint8Array(new Float16Array([0.001]).buffer);
  for (let at = 0; at < bytes.length; at += BLOCK_BYTES[type]) bytes.set(scale, at);
  return bytes;
}

/** A file of a shape in the system's temporary folder, written once. */
export function randomGguf(shape: keyof typeof SHAPES, type: GgufType): string {
  const path = `${Deno.env.get("TMPDIR") ?? "/tmp"}/parscale-bench-${shape}-${type}.gguf`;
  if (!isThere(path)) writeGguf(path, SHAPES[shape](1), type);
  return path;
}

/** Writes the file. */
function writeGguf(path: string, config: ModelConfig, type: GgufType): void {
  const tensors = tensorsOf(config, type);
  const [count, meta] = metadata(config);
  const head = new Bytes().raw(encoder.encode("GGUF")).u32(3).u64(tensors.length).u64(count);
  meta.parts.forEach((part) => head.raw(part));
  const align = (bytes: number) => Math.ceil(bytes / ALIGNMENT) * ALIGNMENT;
  const size = (tensor: Tensor) => elementCount(tensor.shape) / 32 * BLOCK_BYTES[tensor.type];
  let offset = 0;
  for (const tensor of tensors) {
    head.text(tensor.name).u32(tensor.shape.length);
    tensor.shape.toReversed().forEach((length) => head.u64(length));
    head.u32(TYPE_ID[tensor.type]).u64(offset);
    offset += align(size(tensor));
  }
  head.raw(new Uint8Array(align(head.length) - head.length));
  using file = Deno.openSync(path, { write: true, create: true, truncate: true });
  const write = (bytes: Uint8Array) => {
    for (let at = 0; at < bytes.length;) at += file.writeSync(bytes.subarray(at));
  };
  head.parts.forEach(write);
  const chunks = { F32: randomChunk("F32"), Q8_0: randomChunk("Q8_0"), Q4_0: randomChunk("Q4_0") };
  for (const tensor of tensors) {
    const chunk = chunks[tensor.type];
    for (let left = align(size(tensor)); left > 0; left -= chunk.length) {
      write(chunk.subarray(0, Math.min(left, chunk.length)));
    }
  }
}
