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
import { type Cost, type CostQuestion, prefixRows } from "./cost.ts";

/** The paper's answer and its parts. */
export interface PaperCost extends Cost {
  readonly weightBytes: number;
  readonly kvBytes: number;
  readonly aggregatorBytes: number;
  readonly activationBytes: number;
  readonly prefillS: number;
  /** One of o equal steps. */
  readonly decodeStepS: number;
  readonly aggregatorS: number;
  readonly embeddingFixS: number;
}

/** The script's building blocks for one question. */
class Terms {
  /** n: rows of a pass */
  readonly n: number;
  /** s: prompt with prefix */
  readonly s: number;
  /** Parameters of a layer's attention and of its MLP. */
  readonly attentionParams: number;
  readonly mlpParams: number;

  /** Derives sizes; does no work. */
  constructor(readonly question: CostQuestion) {
    const { hiddenSize: h, intermediateSize: f, numHeads: q, numKvHeads: v } = question.shape;
    this.n = question.work.batch * question.work.streams;
    this.s = question.work.input + prefixRows(question.work);
    this.attentionParams = 2 * h * h + 2 * h * (h * v / q);
    this.mlpParams = 3 * h * f;
  }

  /** Bytes of keys and values for rows of `slots` tokens. */
  cacheBytes(slots: number): number {
    const { hiddenSize: h, numLayers: L, numHeads: q, numKvHeads: v } = this.question.shape;
    return L * 2 * this.n * slots * (h / q) * v * this.question.bytes.cache;
  }

  /** Bytes alive in attention. */
  attentionActivation(n: number, m: number): number {
    const { hiddenSize: h, numHeads: q } = this.question.shape;
    return this.question.bytes.activation *
      Math.max(3 * n * m * h, 2 * n * m * h + 4 * q * n * m);
  }

  /** Bytes alive in the MLP. */
  mlpActivation(n: number, m: number): number {
    const { hiddenSize: h, intermediateSize: f } = this.question.shape;
    return this.question.bytes.activation * n * m * h * Math.max(1, f / h);
  }

  /** Seconds of a layer's attention. */
  attentionS(n: number, m: number): number {
    const { rates, bytes } = this.question;
    const traffic = this.attentionParams * bytes.weight + this.attentionActivation(n, m);
    return Math.max(this.attentionFlops(n, m) / rates.flops, traffic / rates.bytes);
  }

  /** Seconds of a layer's MLP. */
  mlpS(n: number, m: number): number {
    const { rates, bytes } = this.question;
    const traffic = this.mlpParams * bytes.weight + this.mlpActivation(n, m);
    return Math.max(this.mlpFlops(n, m) / rates.flops, traffic / rates.bytes);
  }

  /** Seconds of one norm, which reads elements of 4 bytes. */
  normS(n: number, m: number): number {
    const { rates, shape } = this.question;
    return Math.max(
      5 * n * m * shape.hiddenSize / rates.flops,
      4 * n * m * shape.hiddenSize / rates.bytes,
    );
  }

  /** Seconds to read the input table once. */
  embeddingS(): number {
    const { shape, bytes, rates } = this.question;
    return shape.vocabSize * shape.hiddenSize * bytes.weight / rates.bytes;
  }

  /** Seconds of the output matrix. */
  headS(n: number, m: number): number {
    return this.headFlops(n, m) / this.question.rates.flops;
  }

  /** Seconds of a pass. */
  passS(n: number, m: number): number {
    const layer = this.attentionS(n, m) + this.mlpS(n, m) + 2 * this.normS(n, m);
    return this.question.shape.numLayers * layer + this.embeddingS() + this.headS(n, m);
  }

  /** Operations of a pass. */
  passFlops(n: number, m: number): number {
    const { numLayers: L, hiddenSize: h } = this.question.shape;
    const layer = this.attentionFlops(n, m) + this.mlpFlops(n, m) + 2 * 5 * n * m * h;
    return L * layer + this.headFlops(n, m);
  }

  /** Operations of a layer's attention. */
  attentionFlops(n: number, m: number): number {
    const { hiddenSize: h, numHeads: q, numKvHeads: v } = this.question.shape;
    return 4 * n * m * h * h + 4 * n * m * h * h * v / q + 4 * n * m * m * h;
  }

  /** Operations of a layer's MLP. */
  mlpFlops(n: number, m: number): number {
    return 6 * n * m * this.question.shape.hiddenSize * this.question.shape.intermediateSize;
  }

  /** Operations of the output matrix. */
  headFlops(n: number, m: number): number {
    return 2 * n * m * this.question.shape.vocabSize * this.question.shape.hiddenSize;
  }
}

/** Memory, latency and their parts as the official script computes them. */
export function paperCost(question: CostQuestion): PaperCost {
  const { shape, work, bytes, rates } = question;
  const { hiddenSize: h, numLayers: L, vocabSize: V } = shape;
  const { streams: P, batch: b, input: i, output: o } = work;
  const terms = new Terms(question);
  const { n, s } = terms;
  const layer = terms.attentionParams + terms.mlpParams + 2 * h;
  const weightBytes = L * layer * bytes.weight + V * h * bytes.weight + h * bytes.weight;
  const kvBytes = terms.cacheBytes(s + o);
  const scoring = shape.aggregator === "linear" ? 0 : h * P;
  const aggregatorParams = P > 1 ? P * h * h + scoring : 0;
  const aggregatorBytes = aggregatorParams * bytes.weight;
  const activationBytes = Math.max(
    terms.attentionActivation(n, s),
    terms.mlpActivation(n, s),
    2 * n * s * h,
    bytes.activation * V * b * s,
  );

  const prefillS = terms.passS(n, s);
  const decodeStepS = terms.passS(n, 1) + 2 * kvBytes / rates.bytes;
  const share = aggregatorParams / terms.mlpParams;
  const aggregatorS = P > 1 ? share * terms.mlpS(b, i + o) : 0;
  const embeddingFixS = terms.headS(b, i + o) - terms.headS(n, i + o);
  return {
    memoryBytes: weightBytes + kvBytes + aggregatorBytes + activationBytes,
    latencyS: prefillS + o * decodeStepS + aggregatorS + embeddingFixS,
    flops: terms.passFlops(n, s) + o * terms.passFlops(n, 1) + share * terms.mlpFlops(b, i + o) +
      terms.headFlops(b - n, i + o),
    weightBytes,
    kvBytes,
    aggregatorBytes,
    activationBytes,
    prefillS,
    decodeStepS,
    aggregatorS,
    embeddingFixS,
  };
}

/** The script's line of output, character for character; its "GB" are 2³⁰ bytes. */
export function printedLine({ memoryBytes, latencyS }: Cost): string {
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
