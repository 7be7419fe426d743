/**
 * The official cost script of the ParScale paper, discrepancies included, to the last digit.
 *
 * Streams are a larger batch, n = b P rows, and the prompt is longer, s = i + T. One pass over n rows
 * of m tokens takes, per layer, the larger of arithmetic and traffic of each part:
 *
 *   total = pass(n, s) + o (pass(n, 1) + 2 cache / B) + aggregator + correction
 *
 * The correction takes back the head's work for all streams but one. The
 * known discrepancies are listed in `docs/analysis.md`; nothing is corrected here.
 */
import { type CostQuestion, type CostTotals, lettersOf, prefixRows } from "./cost.ts";

/** The script's building blocks: seconds, operations and bytes of passes over n rows of m tokens. */
function termsOf({ shape, bytes, rates }: CostQuestion) {
  const { h, f, L, q, v, V } = lettersOf(shape);
  const { weight: w, activation: a } = bytes;
  const slower = (flops: number, traffic: number) =>
    Math.max(flops / rates.flops, traffic / rates.bytes);

  // Parameters of a layer, and bytes alive in it.
  const attentionParams = 2 * h * h + 2 * h * (h * v / q);
  const mlpParams = 3 * h * f;
  const attentionBytes = (n: number, m: number) =>
    a * Math.max(3 * n * m * h, 2 * n * m * h + 4 * q * n * m);
  const mlpBytes = (n: number, m: number) => a * n * m * h * Math.max(1, f / h);

  const attentionFlops = (n: number, m: number) =>
    4 * n * m * h * h + 4 * n * m * h * h * v / q + 4 * n * m * m * h;
  const mlpFlops = (n: number, m: number) => 6 * n * m * h * f;
  const headFlops = (n: number, m: number) => 2 * n * m * V * h;

  const attentionS = (n: number, m: number) =>
    slower(attentionFlops(n, m), attentionParams * w + attentionBytes(n, m));
  const mlpS = (n: number, m: number) => slower(mlpFlops(n, m), mlpParams * w + mlpBytes(n, m));
  const headS = (n: number, m: number) => headFlops(n, m) / rates.flops;
  // A norm reads elements of 4 bytes, whatever the widths.
  const normS = (n: number, m: number) => slower(5 * n * m * h, 4 * n * m * h);
  const embeddingS = V * h * w / rates.bytes;
  const passS = (n: number, m: number) =>
    L * (attentionS(n, m) + mlpS(n, m) + 2 * normS(n, m)) + embeddingS + headS(n, m);
  const passFlops = (n: number, m: number) =>
    L * (attentionFlops(n, m) + mlpFlops(n, m) + 2 * 5 * n * m * h) + headFlops(n, m);

  return {
    attentionParams,
    mlpParams,
    attentionBytes,
    mlpBytes,
    mlpS,
    mlpFlops,
    headS,
    headFlops,
    passS,
    passFlops,
  };
}

/**
 * Memory, latency and their parts as the official script computes them; `decodeStepS` is one of o
 * equal steps.
 */
export function paperCost(question: CostQuestion) {
  const { shape, work, bytes, rates } = question;
  const { h, L, q, v, V } = lettersOf(shape);
  const { streams: P, batch: b, input: i, output: o } = work;
  const n = b * P, s = i + prefixRows(work);
  const terms = termsOf(question);

  const layer = terms.attentionParams + terms.mlpParams + 2 * h;
  const weightBytes = L * layer * bytes.weight + V * h * bytes.weight + h * bytes.weight;
  const kvCacheBytes = L * 2 * n * (s + o) * (h / q) * v * bytes.cache;
  const scoring = shape.aggregator === "linear" ? 0 : h * P;
  const aggregatorParams = P > 1 ? P * h * h + scoring : 0;
  const aggregatorBytes = aggregatorParams * bytes.weight;
  const activationBytes = Math.max(
    terms.attentionBytes(n, s),
    terms.mlpBytes(n, s),
    2 * n * s * h,
    bytes.activation * V * b * s,
  );

  const prefillS = terms.passS(n, s);
  const decodeStepS = terms.passS(n, 1) + 2 * kvCacheBytes / rates.bytes;
  const share = aggregatorParams / terms.mlpParams;
  const aggregatorS = P > 1 ? share * terms.mlpS(b, i + o) : 0;
  const embeddingFixS = terms.headS(b, i + o) - terms.headS(n, i + o);
  return {
    memoryBytes: weightBytes + kvCacheBytes + aggregatorBytes + activationBytes,
    latencyS: prefillS + o * decodeStepS + aggregatorS + embeddingFixS,
    weightBytes,
    kvCacheBytes,
    aggregatorBytes,
    activationBytes,
    prefillS,
    decodeStepS,
    aggregatorS,
    embeddingFixS,
    flops: terms.passFlops(n, s) + o * terms.passFlops(n, 1) + share * terms.mlpFlops(b, i + o) +
      terms.headFlops(b - n, i + o),
  };
}

/** The script's line of output, character for character; its "GB" are 2³⁰ bytes. */
export function printedLine({ memoryBytes, latencyS }: CostTotals): string {
  return `Memory: ${threeDigits(memoryBytes / 2 ** 30)}GB; Latency: ${threeDigits(latencyS)}s`;
}

/**
 * As Python prints it: a tie goes to the even digit, where `toFixed` goes up. Only odd multiples of
 * 1/16 lie exactly between two thousandths: 0.0625 is 0.062 here.
 */
function threeDigits(value: number): string {
  const below = Math.floor(value * 1000);
  const isTie = Number.isInteger(value * 16) && value * 16 % 2 === 1;
  return isTie && below % 2 === 0 ? (below / 1000).toFixed(3) : value.toFixed(3);
}
