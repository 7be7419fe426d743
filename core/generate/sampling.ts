/**
 * Picks the next token from logits: greedy, or drawn after temperature, top-k, top-p and min-p.
 *
 * The filters apply in this order, each on what the one before left, as in Hugging Face transformers.
 * Equal logits rank by token id, so the result depends on nothing but logits, options and the draw.
 */
import { NumericalError } from "../errors.ts";
import type { RandomStream } from "../random.ts";

/** How to choose; the defaults of a field mean "off". */
export interface SamplingOptions {
  /** 0 is greedy: the most likely token, lowest id first. */
  readonly temperature: number;
  /** Keep the k most likely tokens; 0 keeps all. */
  readonly topK: number;
  /** Keep the smallest set of most likely tokens with at least this probability; 1 keeps all. */
  readonly topP: number;
  /** Keep tokens at least this likely relative to the most likely one; 0 keeps all. */
  readonly minP: number;
}

/** Most likely token always. */
export const GREEDY: SamplingOptions = { temperature: 0, topK: 0, topP: 1, minP: 0 };

/** Index of the largest logit, lowest first. Throws `NumericalError` when one is NaN. */
export function argmax(logits: ArrayLike<number>): number {
  let best = 0;
  for (let i = 0; i < logits.length; i++) {
    const x = logits[i]!;
    if (x > logits[best]!) best = i;
    else if (x !== x) throw new NumericalError(`Cannot choose a token: the logit of ${i} is NaN`);
  }
  return best;
}

/** Draws a token id from logits [V]. Throws `NumericalError` when a logit is NaN. */
export function sample(
  logits: ArrayLike<number>,
  options: SamplingOptions,
  random: RandomStream,
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
  return best; // rounding used up the last crumb
}

/** Ids that survive the filters, most likely first. */
function shortlist(logits: ArrayLike<number>, best: number, options: SamplingOptions): number[] {
  const { temperature, topK, topP, minP } = options;
  const weight = (id: number) => Math.exp((logits[id]! - logits[best]!) / temperature);
  const k = topK > 0 ? Math.min(topK, logits.length) : logits.length;
  let everything = 0;
  if (topK === 0) { for (let id = 0; id < logits.length; id++) everything += weight(id); }

  // Sorting the whole vocabulary would cost more than the model, so look near the top first and
  // farther down only while what was found does not decide the filters.
  let ids: number[] = [];
  for (let reach = 8;; reach *= 4) {
    const lowest = logits[best]! - reach * temperature;
    ids = [];
    let mass = 0;
    for (let id = 0; id < logits.length; id++) {
      if (!(logits[id]! >= lowest)) continue;
      ids.push(id);
      if (topK === 0) mass += weight(id);
    }
    const enough = topK > 0 ? ids.length >= k : topP < 1 ? mass >= topP * everything : true;
    const decided = topK === 0 && topP >= 1 ? Math.exp(-reach) < minP : enough;
    if (decided || ids.length === logits.length || reach > 1e6) break;
  }
  ids.sort((a, b) => logits[b]! - logits[a]! || a - b);
  ids.length = Math.min(ids.length, k);
  if (topP < 1) {
    const total = topK > 0 ? ids.reduce((sum, id) => sum + weight(id), 0) : everything;
    let mass = 0;
    const last = ids.findIndex((id) => (mass += weight(id)) >= topP * total);
    if (last >= 0) ids.length = last + 1;
  }
  return ids.filter((id) => weight(id) >= minP);
}
