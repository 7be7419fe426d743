/** Continues prompts by sampling or by a search over beams; events come in the order of time. */
import { DataError } from "../../../core/base/errors.ts";
import { RandomStream } from "../../../core/base/random.ts";
import type { GenerateRunOptions } from "../../../core/generate/generate.ts";
import type { FinishReason } from "../../../core/generate/request.ts";
import type { Session } from "../../../core/session/session.ts";
import { complete, type CompletionRequest } from "../../../core/session/stream.ts";
import type { Prompt } from "../../input/prompts.ts";
import type { Decoding } from "./plan.ts";

/** One finished continuation. */
export interface Sequence {
  readonly text: string | null;
  readonly tokens: readonly number[];
  readonly finish_reason: FinishReason;
  readonly score?: number;
}

/** Times of a prompt, from when it was taken from the input. */
export interface Timing {
  /** Milliseconds to its first text. */
  readonly ttft_ms: number;
  /** New tokens over all of its time. */
  readonly tokens_per_s: number;
  /** New tokens over decode steps; undefined for beams. */
  readonly tokens_per_step: number | undefined;
}

/** Event of a prompt, by its position in the input. */
export type SequenceEvent =
  & { readonly prompt: Prompt }
  & (
    | { readonly kind: "text"; readonly text: string }
    | {
      readonly kind: "done";
      readonly sequences: readonly Sequence[];
      /** Their tokens that were drafted and kept. */
      readonly kept?: number;
      readonly timing?: Timing;
    }
    | { readonly kind: "failed"; readonly error: unknown }
  );

/** The session of every prompt: the backbone, or an adapter over it. */
export type SessionOf = (prompt: Prompt) => Session;

/** Continues prompts one after the other, each by the best of several beams. */
export async function* searchSequences(
  sessionOf: SessionOf,
  prompts: AsyncIterable<Prompt>,
  { maxTokens, numReturn, stop, eosTokenIds, jsonSchema, beams }: Decoding,
): AsyncGenerator<SequenceEvent> {
  const options = { ...beams, maxTokens, stop, jsonSchema, ...(eosTokenIds && { eosTokenIds }) };
  for await (const prompt of prompts) {
    try {
      const found = await sessionOf(prompt).beamSearch(prompt.tokens, options);
      const sequences = found.slice(0, numReturn)
        .map(({ text, tokens, finishReason, score }) => (
          { text, tokens, finish_reason: finishReason, score }
        ));
      for (const { text } of sequences) if (text) yield { kind: "text", prompt, text };
      yield { kind: "done", prompt, sequences };
    } catch (error) {
      if (!(error instanceof DataError)) throw error;
      yield { kind: "failed", prompt, error };
    }
  }
}

/** A finished sample, and the number of its tokens that were drafted. */
interface Sample {
  readonly sequence: Sequence;
  readonly kept: number;
}

/** A sampled sequence under way. */
interface Open {
  readonly prompt: Prompt;
  /** Finished samples of the same prompt, in the order of their random streams. */
  readonly samples: Sample[];
  /** Number of this one among them. */
  readonly place: number;
}

/** Continues prompts, `batch` sequences at a time, each `numReturn` times. */
export async function* sampleSequences(
  sessionOf: SessionOf,
  prompts: AsyncIterable<Prompt>,
  { numReturn, eosTokenIds, seed, jsonSchema: schema, ...decoding }: Decoding,
  { session, ...run }: GenerateRunOptions & { readonly session: Session },
): AsyncGenerator<SequenceEvent> {
  const requests = async function* (): AsyncGenerator<CompletionRequest<Open>> {
    for await (const prompt of prompts) {
      const samples: Sample[] = [];
      const { engine, config } = sessionOf(prompt);
      for (let place = 0; place < numReturn; place++) {
        const constraint = schema && await session.constraint({ schema });
        yield {
          ...decoding,
          ...(constraint && { constraint }),
          of: { prompt, samples, place },
          engine,
          tokens: prompt.tokens,
          // By the place in the input, so that a resumed run draws the same numbers.
          random: new RandomStream(seed, prompt.at * numReturn + place),
          eosTokenIds: eosTokenIds ?? config.eosTokenIds,
        };
      }
    }
  };
  const tokenizer = await session.openTokenizerIfAny();
  const failed = new Set<Prompt>();
  for await (const event of complete(session.engine, tokenizer, requests(), run)) {
    const { of: { prompt, samples, place }, stream, text, finishReason, error } = event;
    if (error !== undefined) {
      // All samples of a prompt fail alike; one is enough to tell.
      if (!failed.has(prompt)) yield { kind: "failed", prompt, error };
      failed.add(prompt);
      continue;
    }
    if (text !== "") yield { kind: "text", prompt, text };
    if (finishReason === undefined) continue;
    const { text: whole, tokens, kept } = stream;
    samples[place] = { sequence: { text: whole, tokens, finish_reason: finishReason }, kept };
    // A sample that is not finished has no key yet.
    if (Object.keys(samples).length === numReturn) {
      const sequences = samples.map(({ sequence }) => sequence);
      yield { kind: "done", prompt, sequences, kept: samples.reduce((n, { kept }) => n + kept, 0) };
    }
  }
}
