/**
 * What is odd in the official cost script, point by point, with what each does to a configuration.
 *
 * Takes a question and the user's device; returns 22 points; an effect is what the official number
 * is larger by than a sensible one, so negative means that the script forgets something. Effects do
 * not add up to the difference between the two models; each is taken alone.
 */
import { type CostQuestion, countShape, prefixRows } from "./cost.ts";
import { paperCost, PaperTerms } from "./cost_paper.ts";
import { type CostDevice, DEFAULT_DEVICE, findDevice, type Rates, ratesOf } from "./devices.ts";

/** One point and its effect here; a missing effect cannot be computed or has no such side. */
export interface Discrepancy {
  readonly number: number;
  readonly what: string;
  readonly memoryBytes?: number | undefined;
  readonly latencyS?: number | undefined;
  /** What the numbers do not say. */
  readonly note?: string | undefined;
}

/** What the script always uses. */
export function officialRates(): Rates {
  return ratesOf(findDevice(DEFAULT_DEVICE)!, { flops: 0.7, memory: 0.9 }, 16);
}

/** Everything the points are computed from. */
class Context {
  readonly terms: PaperTerms;
  readonly cost: ReturnType<typeof paperCost>;
  /** Σ over decode steps of the slots that attention sees. */
  readonly seen: number;

  constructor(readonly question: CostQuestion, readonly device: CostDevice) {
    this.terms = new PaperTerms(question);
    this.cost = paperCost(question);
    const { output: o } = question.work;
    this.seen = o * this.terms.s + o * (o - 1) / 2;
  }

  get bytesPerS(): number {
    return this.question.rates.bytes;
  }
}

type Effect = Omit<Discrepancy, "number" | "what">;
type Point = readonly [what: string, effect: (context: Context) => Effect];

/** Lists every point with its effect on a question. */
export function listDiscrepancies(question: CostQuestion, device: CostDevice): Discrepancy[] {
  const context = new Context(question, device);
  return [...GIVEN, ...HEAD_AND_PREFIX, ...PARAMETERS, ...PASSES, ...LIMITS]
    .map(([what, effect], index) => ({ number: index + 1, what, ...effect(context) }));
}

const GIVEN: readonly Point[] = [
  ["device and efficiencies are parsed, then ignored: always A100 SXM 80 GB, 0.7, 0.9", (c) => ({
    latencyS: paperCost({ ...c.question, rates: officialRates() }).latencyS - c.cost.latencyS,
    note: "paper mode honours yours",
  })],
  ["capacity is replaced by 10,000 GB, so nothing ever fails to fit", (c) => {
    const { capacityGb: gb, name } = c.device;
    const fits = gb === undefined ? undefined : c.cost.memoryBytes <= gb * 2 ** 30;
    return {
      note: fits === undefined
        ? "no capacity is known here"
        : `this configuration ${fits ? "fits" : "does not fit"} the ${gb} GB of ${name}`,
    };
  }],
  ["the correction takes the embedding width in bits for bytes", () => ({
    latencyS: 0,
    note: "cancels on one device, 8 times too large across devices",
  })],
];

const HEAD_AND_PREFIX: readonly Point[] = [
  ["the correction forgets that the head also ran over the prefix", (c) => ({
    latencyS: c.terms.headS(c.terms.n, prefixRows(c.question.work)),
  })],
  ["head work and logits are counted for every prompt position, not for the last", (c) => {
    const { work, shape, bytes } = c.question;
    const logits = bytes.activation * shape.vocabSize * work.batch * c.terms.s;
    return {
      memoryBytes: logits - 4 * work.batch * shape.vocabSize,
      latencyS: c.terms.headS(work.batch, work.input),
    };
  }],
  ["prefix tokens run through all layers in prefill, though they are stored", (c) => ({
    latencyS: c.cost.prefillS - c.terms.passS(c.terms.n, c.question.work.input),
    note: `prefill ${ms(c.cost.prefillS)} instead of ${
      ms(c.terms.passS(c.terms.n, c.question.work.input))
    }`,
  })],
  ["prefixes are copied into every sequence's cache instead of counted as weights", (c) => {
    const { shape, work, bytes } = c.question;
    const { prefix } = countShape(shape, work.streams, work.prefixTokens);
    const cached = c.terms.cacheBytes(prefixRows(work));
    return {
      memoryBytes: cached - prefix * bytes.weight,
      note: `${mib(cached)} of cache`,
    };
  }],
];

