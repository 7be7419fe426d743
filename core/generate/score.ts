/**
 * Log-probabilities of given tokens under the model.
 *
 * Sequences are batched side by side, padded on the right (what comes later is never seen by what came
 * before) and fed in chunks through the KV cache, so memory does not grow with length. Only positions
 * whose next token is asked for reach the output matrix.
 */
import { DataError, notFinite } from "../base/errors.ts";
import { hasStreamWeights, type ModelConfig } from "../model/config.ts";
import type { Engine } from "./engine.ts";
import type { KvCache } from "./kv_cache.ts";
import { appendChunk, checkTokens, type ChunkRow, roundUp } from "./prefill.ts";

/** Tokens of each sequence per forward pass. */
export const SCORE_CHUNK = 256;

/** A sequence and the part of it whose log-probabilities are wanted. */
export interface ScoreRequest {
  readonly tokens: readonly number[];
  /** First token to score, at least 1: a token needs one before it. */
  readonly from: number;
}

/** Score of a sequence. */
export interface Score {
  /** log p(token | all before), natural logarithm, for tokens `from` and on. */
  readonly tokenLogprobs: Float32Array;
  /** Sum of `tokenLogprobs`. */
  readonly loglikelihood: number;
  /** True if greedy decoding would have produced exactly these tokens. */
  readonly isGreedy: boolean;
  /**
   * Aggregation weights [tokens][P]: row t mixed the streams at token t, to predict token t + 1. Only
   * when asked for; all ones when the model has one stream.
   */
  readonly weights?: readonly Float32Array[];
  /**
   * `tokenLogprobs` under each stream alone, [tokens][P]; only when asked for. A stream alone still ran
   * through its own prefix, so it differs from the model without ParScale.
   */
  readonly streamLogprobs?: readonly Float32Array[];
}

/** Sizes are rounded up to a multiple of this, so that few programs serve many lengths. */
const SIZE_STEP = 32;

/** Tokens to append to one sequence of a cache, and what is asked of them. */
export interface Piece extends ChunkRow {
  /** Tokens whose results are wanted, by their place in `tokens`, with what comes next. */
  readonly wanted: readonly { readonly at: number; readonly next: number }[];
}

/** Prediction at one token. */
export interface Prediction {
  /** log p(next) */
  readonly logprob: number;
  /** True if `next` is the likeliest token. */
  readonly isBest: boolean;
  /** Aggregation weights [P]; a view that is overwritten. */
  readonly weights: Float32Array | undefined;
  /** log p(next) under each stream alone [P], likewise; only of the head `streams`. */
  readonly streams: Float32Array | undefined;
}

/** Slots a cache needs for pieces: the last chunk is padded. */
export function slotsFor(pieces: readonly Piece[], step = SIZE_STEP): number {
  const longest = Math.max(...pieces.map(({ tokens }) => tokens.length));
  return Math.max(...pieces.map(({ start }) => start)) + roundUp(longest, step);
}

/**
 * Appends piece b to sequence b of a cache of as many sequences and tells what was predicted where, in
 * the order of `wanted` for every piece. `step` is what lengths are rounded up to; `head` what is asked
 * of the model, see `buildForward`; `onChunk` is called with the tokens of each chunk.
 */
export async function feedPieces(
  engine: Engine,
  cache: KvCache,
  pieces: readonly Piece[],
  predicted: (piece: number, wanted: number, prediction: Prediction) => void,
  { step = SIZE_STEP, head = "score", onChunk }: {
    readonly step?: number;
    readonly head?: "score" | "streams";
    readonly onChunk?: ((tokens: number) => void) | undefined;
  } = {},
): Promise<void> {
  const P = engine.config.streams;
  const longest = Math.max(...pieces.map(({ tokens }) => tokens.length));
  for (let offset = 0; offset < longest; offset += SCORE_CHUNK) {
    const end = offset + SCORE_CHUNK;
    const rows = pieces.map(({ tokens, start }) => ({
      tokens: tokens.slice(offset, end),
      start: start + offset,
    }));
    const asked = pieces.flatMap(({ wanted }, b) =>
      wanted.flatMap(({ at, next }, i) =>
        at >= offset && at < end ? [{ b, i, t: at - offset, target: next }] : []
      )
    );
    // The first chunks may only feed the cache, but the program selects at least one token.
    const count = roundUp(asked.length, step);
    const places = Array.from({ length: count }, (_, i) => asked[i] ?? { b: 0, t: 0 });
    const outputs = await appendChunk(engine, cache, rows, places, { head, step });
    const [logprobs, best] = [outputs.get("logprobs")!, outputs.get("argmax")!];
    const rowOf = (name: string, row: number) =>
      (outputs.get(name) as Float32Array | undefined)?.subarray(row * P, (row + 1) * P);
    asked.forEach(({ b, i, target }, row) =>
      predicted(b, i, {
        logprob: logprobs[row]!,
        isBest: best[row] === target,
        weights: rowOf("weights", row),
        streams: rowOf("stream_logprobs", row),
      })
    );
    onChunk?.(rows.reduce((sum, { tokens }) => sum + tokens.length, 0));
  }
}

