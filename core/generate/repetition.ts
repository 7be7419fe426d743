/**
 * Repetition penalty (CTRL, arXiv 1909.05858) as in Hugging Face transformers: scores of tokens that
 * occur in prompt or answer are divided by it where they are positive and multiplied where negative.
 *
 * Sampling applies it to logits, before temperature and filters; beam search to log-probabilities.
 */

/**
 * A copy of the scores with those of `seen` tokens penalized. `zero` is subtracted before and added
 * after: with the log of the sum of exponentials, logits are penalized as log-probabilities.
 */
export function penalizeRepetition(
  scores: ArrayLike<number>,
  seen: Iterable<number>,
  penalty: number,
  zero = 0,
): Float64Array {
  const penalized = Float64Array.from(scores);
  for (const token of new Set(seen)) {
    const score = scores[token]! - zero;
    penalized[token] = zero + (score < 0 ? score * penalty : score / penalty);
  }
  return penalized;
}
