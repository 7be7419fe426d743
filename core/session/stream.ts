/**
 * Turns the events of a request into text: stop strings, incomplete characters, special tokens.
 *
 * A stop string may begin in one token and end in another, so text that could still become one is
 * held back until it is decided. What follows a stop string inside the same token is dropped.
 */
import type { Engine } from "../generate/engine.ts";
import {
  type FinishReason,
  generate,
  type GenerateRunOptions,
  type GenerationRequest,
} from "../generate/generate.ts";
import type { SchedulerEvent, TokenLogprobs } from "../generate/request.ts";
import type { StreamDecoder, Tokenizer } from "../tokenizer/types.ts";

/** A finished continuation. */
export interface Completion {
  /** Without stop strings and special tokens. */
  readonly text: string;
  /** New tokens, the end token included. */
  readonly tokens: readonly number[];
  /** `eos` for an end token, `stop` for a stop string, `length` for the limit. */
  readonly finishReason: FinishReason;
}

/** A new token of a completion. */
export interface CompletionToken {
  readonly id: number;
  /** Present where the request asks for them. */
  readonly logprobs?: TokenLogprobs | undefined;
  /** Aggregation weights [P], where they are asked for. */
  readonly weights?: Float32Array | undefined;
}

/** Growth of a completion by one event. */
export interface CompletionDelta {
  /** Text that can no longer change. */
  readonly text: string;
  readonly tokens: readonly CompletionToken[];
  readonly finishReason: FinishReason | undefined;
}

const NOTHING: CompletionDelta = { text: "", tokens: [], finishReason: undefined };

/** The completion of one request while its tokens come. */
export class CompletionStream {
  /** New tokens, the end token included. */
  readonly tokens: number[] = [];
  /** Tokens drafted, and those of them that were kept; see core/generate/speculation.ts. */
  drafted = 0;
  kept = 0;
  readonly #text: TextStream | undefined;

  /** Without a tokenizer there is no text. */
  constructor(tokenizer: Tokenizer | undefined, stops: readonly string[] = []) {
    this.#text = tokenizer && textStreamOf(tokenizer, stops);
  }

  /** Text so far without stop strings and special tokens; null without a tokenizer. */
  get text(): string | null {
    return this.#text?.text ?? null;
  }

  /** Returns whether the text ends at a stop string with this token; see `GenerationRequest`. */
  readonly shouldStop = (token: number): boolean => this.#text?.push(token) ?? false;

  /** Takes the next event of the request; throws the error of one that failed. */
  take(event: SchedulerEvent): CompletionDelta {
    if (event.kind === "failed") throw event.error;
    // The scheduler asked `shouldStop` already; the text comes with the event of its token.
    if (event.kind === "prefilled") return NOTHING;
    if (event.kind === "done") {
      this.#text?.finish();
      return { text: this.#text?.take() ?? "", tokens: [], finishReason: event.reason };
    }
    const { token: id, logprobs, weights, draft } = event;
    this.tokens.push(id);
    this.drafted += draft?.tokens ?? 0;
    this.kept += Number(draft?.isKept ?? false);
    const text = this.#text?.take() ?? "";
    return { text, tokens: [{ id, logprobs, weights }], finishReason: undefined };
  }
}

/** A prompt to complete. */
export interface CompletionRequest<T> extends Omit<GenerationRequest, "shouldStop"> {
  /** Key of the caller, returned with every event. */
  readonly of: T;
  /** Strings that end the text and are not part of it. */
  readonly stop?: readonly string[];
}

/** Event of a completion: it gained a token, ended, or failed. */
export interface CompletionEvent<T> extends CompletionDelta {
  readonly of: T;
  readonly stream: CompletionStream;
  readonly error?: unknown;
}

/** Completes prompts, at most `batch` at a time; see `generate`. */
export async function* complete<T>(
  engine: Engine,
  tokenizer: Tokenizer | undefined,
  requests: Iterable<CompletionRequest<T>> | AsyncIterable<CompletionRequest<T>>,
  run: GenerateRunOptions,
): AsyncGenerator<CompletionEvent<T>> {
  const open = new Map<number, { of: T; stream: CompletionStream }>();
  const bodies = async function* (): AsyncGenerator<GenerationRequest> {
    let index = 0;
    for await (const { of, stop, ...request } of requests) {
      const stream = new CompletionStream(tokenizer, stop);
      open.set(index++, { of, stream });
      yield { ...request, shouldStop: stream.shouldStop };
    }
  };
  for await (const event of generate(engine, bodies(), run)) {
    const { of, stream } = open.get(event.index)!;
    if (event.kind !== "token") open.delete(event.index);
    if (event.kind !== "failed") yield { of, stream, ...stream.take(event) };
    else yield { of, stream, ...NOTHING, error: event.error };
  }
}

/** Text of a finished completion without its special tokens; ends before the first of `stops`. */
export function decodeCompletion(
  tokenizer: Tokenizer,
  tokens: readonly number[],
  reason: FinishReason,
  stops: readonly string[] = [],
): string {
  const said = reason === "eos" ? tokens.slice(0, -1) : tokens;
  if (stops.length === 0) return tokenizer.decode(said, { skipSpecial: true });
  const stream = textStreamOf(tokenizer, stops);
  said.some((token) => stream.push(token));
  stream.finish();
  return stream.text;
}

/** Returns an empty text whose special tokens count for stop strings and are not shown. */
export function textStreamOf(tokenizer: Tokenizer, stops: readonly string[] = []): TextStream {
  const decoder = tokenizer.streamDecoder({ skipSpecial: true });
  return new TextStream(decoder, stops, tokenizer.streamDecoder());
}

/**
 * Text of one sequence under way. Stop strings are looked for in the text with its special tokens, as
 * transformers and lm-evaluation-harness do; `text` has none of these.
 */
export class TextStream {
  /** Everything decoded so far, cut before a stop string once one is found. */
  text = "";
  readonly #stops: readonly string[];
  readonly #longest: number;
  /** The text with special tokens, where there are stop strings. */
  #spelled = "";
  /** Lengths of both texts before each token. */
  readonly #starts: { readonly spelled: number; readonly text: number }[] = [];
  #shown = 0;
  #stopped = false;

