/** Interface of all tokenizers, whichever code does the work. */
import { DataError } from "../base/errors.ts";

/** Options of encoding text. */
export interface EncodeOptions {
  /**
   * True if special tokens written out in the text become one id each (default true). Without, they
   * are plain text; added tokens that are not special are still found, and no frame is added.
   */
  readonly specialTokens?: boolean;
  /**
   * True to add the tokens that the tokenizer puts around every text, such as the beginning-of-text
   * token of Llama 3; Qwen's has none. By default they are added unless the text begins with that token.
   */
  readonly frame?: boolean;
  /** True for text with marks of `markSpecial`, which stand for text (default false). */
  readonly isMarked?: boolean;
}

/** Options of decoding ids. */
export interface DecodeOptions {
  /** Leaves special tokens out of the text (default false). */
  readonly skipSpecial?: boolean;
}

/** Turns ids that arrive one by one into text. */
export interface StreamDecoder {
  /** Takes one id and returns the text that can no longer change. */
  push(id: number): string;
  /** Returns what was held back, with U+FFFD for characters that stayed incomplete. */
  flush(): string;
}

/** Origin of a tokenizer, and the content of its files besides the vocabulary. */
export interface TokenizerInfo {
  /** The folder, for messages. */
  readonly directory: string;
  /** Jinja template that turns a list of messages into a prompt. */
  readonly chatTemplate?: string;
  /** The template for requests with tools, where the model has one of its own for them. */
  readonly toolTemplate?: string;
  /** Variables of the templates, for every conversation that is rendered. */
  readonly templateVariables?: Readonly<Record<string, unknown>> | undefined;
  /** Tokens that have a role, such as `eos_token`, by role. */
  readonly namedTokens: Readonly<Record<string, string>>;
}

/** Translates between text and token ids. */
export interface Tokenizer extends TokenizerInfo {
  /** Own encoder, or the library for layouts that it does not know. */
  readonly kind: "byte-level-bpe" | "huggingface";
  /** Highest id of a token + 1, added tokens included. */
  readonly vocabSize: number;
  /** Bytes of the longest token; Infinity where a token may stand for any length of text. */
  readonly longestToken: number;
  /** Ids of a text. Lone surrogates count as U+FFFD. */
  encode(text: string, options?: EncodeOptions): number[];
  /**
   * A text with marks in place of its special tokens, so that they stay text when it is encoded with
   * `isMarked` as a part of another.
   * @throws {DataError} for a tokenizer of the library, which finds special tokens itself
   */
  markSpecial(text: string): string;
  /** Text of ids; bytes that are not UTF-8 become U+FFFD, padding rows of the model nothing. */
  decode(ids: Iterable<number>, options?: DecodeOptions): string;
  /** Starts decoding ids one by one. */
  streamDecoder(options?: DecodeOptions): StreamDecoder;
  /** A token as the vocabulary spells it, for tables; empty for an id without token. */
  tokenText(id: number): string;
  /** Id of a token in the vocabulary's spelling. */
  idOf(token: string): number | undefined;
}

/** Throws unless `id` is below `limit`, the number of rows the model has. */
export function requireId(id: number, limit: number): void {
  if (Number.isInteger(id) && id >= 0 && id < limit) return;
  throw new DataError(
    `token id ${id} is not in the vocabulary of ${limit}, expected 0 to ${limit - 1}`,
    { hints: ["check that the ids were made by the tokenizer of this model"] },
  );
}

/** Returns whether a text is framed already. */
export function beginsWith({ namedTokens }: Pick<Tokenizer, "namedTokens">, text: string): boolean {
  const { bos_token: bos } = namedTokens;
  return bos !== undefined && text.startsWith(bos);
}
