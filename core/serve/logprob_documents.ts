/** Log-probabilities and stream weights of a choice in the layout of the API. */
import { unspell } from "../tokenizer/byte_alphabet.ts";
import type { Tokenizer } from "../tokenizer/types.ts";
import type { CompletionToken } from "../session/stream.ts";

/** Lists of `/v1/completions`; equal lengths. Those of a stream continue each other. */
export class CompletionLogprobs {
  readonly #decoder: ReturnType<Tokenizer["streamDecoder"]>;
  #offset = 0;

  constructor(private readonly tokenizer: Tokenizer) {
    this.#decoder = tokenizer.streamDecoder();
  }

  /** The lists for the tokens that come next. The first token of a text has no log-probability. */
  document(tokens: readonly CompletionToken[]) {
    const textOf = (id: number) => nameOf(this.tokenizer, id);
    return {
      tokens: tokens.map(({ id }) => textOf(id)),
      token_logprobs: tokens.map(({ logprobs }) => logprobs?.logprob ?? null),
      top_logprobs: tokens.map(({ logprobs }) => {
        if (!logprobs) return null;
        const best: Record<string, number> = {};
        for (const { token, logprob } of [...logprobs.top, logprobs]) {
          const text = textOf(token);
          // Ids of special tokens may share a text.
          if (!(best[text]! >= logprob)) best[text] = logprob;
        }
        return best;
      }),
      text_offset: tokens.map(({ id }) => {
        const offset = this.#offset;
        this.#offset += [...this.#decoder.push(id)].length;
        return offset;
      }),
    };
  }
}

/** Log-probabilities of `/v1/chat/completions`. */
export function chatLogprobs(tokenizer: Tokenizer, tokens: readonly CompletionToken[]) {
  const entry = (id: number, logprob: number) => ({
    token: tokenizer.decode([id]),
    bytes: bytesOf(tokenizer, id),
    logprob,
  });
  const content = tokens.flatMap(({ id, logprobs }) => {
    if (!logprobs) return [];
    const top = logprobs.top.map(({ token, logprob }) => entry(token, logprob));
    return [{ ...entry(id, logprobs.logprob), top_logprobs: top }];
  });
  return { content, refusal: null };
}

/** Bytes of a token that is part of a character, as its text shows. */
function partialBytes(tokenizer: Tokenizer, id: number, text: string): Uint8Array | undefined {
  const isPart = tokenizer.kind === "byte-level-bpe" && text.includes("\ufffd");
  return isPart ? unspell(tokenizer.tokenText(id)) : undefined;
}

/** Bytes of a token, which may be part of a character. */
function bytesOf(tokenizer: Tokenizer, id: number): number[] {
  const text = tokenizer.decode([id]);
  return [...partialBytes(tokenizer, id, text) ?? new TextEncoder().encode(text)];
}

/** Text of a token, or as in the API of OpenAI the bytes of one that is part of a character. */
function nameOf(tokenizer: Tokenizer, id: number): string {
  const text = tokenizer.decode([id]), bytes = partialBytes(tokenizer, id, text);
  if (!bytes) return text;
  return "bytes:" +
    Array.from(bytes, (byte) => `\\x${byte.toString(16).padStart(2, "0")}`).join("");
}

/** The extension `parscale`: aggregation weights of every new token. */
export function streamWeights(
  tokenizer: Tokenizer,
  streams: number,
  tokens: readonly CompletionToken[],
) {
  return {
    streams,
    tokens: tokens.flatMap(({ id, weights }) => {
      if (!weights) return [];
      const rounded = Array.from(weights, (weight) => Math.round(weight * 1e4) / 1e4);
      return [{ id, text: tokenizer.decode([id]), weights: rounded }];
    }),
  };
}
