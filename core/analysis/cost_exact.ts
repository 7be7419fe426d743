/**
 * The corrected roofline of generation: every part takes the larger of its arithmetic and its traffic.
 *
 *   lin(r, x, y) = max(2 r x y / F, (x y w + r (x + y) a) / B)        a product of r rows
 *   pass = Σ layer(r, G, C) + tail(r)         G attention operations, C bytes of cache that are read
 *   latency = prefill + the passes of o − 1 further tokens
 *
 * n = b P rows. Prefixes are stored keys and values, not tokens: they cost cache reads and
 * attention, nothing else. The decode loop recomputes attention and cache only, all else is the
 * same at every step.
 */
import { type CostQuestion, countShape, deltaWidths, lettersOf, prefixRows } from "./cost.ts";

/** Operations of the delta rule per token and number of the state: decay, read, update, output. */
const STATE_FLOPS = 7;

/** Seconds of a product of r rows from width x to width y. */
function linearS({ rates, bytes }: CostQuestion, r: number, x: number, y: number): number {
  const traffic = x * y * bytes.weight + r * (x + y) * bytes.activation;
  return Math.max(2 * r * x * y / rates.flops, traffic / rates.bytes);
}

/** Seconds of all layers for r rows without attention and states. */
export function layersLinearS(question: CostQuestion, r: number): number {
  const { h, f, L, q, v, d, g, A, N } = lettersOf(question.shape);
  const { input, output } = deltaWidths(question.shape);
  const attention = linearS(question, r, h, (g + 2 * v) * d) + linearS(question, r, q * d, h);
  const delta = N > 0 ? linearS(question, r, h, input) + linearS(question, r, output, h) : 0;
  const rest = linearS(question, r, h, 2 * f) + linearS(question, r, f, h) +
    2 * (2 * r * h * question.bytes.activation / question.rates.bytes);
  return A * attention + N * delta + L * rest;
}

/** Seconds of the states of all delta nets in a pass over n rows of m tokens; they are f32. */
export function statesS({ shape, rates }: CostQuestion, n: number, m: number): number {
  const { state } = deltaWidths(shape);
  const slower = Math.max(
    STATE_FLOPS * n * m * state / rates.flops,
    2 * 4 * n * state / rates.bytes,
  );
  return lettersOf(shape).N * slower;
}

/** Seconds of a layer's attention for r rows: G operations, C bytes of keys and values. */
export function attentionS(question: CostQuestion, r: number, G: number, C: number): number {
  const { rates, bytes, shape } = question;
  const traffic = C + 2 * r * shape.numAttentionHeads * shape.headDim * bytes.activation;
  return Math.max(G / rates.flops, traffic / rates.bytes);
}

/** Seconds after the layers: norm of r rows, aggregator and head of b. */
export function tailS(question: CostQuestion, r: number, b: number): number {
  const { shape, rates, bytes } = question;
  const { hiddenSize: h, vocabSize: V } = shape;
  const { weight: w, activation: a } = bytes;
  const P = question.work.streams;
  const norm = 2 * r * h * a / rates.bytes;
  const scoring = shape.aggregator === "linear"
    ? 0
    : linearS(question, b, h, P) + b * (P + 1) * h * a / rates.bytes;
  const aggregator = P === 1 ? 0 : linearS(question, b, P * h, h) + scoring;
  const head = Math.max(
    2 * b * h * V / rates.flops,
    (h * V * w + b * h * a + 4 * b * V) / rates.bytes,
  );
  return norm + aggregator + head;
}

/** Operations of the products and states of all layers for one row. */
export function layersFlops({ shape }: CostQuestion): number {
  const { h, f, L, q, v, d, g, A, N } = lettersOf(shape);
  const { input, output, state } = deltaWidths(shape);
  const attention = h * (g + 2 * v) * d + q * d * h;
  return 2 * (A * attention + N * h * (input + output) + L * 3 * h * f) + N * STATE_FLOPS * state;
}

/** Operations of aggregator and head for one token. */
export function tailFlops({ shape, work: { streams: P } }: CostQuestion): number {
  const { hiddenSize: h, vocabSize: V } = shape;
  const scoring = shape.aggregator === "linear" ? 0 : h * P;
  return 2 * h * V + (P > 1 ? 2 * (P * h * h + scoring) : 0);
}

/**
 * Memory, latency and their parts by the corrected model. Weights are backbone, tables, prefixes and
 * aggregator; `decodeS` is all steps after the first token.
 */
export function exactCost(question: CostQuestion) {
  const { shape, work, bytes } = question;
  const { streams: P, batch: b, input: i, output: o } = work;
  const { h, f, q, v, d, g, A, N } = lettersOf(shape);
  const n = b * P, T = prefixRows(work);
  const { weight: w, activation: a, cache: c } = bytes;
  const { input: deltaInput, output: deltaOutput, state } = deltaWidths(shape);

  const weightBytes = countShape(shape, P, work.prefixTokens).total * w;
  const kvCacheBytes = 2 * A * v * d * c * n * (i + o + (question.copiesPrefix ? T : 0)) +
    4 * N * n * state;
  const activationBytes = Math.max(
    n * i * a * Math.max(h + 2 * f, h + (g + q + 2 * v) * d, h + deltaInput + deltaOutput),
    4 * b * shape.vocabSize,
  );
  const { prefillS, decodeS, flops } = passes(question, n, T);
  return {
    memoryBytes: weightBytes + kvCacheBytes + activationBytes,
    latencyS: prefillS + decodeS,
    weightBytes,
    kvCacheBytes,
    activationBytes,
    prefillS,
    decodeS,
    flops,
  };
}

function passes(question: CostQuestion, n: number, T: number) {
  const { shape, work, bytes, rates } = question;
  const { streams: P, batch: b, input: i, output: o } = work;
  const { h, q, v, d, A } = lettersOf(shape);
  const overhead = question.stepOverheadS ?? 0;
  const slotBytes = 2 * v * d * bytes.cache;
  const prefixBytes = slotBytes * (question.copiesPrefix ? n : P) * T;
  const lookupS = (tokens: number) => tokens * h * bytes.weight / rates.bytes;

  const pairs = i * T + i * (i + 1) / 2; // causal: token t sees the prefix and t + 1 tokens
  const prefillAttention = 4 * n * q * d * pairs;
  const prefillS = lookupS(b * i) +
    layersLinearS(question, n * i) + statesS(question, n, i) +
    A * attentionS(question, n * i, prefillAttention, slotBytes * n * i + prefixBytes) +
    tailS(question, n * i, b) + overhead;

  const steps = o - 1;
  const fixed = lookupS(b) + layersLinearS(question, n) + statesS(question, n, 1) +
    tailS(question, n, b) + overhead;
  let attention = 0, decodeAttention = 0;
  for (let x = i + 1; x < i + o; x++) {
    const G = 4 * n * q * d * (T + x);
    attention += attentionS(question, n, G, slotBytes * n * x + prefixBytes);
    decodeAttention += G;
  }
  const flops = layersFlops(question) * n * (i + steps) +
    A * (prefillAttention + decodeAttention) + tailFlops(question) * b * (1 + steps);
  return { prefillS, decodeS: steps * fixed + A * attention, flops };
}
