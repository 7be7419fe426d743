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
  const V = logits.length;
  let max = -Infinity;
  for (let id = 0; id < V; id++) if (logits[id]! > max) max = logits[id]!;
  let sum = 0;
  for (let id = 0; id < V; id++) sum += Math.exp(logits[id]! - max);
  const total = max + Math.log(sum);
  if (!Number.isFinite(total)) throw notFinite("score a token", "an infinite or NaN logit");
  const of = (id: number): TokenLogprob => ({ token: id, logprob: logits[id]! - total });
  return { ...of(token), top: largest(logits, count).map(of) };
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
