/** Beam search in terms of text. */
import { type BeamOptions, beamSearch } from "../generate/beam_search.ts";
import type { Engine } from "../generate/engine.ts";
import type { PrefixCache } from "../generate/prefix_cache.ts";
import type { Tokenizer } from "../tokenizer/types.ts";
import { type Completion, decodeCompletion } from "./stream.ts";

/** Request for a beam search over a prompt's continuations. */
export interface BeamRequest extends Omit<BeamOptions, "shouldStop"> {
  readonly tokens: readonly number[];
  /** Strings that end a sequence and are not part of its text. */
  readonly stop?: readonly string[];
}

/** A continuation that a search found. */
export interface BeamCompletion extends Omit<Completion, "text"> {
  /** Without stop strings and special tokens; null without a tokenizer. */
  readonly text: string | null;
  /** Sum of log-probabilities over length to the power of the length penalty. */
  readonly score: number;
}

/** Searches; continuations best first, as many as beams. */
export async function completeByBeams(
  engine: Engine,
  tokenizer: Tokenizer | undefined,
  { tokens, stop = [], ...options }: BeamRequest,
  prefixes: PrefixCache,
): Promise<BeamCompletion[]> {
  const stops = stop.filter((text) => text !== "");
  const shouldStop = tokenizer && stops.length > 0 ? endsAt(tokenizer, stops) : undefined;
  const ends = shouldStop ? { ...options, shouldStop } : options;
  const results = await beamSearch(engine, tokens, ends, prefixes);
  return results.map(({ tokens, score, reason: finishReason }) => ({
    text: tokenizer ? decodeCompletion(tokenizer, tokens, finishReason, stops) : null,
    tokens,
    finishReason,
    score,
  }));
}

/** Returns whether new tokens, special ones too, spell a stop string with the last of them. */
function endsAt(tokenizer: Tokenizer, stops: readonly string[]) {
  // A token has at least a byte, unless it is none of the vocabulary.
  const longest = Math.max(...stops.map((stop) => new TextEncoder().encode(stop).length)) + 2;
  return (tokens: readonly number[]) => {
    const text = tokenizer.decode(tokens.slice(-longest));
    return stops.some((stop) => text.includes(stop));
  };
}
