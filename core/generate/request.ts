/** What generating is asked for, and what it answers. */
import type { RandomStream } from "../base/random.ts";
import type { SamplingOptions } from "../base/sampling.ts";

/** Why a text ended: an end token, a stop string, or the token limit. */
export type FinishReason = "eos" | "stop" | "length";

/** A prompt and how to continue it. */
export interface GenerationRequest {
  readonly tokens: readonly number[];
  /** At most this many new tokens; the model's context limits it further. */
  readonly maxTokens: number;
  readonly sampling: SamplingOptions;
  readonly random: RandomStream;
  /** Tokens that end the text; part of the result. */
  readonly eosTokenIds: readonly number[];
  /** Asked after every token (not after an end token); true ends the text there. */
  readonly shouldStop?: (token: number) => boolean;
}

/** What happened to one request, by its position in the input. */
export type GenerationEvent =
  | { readonly kind: "token"; readonly index: number; readonly token: number }
  | { readonly kind: "done"; readonly index: number; readonly reason: FinishReason }
  | { readonly kind: "failed"; readonly index: number; readonly error: unknown };
