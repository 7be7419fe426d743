/**
 * Input of every cost estimate: a shape, a workload, a device's rates, element widths.
 *
 * Letters follow the equations: h hidden size, f MLP size, L layers, q query heads, v key/value
 * heads, d head size, V vocabulary, P streams, T prefix tokens, b batch, i prompt, o output tokens;
 * A layers of softmax attention and N delta nets, which are all L, g query heads with their gates.
 * Parameters are counted by formula, not from the list of tensors, because a sweep asks ten
 * thousand times per second; a test holds the two equal.
 */
import {
  attentionLayers,
  convWidth,
  hasHeadNorms,
  type ModelConfig,
  queryHeads,
} from "../model/config.ts";
import { stateElements } from "../model/delta_net.ts";
import type { Rates } from "./devices.ts";

/** Sizes of a model, without its streams: h, f, L, q, v, d, V, biases and norms. */
export type CostShape = Pick<
  ModelConfig,
  | "family"
  | "hiddenSize"
  | "intermediateSize"
  | "numHiddenLayers"
  | "numAttentionHeads"
  | "numKeyValueHeads"
  | "headDim"
  | "vocabSize"
  | "tieWordEmbeddings"
  | "attentionBias"
  | "outputBias"
  | "mlpBias"
  | "aggregator"
  | "delta"
>;

/** Sizes of a shape by the letters of the equations. */
export function lettersOf(shape: CostShape) {
  const { hiddenSize: h, intermediateSize: f, numHiddenLayers: L, vocabSize: V } = shape;
  const { numAttentionHeads: q, numKeyValueHeads: v, headDim: d } = shape;
  const A = attentionLayers(shape).length;
  return { h, f, L, q, v, d, V, g: queryHeads(shape), A, N: L - A };
}

/**
 * Widths of a delta net: what its input becomes, channels of its convolution among them, what its output is
 * made of; and the numbers in its states.
 */
export function deltaWidths({ delta }: CostShape) {
  if (!delta) return { input: 0, conv: 0, output: 0, state: 0 };
  const conv = convWidth(delta), output = delta.valueHeads * delta.valueDim;
  return {
    input: conv + output + 2 * delta.valueHeads,
    conv,
    output,
    state: stateElements({ delta }),
  };
}

/** Sizes of a generation. */
export interface Workload {
  /** P */
  readonly streams: number;
  /** T; counts only with more than one stream */
  readonly prefixTokens: number;
  /** b */
  readonly batch: number;
  /** i */
  readonly input: number;
  /** o */
  readonly output: number;
}

/** Bytes per element: w, a, c. */
interface ElementBytes {
  readonly weight: number;
  readonly activation: number;
  readonly cache: number;
}

/** One question to a cost model. */
export interface CostQuestion {
  readonly shape: CostShape;
  readonly work: Workload;
  readonly rates: Rates;
  readonly bytes: ElementBytes;
  /** True if every sequence keeps its own copy of the prefixes; exact model only. */
  readonly copiesPrefix?: boolean;
  /** Fixed seconds per pass, for measured launch cost; exact model only. */
  readonly stepOverheadS?: number;
}

/** Memory and latency of a workload, to which both models add parts in the order of documents. */
export interface CostTotals {
  readonly memoryBytes: number;
  readonly latencyS: number;
}

/** The mean memory and latency of several workloads. */
export function meanCost(costs: readonly CostTotals[]): CostTotals {
  const mean = (key: keyof CostTotals) =>
    costs.reduce((sum, cost) => sum + cost[key] / costs.length, 0);
  return { memoryBytes: mean("memoryBytes"), latencyS: mean("latencyS") };
}

/** T as it counts: a single stream has no prefix. */
export function prefixRows({ streams, prefixTokens }: Workload): number {
  return streams > 1 ? prefixTokens : 0;
}

/** Counts parameters by group, as the paper's table does. */
export function countShape(shape: CostShape, P: number, prefixTokens: number) {
  const { h, f, L, q, v, d, V, g, A, N } = lettersOf(shape);
  const inputs = (g + 2 * v) * d;
  const attention = h * inputs + q * d * h + (shape.attentionBias ? inputs : 0) +
    (shape.outputBias ? h : 0) + (hasHeadNorms(shape) ? 2 * d : 0);
  const mlp = 3 * h * f + 2 * h + (shape.mlpBias ? 2 * f + h : 0);
  const backbone = A * attention + N * deltaParams(shape) + L * mlp + h;
  const T = P > 1 ? prefixTokens : 0;
  const states = P > 1 && T > 0 ? P * N * deltaWidths(shape).state : 0;
  const prefix = 2 * A * P * v * T * d + states;
  const aggregator = P === 1
    ? 0
    : shape.aggregator === "linear"
    ? P * h * h + h
    : P * h * h + h + h * P + P;
  const embedding = (shape.tieWordEmbeddings ? 1 : 2) * V * h;
  const nonEmbedding = backbone + prefix + aggregator;
  return { backbone, prefix, aggregator, embedding, nonEmbedding, total: nonEmbedding + embedding };
}

function deltaParams(shape: CostShape): number {
  const { delta, hiddenSize: h } = shape;
  if (!delta) return 0;
  const { input, conv, output } = deltaWidths(shape);
  return h * (input + output) + conv * delta.kernel + 2 * delta.valueHeads + delta.valueDim;
}
