/**
 * What each stream of a model would predict by itself, beside what they predict together.
 *
 * Comes in: sequences of tokens. Goes out: per sequence the aggregation weights of every token, and
 * the log-probabilities of its tokens under the model and under each stream alone, all from one
 * pass. What surprises: a stream alone still ran through its own prefix, so it is no model without
 * ParScale.
 */
import { NumericalError } from "../errors.ts";
import type { Engine } from "./engine.ts";
import { checkTokens, CHUNK } from "./prefill.ts";

/** What the streams make of a sequence of T tokens. */
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
  for (const tokens of sequences) checkTokens(engine.config, tokens, "score a sequence");
  const { streams: P } = engine.config;
  const longest = Math.max(...sequences.map(({ length }) => length));
  const cache = engine.createCache(sequences.length, longest);
  const scores = sequences.map((tokens) => ({
    weights: [] as Float32Array[],
    tokenLogprobs: new Float32Array(tokens.length - 1),
    streamLogprobs: [] as Float32Array[],
  }));
  for (let offset = 0; offset < longest; offset += CHUNK) {
    const T = Math.min(CHUNK, longest - offset);
    const asked = sequences.flatMap((tokens, b) =>
      Array.from(
        { length: Math.max(0, Math.min(T, tokens.length - offset)) },
        (_, t) => ({ b, at: offset + t, slot: b * T + t }),
      )
    );
    const outputs = await engine.forward(cache, {
      ids: sequences.map((tokens) => Array.from({ length: T }, (_, t) => tokens[offset + t] ?? 0)),
      start: sequences.map(() => offset),
      select: asked.map(({ slot }) => slot),
      targets: asked.map(({ b, at }) => sequences[b]![at + 1] ?? 0),
    }, { head: "streams" });
    const [logprobs, alone] = [outputs.get("logprobs")!, outputs.get("stream_logprobs")!];
    const weights = outputs.get("weights");
    const rowOf = (values: ArrayLike<number>, row: number) =>
      Float32Array.from({ length: P }, (_, p) => values[row * P + p]!);
    asked.forEach(({ b, at }, row) => {
      const score = scores[b]!;
      score.weights.push(weights ? rowOf(weights, row) : Float32Array.of(1));
      if (at + 1 === sequences[b]!.length) return;
      score.tokenLogprobs[at] = logprobs[row]!;
      score.streamLogprobs.push(rowOf(alone, row));
    });
  }
  for (const { tokenLogprobs, streamLogprobs } of scores) {
    const isFinite = tokenLogprobs.every(Number.isFinite) &&
      streamLogprobs.every((row) => row.every(Number.isFinite));
    if (!isFinite) {
      throw new NumericalError("Cannot score streams: a log-probability is not finite");
    }
  }
  return scores;
}