/** Refuses a model whose streams have no weights at its tokens. */
export function requireStreamWeights(config: ModelConfig): void {
  if (hasStreamWeights(config)) return;
  throw new DataError("linear aggregation has no stream weights: it maps all streams at once", {
    hints: ["use a model with `--aggregation dynamic`"],
  });
}

/**
 * Scores one batch of sequences together. Throws `DataError` when one has too few tokens, too many, or
 * ids outside the vocabulary, and `NumericalError` when the model gives no finite number.
 */
export async function scoreBatch(
  engine: Engine,
  requests: readonly ScoreRequest[],
  { streams: asksStreams = false, weights: asksWeights = asksStreams }: {
    readonly weights?: boolean;
    /** True for predictions of each stream by itself, and weights. */
    readonly streams?: boolean;
  } = {},
): Promise<Score[]> {
  if (asksWeights) requireStreamWeights(engine.config);
  const unread = Number(!asksWeights);
  for (const { tokens } of requests) {
    checkTokens(engine.config, tokens, "score a sequence", { unread });
  }
  const pieces = requests.map(({ tokens, from }): Piece => {
    // Weights are wanted at every token, log-probabilities only before a token that is scored.
    const first = asksWeights ? 0 : Math.max(0, from - 1);
    const end = tokens.length - unread;
    const places = Array.from({ length: Math.max(0, end - first) }, (_, i) => first + i);
    return {
      start: 0,
      tokens: tokens.slice(0, end),
      wanted: places.map((at) => ({ at, next: tokens[at + 1] ?? 0 })),
    };
  });
  const results = requests.map((request) => ({
    ...emptyScore(request),
    weights: [] as Float32Array[],
    streamLogprobs: [] as Float32Array[],
  }));
  using cache = engine.createCache(requests.length, slotsFor(pieces));
  await feedPieces(engine, cache, pieces, (b, i, { logprob, isBest, weights, streams }) => {
    const { tokens, from } = requests[b]!;
    const { at } = pieces[b]!.wanted[i]!;
    const result = results[b]!;
    if (at + 1 >= from && at + 1 < tokens.length) {
      result.tokenLogprobs[at + 1 - from] = logprob;
      result.isGreedy &&= isBest;
      if (asksStreams) result.streamLogprobs.push(Float32Array.from(streams!));
    }
    if (asksWeights) result.weights.push(Float32Array.from(weights ?? [1]));
  }, { head: asksStreams ? "streams" : "score" });
  if (!results.every((score) => score.streamLogprobs.every((row) => row.every(Number.isFinite)))) {
    throw notFinite("score streams", "an infinite or NaN log-probability");
  }
  return results.map(({ weights, streamLogprobs, ...score }) => ({
    ...finishScore(score),
    ...(asksWeights ? { weights } : {}),
    ...(asksStreams ? { streamLogprobs } : {}),
  }));
}

/** A score to be filled in. */
export function emptyScore({ tokens, from }: ScoreRequest) {
  return { tokenLogprobs: new Float32Array(Math.max(0, tokens.length - from)), isGreedy: true };
}

/** Sums up; throws `NumericalError` unless the sum is finite. */
export function finishScore(score: { tokenLogprobs: Float32Array; isGreedy: boolean }): Score {
  const loglikelihood = score.tokenLogprobs.reduce((sum, x) => sum + x, 0);
  if (Number.isFinite(loglikelihood)) return { ...score, loglikelihood };
  throw notFinite("score a sequence", "an infinite or NaN log-probability");
}
