/**
 * Rules that change logits before a token is chosen: penalties, biases, and masks of grammars.
 *
 * Repetition penalty (CTRL, arXiv 1909.05858) as in Hugging Face transformers: scores of tokens that occur
 * in prompt or answer are divided by it where they are positive and multiplied where negative. Frequency
 * and presence penalty look at the answer alone, as in OpenAI's API and vLLM. Sampling applies rules to
 * logits, before temperature and filters; beam search to log-probabilities.
 */
import type { SamplingOptions } from "../base/sampling.ts";

/** Changes of logits; the defaults of a field mean "off". */
export type LogitRules = Pick<
  SamplingOptions,
  "repetitionPenalty" | "frequencyPenalty" | "presencePenalty" | "logitBias"
>;

/** Limits which tokens may come next. */
export interface TokenConstraint {
  /** The mask of the first new token. */
  readonly first: TokenMask;
  /** The mask after these new tokens. */
  after(tokens: readonly number[]): Promise<TokenMask>;
}

/** Bit i % 32 of word i / 32 is set where token i may come next; tokens after the end may not. */
export type TokenMask = Int32Array;

/** Returns whether any rule is on. */
export function hasLogitRules(rules: LogitRules): boolean {
  const { repetitionPenalty = 1, frequencyPenalty = 0, presencePenalty = 0, logitBias } = rules;
  return repetitionPenalty !== 1 || frequencyPenalty !== 0 || presencePenalty !== 0 ||
    (logitBias?.size ?? 0) > 0;
}

/** Tokens of a prompt, and how often each occurs in the answer. */
export class SeenTokens {
  readonly #prompt: ReadonlySet<number>;
  readonly answer = new Map<number, number>();

  constructor(prompt: Iterable<number>, answer: Iterable<number> = []) {
    this.#prompt = new Set(prompt);
    for (const token of answer) this.add(token);
  }

  /** Counts a token of the answer. */
  add(token: number): void {
    this.answer.set(token, (this.answer.get(token) ?? 0) + 1);
  }

  /** Tokens of prompt and answer, each once. */
  get all(): ReadonlySet<number> {
    return this.#prompt.union(this.answer);
  }
}

/**
 * A copy of the scores under these rules. `zero` is subtracted before the repetition penalty and added
 * after: with the log of the sum of exponentials, logits are penalized as log-probabilities.
 */
export function applyLogitRules(
  scores: ArrayLike<number>,
  rules: LogitRules,
  seen: SeenTokens,
  zero = 0,
): Float64Array {
  const { repetitionPenalty = 1, frequencyPenalty = 0, presencePenalty = 0, logitBias } = rules;
  const changed = Float64Array.from(scores);
  if (repetitionPenalty !== 1) {
    for (const token of seen.all) {
      const score = changed[token]! - zero;
      changed[token] = zero + (score < 0 ? score * repetitionPenalty : score / repetitionPenalty);
    }
  }
  if (frequencyPenalty !== 0 || presencePenalty !== 0) {
    for (const [token, count] of seen.answer) {
      changed[token]! -= frequencyPenalty * count + presencePenalty;
    }
  }
  for (const [token, bias] of logitBias ?? []) changed[token]! += bias;
  return changed;
}

/** A copy of the scores with those of tokens that may not come next at −∞. */
export function applyMask(scores: ArrayLike<number>, mask: TokenMask): Float64Array {
  const masked = new Float64Array(scores.length).fill(-Infinity);
  for (const [word, bits] of mask.entries()) {
    if (bits === 0) continue;
    const end = Math.min(scores.length, 32 * word + 32);
    for (let id = 32 * word; id < end; id++) {
      if (bits & 1 << id % 32) masked[id] = scores[id]!;
    }
  }
  return masked;
}