const PARAMETERS: readonly Point[] = [
  ["the aggregator lacks h + P parameters", ({ question: { shape, work, bytes } }) => {
    const biases = shape.hiddenSize + (shape.aggregator === "linear" ? 0 : work.streams);
    return { memoryBytes: work.streams > 1 ? -biases * bytes.weight : 0 };
  }],
  ["the aggregator is one pass over all tokens; its weights are read at every step", (c) => ({
    latencyS: c.cost.aggregatorS - c.question.work.output * c.cost.aggregatorBytes / c.bytesPerS,
    note: `${ms(c.cost.aggregatorS)} instead of ${
      ms(c.question.work.output * c.cost.aggregatorBytes / c.bytesPerS)
    }`,
  })],
  ["biases of query, key and value are missing", ({ question: { shape, bytes } }) => ({
    memoryBytes: shape.attentionBias
      ? -shape.numLayers * (shape.numHeads + 2 * shape.numKvHeads) * shape.headDim * bytes.weight
      : 0,
  })],
  ["every pass reads the whole input table, and the head is charged arithmetic only", (c) => ({
    latencyS: 0,
    note: `${ms((1 + c.question.work.output) * c.terms.embeddingS())} each; the errors cancel`,
  })],
  ["untied checkpoints are counted with one table", ({ question: { shape, bytes } }) => ({
    memoryBytes: shape.tied ? 0 : -shape.vocabSize * shape.hiddenSize * bytes.weight,
  })],
];

const PASSES: readonly Point[] = [
  ["decode attention is computed for a context of length one", (c) => {
    const { numLayers: L, hiddenSize: h } = c.question.shape;
    const counted = c.question.work.output;
    return { latencyS: -4 * c.terms.n * h * L * (c.seen - counted) / c.question.rates.flops };
  }],
  ["cache traffic: load and store of the final length at every step", (c) => {
    const charged = c.question.work.output * 2 * c.cost.kvBytes / c.bytesPerS;
    const read = c.terms.cacheBytes(1) * c.seen / c.bytesPerS;
    return { latencyS: charged - read, note: `${ms(charged)} instead of ${ms(read)}` };
  }],
  ["norm traffic uses 4-byte elements", (c) => {
    const { terms: t, question: { shape, work, bytes } } = c;
    const norms = (size: number) => t.normS(t.n, t.s, size) + work.output * t.normS(t.n, 1, size);
    return { latencyS: 2 * shape.numLayers * (norms(4) - norms(bytes.activation)) };
  }],
  ["prefill attention is not halved for causality", ({ terms: t, question: { shape } }) => ({
    latencyS: shape.numLayers * (t.attentionS(t.n, t.s) - t.attentionS(t.n, t.s, 0.5)),
  })],
  ["the MLP holds one buffer of its width, though a gated one keeps two", (c) => {
    const two = c.terms.mlpActivation(c.terms.n, c.terms.s, 2);
    const one = c.terms.mlpActivation(c.terms.n, c.terms.s);
    return {
      memoryBytes: Math.min(0, c.cost.activationBytes - two),
      note: `${mib(one)} instead of ${mib(two)}; only the largest activation counts`,
    };
  }],
  ["o decode passes follow the prefill, which already gives the first token", (c) => ({
    latencyS: c.cost.decodeStepS,
  })],
];

const LIMITS: readonly Point[] = [
  ["as many key/value heads as heads stop the script with a failed self-check", (c) => ({
    note: c.question.shape.numHeads === c.question.shape.numKvHeads
      ? "it would stop here; paper mode computes the number anyway"
      : "not the case here",
  })],
  ["head width is always h / q", (c) => {
    const { shape, bytes } = c.question;
    const { hiddenSize: h, numHeads: q, numKvHeads: v, headDim: d, numLayers: L } = shape;
    const params = h * (q + 2 * v) * d + q * d * h;
    const cache = c.terms.cacheBytes(c.terms.s + c.question.work.output);
    return {
      memoryBytes: L * (c.terms.attentionParams - params) * bytes.weight +
        cache * (1 - d / (h / q)),
      note: d === h / q ? "true here" : `${h / q} instead of ${d}`,
    };
  }],
  ['"GB" in the output means 2^30 bytes', (c) => ({
    note: `${(c.cost.memoryBytes / 2 ** 30).toFixed(3)}GB printed are ${
      (c.cost.memoryBytes / 1e9).toFixed(3)
    } GB of 10^9 bytes`,
  })],
  ["the result depends on the revision of the library underneath", () => ({
    note: "1.6B, P = 8, batch 8, mean over equal lengths: 1.134 s here, 1.056 s before pull " +
      "request 25; ours is commit d841e40 of November 2024",
  })],
];

function ms(seconds: number): string {
  return `${(1000 * seconds).toFixed(seconds < 1e-3 ? 2 : 1)} ms`;
}

function mib(bytes: number): string {
  return `${(bytes / 2 ** 20).toFixed(1)} MiB`;
}
