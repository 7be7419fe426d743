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

/**
 * A continuation that a search found.
 *
 * @example
 * ```ts
 * import { type BeamCompletion, openModel } from "@parscale/parscale";
 *
 * using model = await openModel("qwen-p4");
 * const found: BeamCompletion[] = await model.beamSearch("The capital of France is");
 * for (const { score, text } of found) console.log(score, text);
 * ```
 */
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
  return results.map(({ tokens, score, reason: finishReason }) => {
    const text = tokenizer ? decodeCompletion(tokenizer, tokens, finishReason) : null;
    return { text: text && cutAtFirst(text, stops), tokens, finishReason, score };
  });
}

/** Returns whether new tokens spell a stop string at their end, which may have begun a few tokens before. */
function endsAt(tokenizer: Tokenizer, stops: readonly string[]) {
  const lengths = stops.map((stop) => tokenizer.encode(stop, { frame: false }).length);
  const longest = Math.max(...lengths) + 2;
  return (tokens: readonly number[]) => {
    const text = tokenizer.decode(tokens.slice(-longest), { skipSpecial: true });
    return stops.some((stop) => text.includes(stop));
  };
}

function cutAtFirst(text: string, stops: readonly string[]): string {
  const places = stops.map((stop) => text.indexOf(stop)).filter((place) => place >= 0);
  return text.slice(0, Math.min(text.length, ...places));
}