  /** Empty stop strings are ignored. `speller` decodes special tokens, too. */
  constructor(
    private readonly decoder: StreamDecoder,
    stops: readonly string[] = [],
    private readonly speller?: StreamDecoder,
  ) {
    this.#stops = stops.filter((stop) => stop !== "");
    this.#longest = Math.max(0, ...this.#stops.map(({ length }) => length));
  }

  /** Adds a token; true when the text now ends at a stop string. */
  push(token: number): boolean {
    this.#append((decoder) => decoder.push(token));
    return this.#stopped;
  }

  /** Adds what the decoder held back; to be called once, after the last token. */
  finish(): void {
    if (!this.#stopped) this.#append((decoder) => decoder.flush());
    this.#stopped = true;
  }

  /** New text that later tokens cannot change. */
  take(): string {
    const certain = this.#stopped ? this.text.length : this.#lengthBefore(this.#heldBack());
    const end = Math.max(this.#shown, certain);
    const fresh = this.text.slice(this.#shown, end);
    this.#shown = end;
    return fresh;
  }

  #append(decode: (decoder: StreamDecoder) => string): void {
    const piece = decode(this.decoder);
    if (this.#longest === 0) {
      this.text += piece;
      return;
    }
    const from = Math.max(0, this.#spelled.length - this.#longest + 1);
    this.#starts.push({ spelled: this.#spelled.length, text: this.text.length });
    this.#spelled += this.speller ? decode(this.speller) : piece;
    this.text += piece;
    const places = this.#stops.map((stop) => this.#spelled.indexOf(stop, from));
    const found = places.filter((at) => at >= 0);
    if (found.length === 0) return;
    this.text = this.text.slice(0, this.#lengthBefore(Math.min(...found)));
    this.#stopped = true;
  }

  /** Length of the text without special tokens before a place in the one with them. */
  #lengthBefore(at: number): number {
    const token = this.#starts.findLast(({ spelled }) => spelled <= at);
    return token ? Math.min(this.text.length, token.text + at - token.spelled) : this.text.length;
  }

  /** Place of the longest end of the text that may become a stop string. */
  #heldBack(): number {
    const lengths = this.#stops.map((stop) => lengthBegun(this.#spelled, stop));
    return this.#spelled.length - Math.max(0, ...lengths);
  }
}

/** Length of the longest end of a text that begins a word, without being all of it. */
export function lengthBegun(text: string, word: string): number {
  let length = Math.min(word.length - 1, text.length);
  while (length > 0 && !text.endsWith(word.slice(0, length))) length--;
  return length;
}
