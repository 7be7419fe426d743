/**
 * Models of real shapes with random weights, made on the fly for timing.
 *
 * The backbone is written once per shape into the system's temporary folder and mapped from there, as
 * a real checkpoint would be; introduced tensors are made in memory. Values are small and finite.
 */
import { existsSync, statSync } from "node:fs";
import { writeAllSync } from "../../core/base/write_all.ts";
import { encodeHeader } from "../../core/checkpoint/safetensors.ts";
import type { ModelConfig } from "../../core/model/config.ts";
import { elementCount, parameterSpecs } from "../../core/model/parameters.ts";
import type { FileTensor, HostTensor, Weights } from "../../core/runtime/device.ts";

/** Qwen2.5-0.5B with P streams and 48 prefix tokens. */
export function qwen05b(streams: number): ModelConfig {
  return {
    family: "qwen2",
    vocabSize: 151936,
    hiddenSize: 896,
    intermediateSize: 4864,
    numHiddenLayers: 24,
    numAttentionHeads: 14,
    numKeyValueHeads: 2,
    headDim: 64,
    rmsNormEps: 1e-6,
    ropeTheta: 1e6,
    maxPositionEmbeddings: 32768,
    tieWordEmbeddings: true,
    attentionBias: true,
    outputBias: false,
    mlpBias: false,
    dtype: "bf16",
    eosTokenIds: [],
    streams,
    prefix: streams > 1,
    loraRank: 0,
    bitfit: false,
    prefixTokens: 48,
    smoothing: 0.1,
    aggregator: "dynamic",
  };
}

/** SmolLM2-135M with P streams and 48 prefix tokens. */
export function smollm2(streams: number): ModelConfig {
  return {
    ...qwen05b(streams),
    family: "llama",
    vocabSize: 49152,
    hiddenSize: 576,
    intermediateSize: 1536,
    numHiddenLayers: 30,
    numAttentionHeads: 9,
    numKeyValueHeads: 3,
    ropeTheta: 1e5,
    maxPositionEmbeddings: 8192,
    attentionBias: false,
  };
}

/** A model to train: 20 million parameters in 4 layers. */
export function trainingModel(layers: number, streams = 2): ModelConfig {
  return {
    ...qwen05b(streams),
    vocabSize: 16384,
    hiddenSize: 512,
    intermediateSize: 1408,
    numHiddenLayers: layers,
    numAttentionHeads: 8,
  };
}

/** Shapes by name. */
export const SHAPES = { "qwen2.5-0.5b": qwen05b, "smollm2-135m": smollm2 } as const;

/** A file in the system's temporary folder that later runs find again. */
export const lastingFile = (name: string) =>
  `${Deno.env.get("TMPDIR") ?? "/tmp"}/parscale-bench-${name}`;

/** Random weights for a config; the file is `<temporary folder>/parscale-bench-<name>.safetensors`. */
export function randomWeights(config: ModelConfig, name: string): Weights {
  const path = lastingFile(`${name}.safetensors`);
  const specs = parameterSpecs(config);
  const backbone = specs.filter((spec) => !spec.introduced).map((spec) => ({
    ...spec,
    dtype: "BF16",
    byteLength: elementCount(spec.shape) * 2,
  }));
  const header = encodeHeader(backbone);
  const total = backbone.reduce((sum, spec) => sum + spec.byteLength, header.length);
  if (statSync(path, { throwIfNoEntry: false })?.size !== total) writeRandom(path, header, total);

  const weights = new Map<string, FileTensor | HostTensor>();
  let offset = header.length;
  for (const { name, shape, byteLength } of backbone) {
    weights.set(name, { dtype: "bf16", shape, path, offset });
    offset += byteLength;
  }
  for (const { name, shape } of specs.filter((spec) => spec.introduced)) {
    const data = new Float32Array(elementCount(shape)).map((_, i) => ((i * 37) % 101 - 50) / 2500);
    weights.set(name, { dtype: "f32", shape, data });
  }
  return weights;
}

function writeRandom(path: string, header: Uint8Array, total: number): void {
  using file = Deno.openSync(path, { write: true, create: true, truncate: true });
  writeAllSync(file, header);
  const chunk = randomBf16(1 << 20);
  const bytes = new Uint8Array(chunk.buffer);
  for (let left = total - header.length; left > 0; left -= bytes.length) {
    writeAllSync(file, bytes.subarray(0, left));
  }
}

/** Random bf16 values between 2⁻⁷ and 2⁻⁵, of either sign: sign and fraction vary, hardly the exponent. */
export function randomBf16(count: number): Uint16Array<ArrayBuffer> {
  const bits = new Uint16Array(count);
  let state = 1;
  for (let i = 0; i < count; i++) {
    state = Math.imul(state, 1664525) + 1013904223 >>> 0;
    bits[i] = (state >>> 16 & 0x80ff) | 0x3c00;
  }
  return bits;
}

/** A checkpoint folder whose weights are a link to the random ones; it has no tokenizer. */
export function randomFolder(config: ModelConfig, name: string, folder: string): void {
  randomWeights(config, name);
  Deno.mkdirSync(folder, { recursive: true });
  const link = `${folder}/model.safetensors`;
  if (!existsSync(link)) Deno.symlinkSync(lastingFile(`${name}.safetensors`), link);
  const json = {
    model_type: config.family,
    vocab_size: config.vocabSize,
    hidden_size: config.hiddenSize,
    intermediate_size: config.intermediateSize,
    num_hidden_layers: config.numHiddenLayers,
    num_attention_heads: config.numAttentionHeads,
    num_key_value_heads: config.numKeyValueHeads,
    max_position_embeddings: config.maxPositionEmbeddings,
    rope_theta: config.ropeTheta,
    rms_norm_eps: config.rmsNormEps,
    tie_word_embeddings: true,
    torch_dtype: "bfloat16",
  };
  Deno.writeTextFileSync(`${folder}/config.json`, JSON.stringify(json));
}

/** The `config.json` of a small Qwen2 model that is trained from scratch. */
export function scratchConfig(sizes: Readonly<Record<string, number>>): string {
  const common = {
    model_type: "qwen2",
    architectures: ["Qwen2ForCausalLM"],
    max_position_embeddings: 2048,
    rms_norm_eps: 1e-6,
    rope_theta: 1e6,
    tie_word_embeddings: true,
    torch_dtype: "float32",
  };
  return JSON.stringify({ ...common, ...sizes });
}
