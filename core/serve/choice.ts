/** One choice of a response: tokens become text, log-probabilities and weights as they come. */
import type { GenerationRequest, SchedulerEvent, TokenLogprobs } from "../generate/request.ts";
import { TextStream } from "../generate/text_stream.ts";
import { RandomStream } from "../base/random.ts";
import type { ServeRequest } from "./request.ts";
import type { ServedModel } from "./service.ts";

/** A token of a choice. */
export interface ChoiceToken {
  readonly id: number;
  /** Undefined for the first token of a prompt, and where they are not asked for. */
  readonly logprobs?: TokenLogprobs | undefined;
  readonly weights?: Float32Array | undefined;
}

/** What a choice has gained. */
export interface Delta {
  /** Text that can no longer change. */
  readonly text: string;
  readonly tokens: readonly ChoiceToken[];
  readonly finishReason: "stop" | "length" | null;
}

/** A prompt as text and as tokens. */
export interface EncodedPrompt {
  readonly text: string;
  readonly tokens: readonly number[];
}

/** Which choice of a request it is. */
export interface ChoicePlace {
  /** Position in the response. */
  readonly index: number;
  /** Position among the choices of one prompt. */
  readonly sample: number;
}

export class Choice {
  readonly index: number;
  readonly model: ServedModel;
  readonly prompt: EncodedPrompt;
  readonly generation: GenerationRequest;
  newTokens = 0;
  cachedTokens = 0;
  finishReason: Delta["finishReason"] = null;
  readonly #echo: boolean;
  readonly #text: TextStream;

  constructor(
    model: ServedModel,
    request: ServeRequest,
    prompt: EncodedPrompt,
    { index, sample, seed }: ChoicePlace & { readonly seed: number },
  ) {
    this.index = index;
    this.model = model;
    this.prompt = prompt;
    this.#echo = request.echo;
    this.#text = new TextStream(
      model.tokenizer.streamDecoder({ skipSpecial: true }),
      request.stop,
    );
    const scoresPrompt = request.echo && request.topLogprobs !== undefined;
    const room = Math.max(model.maxLength - prompt.tokens.length, scoresPrompt ? 1 : 0);
    this.generation = {
      tokens: prompt.tokens,
      maxTokens: Math.min(request.maxTokens ?? room, room),
      sampling: request.sampling,
      random: new RandomStream(seed, sample),
      eosTokenIds: request.ignoreEos ? [] : model.engine.config.eosTokenIds,
      shouldStop: (token) => this.#text.push(token),
      streamWeights: request.weights,
      promptLogprobs: scoresPrompt,
      ...(request.topLogprobs === undefined ? {} : { topLogprobs: request.topLogprobs }),
    };
  }

  /** What an event adds; undefined when nothing is to be sent yet. Failures are the caller's. */
  accept(event: Exclude<SchedulerEvent, { kind: "failed" }>): Delta | undefined {
    if (event.kind === "prefilled") {
      this.cachedTokens = event.cached;
      if (!this.#echo) return undefined;
      const { text, tokens } = this.prompt;
      const scored = event.logprobs?.map((logprobs) => ({ id: logprobs.token, logprobs })) ?? [];
      return { text, tokens: [{ id: tokens[0]! }, ...scored], finishReason: null };
    }
    if (event.kind === "token") {
      this.newTokens++;
      const { token: id, logprobs, weights } = event;
      return { text: this.#text.take(), tokens: [{ id, logprobs, weights }], finishReason: null };
    }
    this.#text.finish();
    this.finishReason = event.reason === "length" ? "length" : "stop";
    return { text: this.#text.take(), tokens: [], finishReason: this.finishReason };
  }
}

/** Deltas in one. */
export function joinDeltas(deltas: readonly Delta[]): Delta {
  return {
    text: deltas.map(({ text }) => text).join(""),
    tokens: deltas.flatMap(({ tokens }) => tokens),
    finishReason: deltas.at(-1)?.finishReason ?? null,
  };
}
