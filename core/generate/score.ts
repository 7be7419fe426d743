/**
 * Log-probabilities of given tokens under the model.
 *
 * Sequences are batched side by side, padded on the right (what comes later is never seen by what came
 * before) and fed in chunks through the KV cache, so memory does not grow with length. Only positions
 * whose next token is asked for reach the output matrix.
 */
import { NumericalError } from "../errors.ts";
import type { Engine } from "./engine.ts";
import { checkTokens, CHUNK } from "./prefill.ts";

/** A sequence and the part of it whose log-probabilities are wanted. */
export interface ScoreRequest {
  readonly tokens: readonly number[];
  /** First token to score, at least 1: a token needs one before it. */
  readonly from: number;
}

/** What the model makes of a sequence. */
export interface Score {
  /** log p(token | all before), natural logarithm, for tokens `from` and on. */
  readonly tokenLogprobs: Float32Array;
  /** Sum of `tokenLogprobs`. */
  readonly loglikelihood: number;
  /** Whether greedy decoding would have produced exactly these tokens. */
  readonly isGreedy: boolean;
  /**
   * Aggregation weights [tokens][P]: row t mixed the streams at token t, to predict token t + 1. Only
   * when asked for; all ones when the model has one stream.
   */
  readonly weights?: readonly Float32Array[];
}

/** Sizes are rounded up to a multiple of this, so that few programs serve many lengths. */
const SIZE_STEP = 32;

/**
 * Scores one batch of sequences together. Throws `DataError` when one has too few tokens, too many, or
 * ids outside the vocabulary, and `NumericalError` when the model gives no finite number.
 */
export async function scoreBatch(
  engine: Engine,
  requests: readonly ScoreRequest[],
  options: { weights?: boolean } = {},
): Promise<Score[]> {
  for (const { tokens } of requests) checkTokens(engine.config, tokens, "score a sequence");
  const P = engine.config.streams;
  // Weights are wanted at every token, log-probabilities only before a token that is scored.
  const positions = requests.map(({ tokens, from }) =>
    options.weights
      ? { first: 0, end: tokens.length }
      : { first: Math.max(0, from - 1), end: tokens.length - 1 }
  );
  const longest = Math.max(...positions.map(({ end }) => end));
  const results = requests.map(({ tokens, from }) => ({
    tokenLogprobs: new Float32Array(Math.max(0, tokens.length - from)),
    isGreedy: true,
    weights: [] as Float32Array[],
  }));
  const cache = engine.createCache(requests.length, roundUp(longest));
  for (let start = 0; start < longest; start += CHUNK) {
    const T = Math.min(CHUNK, roundUp(longest - start));
    const wanted = positions.flatMap(({ first, end }, b) =>
      integersBetween(Math.max(first, start), Math.min(end, start + T))
        .map((position) => ({ b, position }))
    );
    // The first chunks may only feed the cache, but the program selects at least one token.
    const selected = roundUp(wanted.length);
    const padded = Array.from(
      { length: selected },
      (_, i) => wanted[i] ?? { b: 0, position: start },
    );
    const outputs = await engine.forward(cache, {
      ids: requests.map(({ tokens }) =>
        Array.from({ length: T }, (_, t) => tokens[start + t] ?? 0)
      ),
      start: requests.map(() => start),
      select: padded.map(({ b, position }) => b * T + position - start),
      targets: padded.map(({ b, position }) => requests[b]!.tokens[position + 1] ?? 0),
    }, { head: "score" });
    const [logprobs, best] = [outputs.get("logprobs")!, outputs.get("argmax")!];
    const weights = outputs.get("weights");
    wanted.forEach(({ b, position }, i) => {
      const { tokens, from } = requests[b]!;
      const result = results[b]!;
      if (position + 1 >= from && position + 1 < tokens.length) {
        result.tokenLogprobs[position + 1 - from] = logprobs[i]!;
        result.isGreedy &&= best[i] === tokens[position + 1];
      }
      if (options.weights) {
        result.weights.push(Float32Array.from(weights?.subarray(i * P, (i + 1) * P) ?? [1]));
      }
    });
  }
  return results.map(({ tokenLogprobs, isGreedy, weights }) => {
    const loglikelihood = tokenLogprobs.reduce((sum, x) => sum + x, 0);
    if (!Number.isFinite(loglikelihood)) {
      throw new NumericalError("Cannot score a sequence: a log-probability is not finite");
    }
    return { tokenLogprobs, loglikelihood, isGreedy, ...(options.weights ? { weights } : {}) };
  });
}

function integersBetween(first: number, end: number): number[] {
  return Array.from({ length: Math.max(0, end - first) }, (_, i) => first + i);
}

function roundUp(size: number): number {
  return Math.max(1, Math.ceil(size / SIZE_STEP)) * SIZE_STEP;
}
