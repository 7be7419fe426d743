/** Generation requests and the events that answer them. */
import type { RandomStream } from "../base/random.ts";
import type { SamplingOptions } from "../base/sampling.ts";
import type { Engine } from "./engine.ts";
import type { TokenConstraint } from "./logit_rules.ts";

/** Why a text ended: an end token, a stop string, or the token limit. */
export type FinishReason = "eos" | "stop" | "length";

/** A prompt and how to continue it. */
export interface GenerationRequest {
  readonly tokens: readonly number[];
  /** Its engine for `generate`, where there are several on one device; they take turns. */
  readonly engine?: Engine;
  /** Whose request it is: owners take turns in a scheduler; by default each request is its own. */
  readonly owner?: object;
  /** At most this many new tokens; the model's context limits it further. */
  readonly maxTokens: number;
  readonly sampling: SamplingOptions;
  readonly random: RandomStream;
  /** Tokens that end the text; part of the result. */
  readonly eosTokenIds: readonly number[];
  /** Asked after every token (not after an end token); true ends the text there. */
  readonly shouldStop?: (token: number) => boolean;
  /** Limits which tokens may come, such as those that a grammar allows. */
  readonly constraint?: TokenConstraint;
  /** Returns the aggregation weights of every new token. */
  readonly streamWeights?: boolean;
  /** Number of likeliest tokens to report with the log-probability of every new token. */
  readonly topLogprobs?: number;
  /**
   * Returns the log-probabilities of the prompt, too, with as many likeliest tokens as `topLogprobs`
   * says. Such a request may have 0 new tokens, and has 1 even when the prompt fills the context.
   */
  readonly promptLogprobs?: boolean;
}

/** Log-probability of a token under the model, before temperature and filters. */
export interface TokenLogprob {
  readonly token: number;
  readonly logprob: number;
}

/** A token beside the likeliest ones, best first. */
export interface TokenLogprobs extends TokenLogprob {
  readonly top: readonly TokenLogprob[];
}

/** A new token of a request. */
export interface TokenEvent {
  readonly kind: "token";
  readonly index: number;
  readonly token: number;
  /** Present where the request asks for `topLogprobs`. */
  readonly logprobs?: TokenLogprobs | undefined;
  /** Aggregation weights [P], where the request asks for them. */
  readonly weights?: Float32Array | undefined;
  /** Of a step with a draft: its tokens, told with the first new token, and if this one came by keeping one. */
  readonly draft?: { readonly tokens: number; readonly isKept: boolean };
}

/** Event of one request, by its position in the input. */
export type GenerationEvent =
  | TokenEvent
  | { readonly kind: "done"; readonly index: number; readonly reason: FinishReason }
  | { readonly kind: "failed"; readonly index: number; readonly error: unknown };

/** The prompt of a request is in the KV cache; its first token comes next. */
export interface PrefilledEvent {
  readonly kind: "prefilled";
  readonly index: number;
  /** Tokens that the prefix cache had. */
  readonly cached: number;
  /** Of prompt tokens from the second on, where the request asks for them. */
  readonly logprobs?: readonly TokenLogprobs[] | undefined;
}

/** Event of a scheduler. */
export type SchedulerEvent = GenerationEvent | PrefilledEvent;
