/** One choice of a response: tokens become text, log-probabilities and weights as they come. */
import type { GenerationRequest, SchedulerEvent } from "../generate/request.ts";
import type { TokenConstraint } from "../generate/logit_rules.ts";
import { RandomStream } from "../base/random.ts";
import { type CompletionDelta, CompletionStream } from "../session/stream.ts";
import type { ServeRequest } from "./request.ts";
import type { ServedModel } from "./service.ts";
import type { ToolCallDelta, ToolCallParser } from "./tool_calls.ts";

/** Growth of a choice; the first token of a prompt has no log-probability. */
export interface Delta extends Omit<CompletionDelta, "finishReason"> {
  readonly calls: readonly ToolCallDelta[];
  readonly finishReason: "stop" | "length" | "tool_calls" | null;
}

/** A prompt as text and as tokens. */
export interface EncodedPrompt {
  readonly text: string;
  readonly tokens: readonly number[];
}

export class Choice {
  readonly index: number;
  readonly generation: GenerationRequest;
  cachedTokens = 0;
  finishReason: Delta["finishReason"] = null;
  /** True while the prompt is still to be repeated. */
  #echo: boolean;
  readonly #parser: ToolCallParser | undefined;
  readonly #stream: CompletionStream;

  constructor(
    readonly model: ServedModel,
    request: ServeRequest,
    readonly prompt: EncodedPrompt,
    { index, seed, constraint, parser }: {
      /** Position in the response, and random stream of the seed. */
      readonly index: number;
      readonly seed: number;
      readonly constraint: TokenConstraint | undefined;
      readonly parser: ToolCallParser | undefined;
    },
  ) {
    this.index = index;
    this.#echo = request.echo;
    this.#parser = parser;
    this.#stream = new CompletionStream(model.session.tokenizer, request.stop);
    const scoresPrompt = request.echo && request.topLogprobs !== undefined;
    const room = Math.max(model.maxLength - prompt.tokens.length, scoresPrompt ? 1 : 0);
    this.generation = {
      tokens: prompt.tokens,
      maxTokens: Math.min(request.maxTokens ?? room, room),
      sampling: request.sampling,
      random: new RandomStream(seed, index),
      eosTokenIds: request.ignoreEos ? [] : model.session.config.eosTokenIds,
      shouldStop: (token) => this.#stream.shouldStop(token) || request.stopTokenIds.includes(token),
      streamWeights: request.weights,
      promptLogprobs: scoresPrompt,
      ...(constraint ? { constraint } : {}),
      ...(request.topLogprobs === undefined ? {} : { topLogprobs: request.topLogprobs }),
    };
  }

  /** Tokens drafted for it, and those of them that were kept. */
  get drafts(): Pick<CompletionStream, "drafted" | "kept"> {
    return this.#stream;
  }

  /** Tokens generated so far. */
  get newTokens(): number {
    return this.#stream.tokens.length;
  }

  /** Returns what an event adds; undefined when nothing is to be sent yet. Failures are the caller's. */
  accept(event: Exclude<SchedulerEvent, { kind: "failed" }>): Delta | undefined {
    if (event.kind === "prefilled") {
      this.cachedTokens = event.cached;
      if (!this.#echo) return undefined;
      this.#echo = false;
      const { text, tokens } = this.prompt;
      const scored = event.logprobs?.map((logprobs) => ({ id: logprobs.token, logprobs })) ?? [];
      return { text, calls: [], tokens: [{ id: tokens[0]! }, ...scored], finishReason: null };
    }
    const { text, tokens, finishReason } = this.#stream.take(event);
    const parts = this.#parser ? [this.#parser.push(text)] : [{ text, calls: [] }];
    if (finishReason) {
      if (this.#parser) parts.push(this.#parser.end());
      const called = this.#parser && this.#parser.count > 0 ? "tool_calls" : "stop";
      this.finishReason = finishReason === "length" ? "length" : called;
    }
    return {
      // Nothing is prefilled where no token is asked for.
      text: (this.#echo ? this.prompt.text : "") + parts.map(({ text }) => text).join(""),
      calls: parts.flatMap(({ calls }) => calls),
      tokens,
      finishReason: this.finishReason,
    };
  }
}

/** Deltas in one. */
export function joinDeltas(deltas: readonly Delta[]): Delta {
  return {
    text: deltas.map(({ text }) => text).join(""),
    calls: deltas.flatMap(({ calls }) => calls),
    tokens: deltas.flatMap(({ tokens }) => tokens),
    finishReason: deltas.at(-1)?.finishReason ?? null,
  };
}
