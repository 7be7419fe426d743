/** Model shapes of the benchmarks, their weights, and what a step of them needs at the least. */
import type { ModelConfig } from "../../core/model/config.ts";
import { elementCount, parameterSpecs } from "../../core/model/parameters.ts";
import type { HostTensor, Weights } from "../../core/runtime/device.ts";
import { qwen05b, randomBf16 } from "../bench/random_model.ts";

/** Qwen2.5 by name, as hidden size, intermediate size, layers and heads; `tiny` tries the scripts. */
const SHAPES: Readonly<Record<string, readonly [number, number, number, number]>> = {
  tiny: [64, 128, 2, 4],
  "0.5B": [896, 4864, 24, 14],
  "1.5B": [1536, 8960, 28, 12],
  "3B": [2048, 11008, 36, 16],
};

/** A shape with P streams. */
export function shapeOf(name: string, streams: number): ModelConfig {
  const found = SHAPES[name];
  if (!found) throw new TypeError(`Cannot time "${name}": found ${Object.keys(SHAPES).join(", ")}`);
  const [hiddenSize, intermediateSize, numHiddenLayers, numAttentionHeads] = found;
  return {
    ...qwen05b(streams),
    ...{ hiddenSize, intermediateSize, numHiddenLayers, numAttentionHeads },
    headDim: hiddenSize / numAttentionHeads,
    ...(name === "tiny" ? { vocabSize: 512 } : {}),
  };
}

/** Random bf16 weights that share one array, so that the host needs memory for the largest only. */
export function sharedWeights(config: ModelConfig): Weights {
  const specs = parameterSpecs(config);
  const largest = Math.max(...specs.map(({ shape }) => elementCount(shape)));
  const data = randomBf16(largest);
  return new Map(specs.map(({ name, shape }): [string, HostTensor] => [
    name,
    { dtype: "bf16", shape, data: data.subarray(0, elementCount(shape)) },
  ]));
}

/** Parameters of the layers, of the output matrix and of the aggregator. */
function counts(config: ModelConfig): { body: number; head: number; aggregator: number } {
  const count = (pattern: RegExp) =>
    parameterSpecs(config).filter(({ name }) => pattern.test(name) && !/prefix/.test(name))
      .reduce((sum, { shape }) => sum + elementCount(shape), 0);
  return {
    body: count(/layers\./),
    head: config.vocabSize * config.hiddenSize,
    aggregator: count(/aggregate/),
  };
}

/** Bytes that a decoding step reads at the least, in bf16: weights and keys and values. */
export function decodeBytes(config: ModelConfig, batch: number, context: number): number {
  const { body, head, aggregator } = counts(config);
  const { streams: P, numKeyValueHeads: K, headDim: D, numHiddenLayers: L, prefixTokens } = config;
  const perToken = 2 * 2 * K * D; // keys and values of one layer
  const text = perToken * batch * context * (P * (L - 1) + 1); // layer 0 is shared by the streams
  const prefix = config.prefix ? perToken * L * P * prefixTokens : 0;
  return 2 * (body + head + aggregator) + text + prefix;
}

/** Operations of a prefill of `tokens` tokens; attention is causal. */
export function prefillFlops(config: ModelConfig, tokens: number): number {
  const { body } = counts(config);
  return tokens * config.streams * (2 * body + attentionFlops(config, tokens));
}

/** Operations that a training step needs, with nothing computed twice but attention scores. */
export function trainingFlops(config: ModelConfig, tokens: number, peft: boolean): number {
  const { body, head, aggregator } = counts(config);
  const attention = attentionFlops(config, tokens) * config.streams;
  const [layers, output] = [2 * body * config.streams, 2 * head];
  const factor = peft ? 2 : 3;
  return tokens * (factor * (layers + output) + 3 * 2 * aggregator + 3.5 * attention);
}

/** Per text token and stream. */
function attentionFlops(config: ModelConfig, tokens: number): number {
  const { numAttentionHeads, headDim, numHiddenLayers, prefix, prefixTokens } = config;
  const seen = (tokens + 1) / 2 + (prefix ? prefixTokens : 0);
  return 4 * seen * numAttentionHeads * headDim * numHiddenLayers;
}
