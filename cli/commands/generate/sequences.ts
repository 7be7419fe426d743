/**
 * Decoding as `generate` offers it, in terms of prompts and text: sampling, or a search over beams.
 *
 * In: prompts, perhaps slow to come. Out: events, in the order in which things happen. A model folder
 * without a tokenizer still continues token ids; its results then have no text.
 */
import { DataError } from "../../../core/base/errors.ts";
import { RandomStream } from "../../../core/base/random.ts";
import { type BeamOptions, beamSearch } from "../../../core/generate/beam_search.ts";
import type { Engine } from "../../../core/generate/engine.ts";
import type { FinishReason } from "../../../core/generate/request.ts";
import {
  complete,
  type CompletionRequest,
  decodeCompletion,
} from "../../../core/session/stream.ts";
import type { Tokenizer } from "../../../core/tokenizer/tokenizer.ts";
import type { NamedSessions } from "../../input/named_models.ts";
import type { Prompt } from "../../input/prompts.ts";

/** One finished continuation. */
export interface Sequence {
  readonly text: string | null;
  readonly tokens: readonly number[];
  readonly finish_reason: FinishReason;
  readonly score?: number;
}

/** What happened to a prompt, by its position in the input. */
export type SequenceEvent =
  & { readonly at: number; readonly prompt: Prompt }
  & (
    | { readonly kind: "text"; readonly text: string }
    | { readonly kind: "done"; readonly sequences: readonly Sequence[] }
    | { readonly kind: "failed"; readonly error: unknown }
  );

/** Whether the prompt at a position of the input is to be passed over. */
export type IsDone = (at: number, prompt: Prompt) => boolean;

/** Flags that decide how a prompt is continued. */
export interface DecodingValues {
  readonly batch: number;
  readonly maxTokens: number;
  readonly temperature: number;
  readonly topK: number;
  readonly topP: number;
  readonly minP: number;
  readonly stop: readonly string[];
  readonly eos: readonly number[];
  readonly ignoreEos: boolean;
  readonly numBeams: number;
  readonly numReturn: number;
  readonly lengthPenalty: number;
  readonly earlyStopping: "false" | "true" | "never";
  readonly repetitionPenalty: number;
  readonly seed: number;
}

/** A sampled sequence under way. */
interface Open {
  readonly at: number;
  /** Finished samples of the same prompt, in the order of their random streams. */
  readonly samples: Sequence[];
  /** Which of them this is. */
  readonly place: number;
  readonly prompt: Prompt;
}

/** Decoding with the chosen method. */
export class Decoding {
  readonly #models: NamedSessions;
  readonly #tokenizer: Tokenizer | undefined;
  readonly #values: DecodingValues;
  readonly #eos: readonly number[];

  constructor(models: NamedSessions, tokenizer: Tokenizer | undefined, values: DecodingValues) {
    this.#models = models;
    this.#tokenizer = tokenizer;
    this.#values = values;
    const own = values.eos.length > 0 ? values.eos : models.session.config.eosTokenIds;
    this.#eos = values.ignoreEos ? [] : own;
  }

  /** Whether results have text; without a tokenizer they are ids. */
  get hasText(): boolean {
    return this.#tokenizer !== undefined;
  }

  /** Continues all prompts, each `numReturn` times, but for those that were continued before. */
  run(
    prompts: AsyncIterable<Prompt>,
    isDone: IsDone = () => false,
  ): AsyncGenerator<SequenceEvent> {
    return this.#values.numBeams > 1
      ? this.#search(prompts, isDone)
      : this.#sample(prompts, isDone);
  }

  #engineOf({ adapter }: Prompt): Engine {
    const { session, adapters } = this.#models;
    return (adapter === undefined ? session : adapters.get(adapter)!).engine;
  }

  async *#sample(
    prompts: AsyncIterable<Prompt>,
    isDone: IsDone,
  ): AsyncGenerator<SequenceEvent> {
    const values = this.#values;
    const requests = async function* (this: Decoding): AsyncGenerator<CompletionRequest<Open>> {
      let at = -1;
      for await (const prompt of prompts) {
        at++;
        if (isDone(at, prompt)) continue;
        const samples: Sequence[] = [];
        for (let place = 0; place < values.numReturn; place++) {
          yield {
            of: { at, samples, place, prompt },
            engine: this.#engineOf(prompt),
            tokens: prompt.tokens,
            maxTokens: values.maxTokens,
            sampling: values,
            // By the place in the input, whatever was done before.
            random: new RandomStream(values.seed, at * values.numReturn + place),
            eosTokenIds: this.#eos,
            stop: values.stop,
          };
        }
      }
    }.call(this);
    const failed = new Set<number>();
    const { engine } = this.#models.session;
    for await (const event of complete(engine, this.#tokenizer, requests, values)) {
      const { of: { at, samples, place, prompt }, stream, text, finishReason, error } = event;
      if (error !== undefined) {
        // All samples of a prompt fail alike; one is enough to tell.
        if (!failed.has(at)) yield { kind: "failed", at, prompt, error };
        failed.add(at);
        continue;
      }
      if (text !== "") yield { kind: "text", at, prompt, text };
      if (finishReason === undefined) continue;
      const { text: whole, tokens } = stream;
      samples[place] = { text: whole, tokens, finish_reason: finishReason };
      // A sample that is not finished has no key yet.
      if (Object.keys(samples).length < values.numReturn) continue;
      yield { kind: "done", at, prompt, sequences: samples };
    }
  }

  async *#search(
    prompts: AsyncIterable<Prompt>,
    isDone: IsDone,
  ): AsyncGenerator<SequenceEvent> {
    const { numBeams, numReturn, maxTokens, lengthPenalty, earlyStopping } = this.#values;
    const options: BeamOptions = {
      beams: numBeams,
      maxTokens,
      lengthPenalty,
      earlyStopping: earlyStopping === "never" ? earlyStopping : earlyStopping === "true",
      repetitionPenalty: this.#values.repetitionPenalty,
      eosTokenIds: this.#eos,
    };
    let at = -1;
    for await (const prompt of prompts) {
      at++;
      if (isDone(at, prompt)) continue;
      try {
        const results = await beamSearch(this.#engineOf(prompt), prompt.tokens, options);
        const sequences = results.slice(0, numReturn).map((result) => this.#beamSequence(result));
        for (const { text } of sequences) if (text) yield { kind: "text", at, prompt, text };
        yield { kind: "done", at, prompt, sequences };
      } catch (error) {
        if (!(error instanceof DataError)) throw error;
        yield { kind: "failed", at, prompt, error };
      }
    }
  }

  #beamSequence(
    result: { tokens: readonly number[]; score: number; reason: FinishReason },
  ): Sequence {
    const { tokens, score, reason } = result;
    const text = this.#tokenizer ? decodeCompletion(this.#tokenizer, tokens, reason) : null;
    const places = this.#values.stop.map((stop) => text?.indexOf(stop) ?? -1);
    const cuts = places.filter((place) => place >= 0);
    if (text === null || cuts.length === 0) return { text, tokens, finish_reason: reason, score };
    return { text: text.slice(0, Math.min(...cuts)), tokens, finish_reason: "stop", score };
  }
}
