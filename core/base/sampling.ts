/**
 * Picks the next token from logits: greedy, or drawn after temperature, top-k, top-p and min-p.
 *
 * The filters apply in this order, each on what the one before left, as in Hugging Face transformers.
 * Equal logits rank by token id, and a draw walks what is left by id, so the result depends on nothing
 * but logits, options and the draw: devices that draw by themselves choose the same tokens.
 */
import { notFinite } from "./errors.ts";
import type { RandomStream } from "./random.ts";

/** Options of sampling; the defaults of a field mean "off". */
export interface SamplingOptions {
  /** 0 is greedy: the most likely token, lowest id first. */
  readonly temperature: number;
  /** Keep the k most likely tokens; 0 keeps all. */
  readonly topK: number;
  /** Keep the smallest set of most likely tokens with at least this probability; 1 keeps all. */
  readonly topP: number;
  /** Keep tokens at least this likely relative to the most likely one; 0 keeps all. */
  readonly minP: number;
  /**
   * Penalty on tokens that occur in prompt or answer, above 0; 1 is none. This and the next ones are
   * applied where requests are decoded, since they need tokens; see core/generate/logit_rules.ts.
   */
  readonly repetitionPenalty?: number;
  /** Subtracted from the logit of a token for each time that it occurs in the answer; 0 is none. */
  readonly frequencyPenalty?: number;
  /** Subtracted from the logits of tokens that occur in the answer; 0 is none. */
  readonly presencePenalty?: number;
  /** Added to logits, by token. */
  readonly logitBias?: ReadonlyMap<number, number>;
}

/** Most likely token always. */
export const GREEDY: SamplingOptions = { temperature: 0, topK: 0, topP: 1, minP: 0 };

/** Index of the largest logit, lowest first. Throws `NumericalError` when one is NaN. */
export function argmax(logits: ArrayLike<number>): number {
  let best = 0;
  for (let i = 0; i < logits.length; i++) {
    const x = logits[i]!;
    if (x > logits[best]!) best = i;
    else if (x !== x) throw notFinite("choose a token", `a NaN logit for token ${i}`);
  }
  return best;
}

/** Numbers that tell a device how to choose one token. */
export const SAMPLING_NUMBERS = 6;

/**
 * Options and draw of one token as a device reads them: temperature, top-k, top-p, min-p, and the draw
 * in two parts, since one float would not tell the last tokens of a large vocabulary apart. Draws
 * unless greedy, as `sample` does.
 */
export function samplingNumbers(
  { temperature, topK, topP, minP }: SamplingOptions,
  random: Pick<RandomStream, "uniform">,
): number[] {
  const draw = temperature === 0 ? 0 : random.uniform();
  const high = Math.fround(draw);
  return [temperature, topK, topP, minP, high, draw - high];
}

/** Draws a token id from logits [V]. Throws `NumericalError` when a logit is NaN. */
export function sample(
  logits: ArrayLike<number>,
  options: SamplingOptions,
  random: Pick<RandomStream, "uniform">,
): number {
  const best = argmax(logits);
  if (options.temperature === 0) return best;
  const weight = (id: number) => Math.exp((logits[id]! - logits[best]!) / options.temperature);
  const { topK, topP, minP } = options;
  const filtered = (topK > 0 && topK < logits.length) || topP < 1 || minP > 0;
  const ids = filtered ? shortlist(logits, best, options) : undefined;
  const count = ids?.length ?? logits.length;
  const at = (i: number) => ids ? ids[i]! : i;
  let total = 0;
  for (let i = 0; i < count; i++) total += weight(at(i));
  let left = random.uniform() * total;
  for (let i = 0; i < count; i++) {
    left -= weight(at(i));
    if (left < 0) return at(i);
  }
  return best; // rounding left a sum below the drawn number
}

/** Ids that survive the filters, in order. */
function shortlist(logits: ArrayLike<number>, best: number, options: SamplingOptions): number[] {
  const { temperature, topK, topP, minP } = options;
  const weight = (id: number) => Math.exp((logits[id]! - logits[best]!) / temperature);
  const sum = (count: number, at: (i: number) => number) => {
    let total = 0;
    for (let i = 0; i < count; i++) total += weight(at(i));
    return total;
  };
  const everything = topK === 0 && topP < 1 ? sum(logits.length, (id) => id) : 0;

  // Sorting the whole vocabulary would cost more than the model, so only logits above a floor are sorted.
  const floor = topK > 0 ? largest(logits, topK) : Math.max(
    // The margin leaves the decision about the last one to the exact comparison below.
    logits[best]! + temperature * (Math.log(minP) - 1e-6),
    topP < 1 ? nucleusFloor(logits, best, temperature, topP * everything) : -Infinity,
  );
  const ids: number[] = [];
  for (let id = 0; id < logits.length; id++) if (logits[id]! >= floor) ids.push(id);
  ids.sort((a, b) => logits[b]! - logits[a]! || a - b);
  if (topK > 0) ids.length = Math.min(ids.length, topK);
  if (topP < 1) {
    const total = topK > 0 ? sum(ids.length, (i) => ids[i]!) : everything;
    let mass = 0;
    const last = ids.findIndex((id) => (mass += weight(id)) >= topP * total);
    if (last >= 0) ids.length = last + 1;
  }
  return ids.filter((id) => weight(id) >= minP).sort((a, b) => a - b);
}

/** The k-th largest value: the top of a heap that holds the k largest so far, the least on top. */
function largest(values: ArrayLike<number>, k: number): number {
  if (k >= values.length) return -Infinity;
  const heap = new Float64Array(k).fill(-Infinity);
  for (let i = 0; i < values.length; i++) {
    const value = values[i]!;
    if (value <= heap[0]!) continue;
    let at = 0;
    for (let child; (child = 2 * at + 1) < k; at = child) {
      if (child + 1 < k && heap[child + 1]! < heap[child]!) child++;
      if (heap[child]! >= value) break;
      heap[at] = heap[child]!;
    }
    heap[at] = value;
  }
  return heap[0]!;
}

/** A logit such that those above it hold at least `mass`, and hardly more. */
function nucleusFloor(
  logits: ArrayLike<number>,
  best: number,
  temperature: number,
  mass: number,
): number {
  const [perUnit, units] = [16, 64]; // what lies 64 below the best has no weight
  const bins = new Float64Array(perUnit * units);
  for (let id = 0; id < logits.length; id++) {
    const below = (logits[best]! - logits[id]!) / temperature;
    if (below < units) bins[Math.floor(below * perUnit)]! += Math.exp(-below);
  }
  let found = 0;
  const last = bins.findIndex((share) => (found += share) >= mass);
  // One bin more than needed: these sums are rounded in another order than the exact ones.
  return last < 0 ? -Infinity : logits[best]! - (last + 2) / perUnit * temperature;
}
