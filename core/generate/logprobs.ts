/** Log-probabilities of a token and of the likeliest ones, from logits on the host. */
import { notFinite } from "../base/errors.ts";
import type { TokenLogprob, TokenLogprobs } from "./request.ts";

/**
 * log softmax of one row at `token` and at the `count` largest logits, lowest id first among equals.
 * @throws {NumericalError} when a logit is NaN or all are −∞
 */
export function tokenLogprobs(
  logits: ArrayLike<number>,
  token: number,
  count: number,
): TokenLogprobs {
  const total = logSumExp(logits, "score a token");
  const of = (id: number): TokenLogprob => ({ token: id, logprob: logits[id]! - total });
  return { ...of(token), top: largest(logits, count).map(of) };
}

/**
 * Logarithm of the sum of exponentials.
 * @throws {NumericalError} when a logit is NaN or infinite; `purpose` completes "cannot …"
 */
export function logSumExp(logits: ArrayLike<number>, purpose: string): number {
  let largest = -Infinity, sum = 0;
  for (let id = 0; id < logits.length; id++) if (logits[id]! > largest) largest = logits[id]!;
  for (let id = 0; id < logits.length; id++) sum += Math.exp(logits[id]! - largest);
  const total = largest + Math.log(sum);
  if (Number.isFinite(total)) return total;
  throw notFinite(purpose, "an infinite or NaN logit");
}

/** Ids of the largest values, best first. */
function largest(values: ArrayLike<number>, count: number): number[] {
  const best: number[] = [];
  if (count === 0) return best;
  for (let id = 0; id < values.length; id++) {
    const value = values[id]!;
    if (best.length === count && value <= values[best[count - 1]!]!) continue;
    let at = best.length;
    while (at > 0 && values[best[at - 1]!]! < value) at--;
    best.splice(at, 0, id);
    if (best.length > count) best.pop();
  }
  return best;
}
