/**
 * Predictions of each stream of a model by itself, beside those of all together.
 *
 * Takes sequences of tokens; returns per sequence the aggregation weights of every token, and the
 * log-probabilities of its tokens under the model and under each stream alone, all from one pass. A
 * stream alone still ran through its own prefix, so it is no model without ParScale.
 */
import { notFinite } from "../base/errors.ts";
import type { Engine } from "./engine.ts";
import { checkTokens } from "./prefill.ts";
import { feedPieces, type Piece, requireStreamWeights, slotsFor } from "./score.ts";

/** Scores of the streams for a sequence of T tokens. */
export interface StreamScore {
  /** Aggregation weights [T][P]: row t mixed the streams at token t, to predict token t + 1. */
  readonly weights: readonly Float32Array[];
  /** log p(token | all before) of tokens 1 and on, natural logarithm. */
  readonly tokenLogprobs: Float32Array;
  /** The same under each stream alone: [T − 1][P]. */
  readonly streamLogprobs: readonly Float32Array[];
}

/**
 * Scores sequences side by side. Throws `DataError` for tokens the model cannot take and
 * `NumericalError` when it gives no finite number.
 */
export async function scoreStreams(
  engine: Engine,
  sequences: readonly (readonly number[])[],
): Promise<StreamScore[]> {
  requireStreamWeights(engine.config);
  for (const tokens of sequences) checkTokens(engine.config, tokens, "score a sequence");
  const pieces = sequences.map((tokens): Piece => ({
    start: 0,
    tokens,
    wanted: tokens.map((_, at) => ({ at, next: tokens[at + 1] ?? 0 })),
  }));
  const scores = sequences.map((tokens) => ({
    weights: [] as Float32Array[],
    tokenLogprobs: new Float32Array(tokens.length - 1),
    streamLogprobs: [] as Float32Array[],
  }));
  using cache = engine.createCache(sequences.length, slotsFor(pieces));
  await feedPieces(engine, cache, pieces, (b, at, { logprob, weights, streams }) => {
    const score = scores[b]!;
    score.weights.push(Float32Array.from(weights ?? [1]));
    if (at + 1 === sequences[b]!.length) return;
    score.tokenLogprobs[at] = logprob;
    score.streamLogprobs.push(Float32Array.from(streams!));
  }, { head: "streams" });
  for (const { tokenLogprobs, streamLogprobs } of scores) {
    const isFinite = tokenLogprobs.every(Number.isFinite) &&
      streamLogprobs.every((row) => row.every(Number.isFinite));
    if (!isFinite) {
      throw notFinite("score streams", "an infinite or NaN log-probability");
    }
  }
  return scores;
}
