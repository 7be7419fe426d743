/**
 * The corrected roofline of generation: every part takes the larger of its arithmetic and its traffic.
 *
 *   lin(r, x, y) = max(2 r x y / F, (x y w + r (x + y) a) / B)        a product of r rows
 *   pass = L layer(r, G, C) + tail(r)         G attention operations, C bytes of cache that are read
 *   latency = prefill + the passes of o − 1 further tokens
 *
 * n = b P rows. Prefixes are stored keys and values, not tokens: they cost cache reads and
 * attention, nothing else. The decode loop recomputes attention and cache only, all else is the
 * same at every step.
 */
import { type CostQuestion, countShape, lettersOf, prefixRows } from "./cost.ts";

/** Seconds of a product of r rows from width x to width y. */
function linearS({ rates, bytes }: CostQuestion, r: number, x: number, y: number): number {
  const traffic = x * y * bytes.weight + r * (x + y) * bytes.activation;
  return Math.max(2 * r * x * y / rates.flops, traffic / rates.bytes);
}

/** Seconds of a layer for r rows without its attention. */
export function layerLinearS(question: CostQuestion, r: number): number {
  const { h, f, q, v, d } = lettersOf(question.shape);
  return linearS(question, r, h, (q + 2 * v) * d) + linearS(question, r, q * d, h) +
    linearS(question, r, h, 2 * f) + linearS(question, r, f, h) +
    2 * (2 * r * h * question.bytes.activation / question.rates.bytes);
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

/** Operations of a layer's products for one row. */
export function layerFlops({ shape }: CostQuestion): number {
  const { h, f, q, v, d } = lettersOf(shape);
  return 2 * (h * (q + 2 * v) * d + q * d * h + 3 * h * f);
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
  const { h, f, L, q, v, d } = lettersOf(shape);
  const n = b * P, T = prefixRows(work);
  const { weight: w, activation: a, cache: c } = bytes;

  const weightBytes = countShape(shape, P, work.prefixTokens).total * w;
  const kvCacheBytes = 2 * L * v * d * c * n * (i + o + (question.copiesPrefix ? T : 0));
  const activationBytes = Math.max(
    n * i * a * Math.max(h + 2 * f, h + 2 * q * d + 2 * v * d),
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
  const { h, L, q, v, d } = lettersOf(shape);
  const overhead = question.stepOverheadS ?? 0;
  const slotBytes = 2 * v * d * bytes.cache;
  const prefixBytes = slotBytes * (question.copiesPrefix ? n : P) * T;
  const lookupS = (tokens: number) => tokens * h * bytes.weight / rates.bytes;

  const pairs = i * T + i * (i + 1) / 2; // causal: token t sees the prefix and t + 1 tokens
  const prefillAttention = 4 * n * q * d * pairs;
  const prefillS = lookupS(b * i) +
    L * (layerLinearS(question, n * i) +
        attentionS(question, n * i, prefillAttention, slotBytes * n * i + prefixBytes)) +
    tailS(question, n * i, b) + overhead;

  const steps = o - 1;
  const fixed = lookupS(b) + L * layerLinearS(question, n) + tailS(question, n, b) + overhead;
  let attention = 0, decodeAttention = 0;
  for (let x = i + 1; x < i + o; x++) {
    const G = 4 * n * q * d * (T + x);
    attention += attentionS(question, n, G, slotBytes * n * x + prefixBytes);
    decodeAttention += G;
  }
  const flops = L * (layerFlops(question) * n * (i + steps) + prefillAttention + decodeAttention) +
    tailFlops(question) * b * (1 + steps);
  return { prefillS, decodeS: steps * fixed + L * attention, flops };
}
