/**
 * Byte-level byte pair encoding in the layout of Qwen2, 2.5 and 3.
 *
 * Text is cut at added tokens, brought into Unicode's NFC, cut into words, and each word's UTF-8
 * bytes are merged into tokens. Decoding joins the tokens' bytes. Ids equal those of Hugging Face's
 * tokenizers. Because of NFC some texts do not decode to themselves.
 */
import { type AddedToken, AddedTokenFinder } from "./added_tokens.ts";
import type { MergeTable } from "./merges.ts";
import {
  type DecodeOptions,
  type EncodeOptions,
  requireId,
  type StreamDecoder,
  type Tokenizer,
  type TokenizerInfo,
} from "./types.ts";
import { toNfc } from "./nfc.ts";
import type { Vocabulary } from "./vocabulary.ts";
import { WordSplitter } from "./word_splitter.ts";

/** Words from this many characters on are rare and long: not worth remembering. */
const LONG_WORD = 64;

/** Remembered words; when full, all are forgotten, which keeps memory bounded at little cost. */
const CACHE_WORDS = 1 << 16;

const UTF8 = new TextEncoder();

/** What a tokenizer is built from. */
export interface ByteLevelBpeParts {
  readonly vocabulary: Vocabulary;
  readonly merges: MergeTable;
  readonly addedTokens: readonly AddedToken[];
  readonly info: TokenizerInfo;
  /** Rows of the model's embedding, which may exceed the tokens. */
  readonly modelVocabSize: number;
}

/** The encoder and decoder of this folder. */
export class ByteLevelBpe implements Tokenizer {
  readonly kind = "byte-level-bpe" as const;
  readonly directory: string;
  readonly chatTemplate: string | undefined;
  readonly namedTokens: Readonly<Record<string, string>>;
  readonly vocabSize: number;
  readonly #vocabulary: Vocabulary;
  readonly #merges: MergeTable;
  readonly #added: ReadonlyMap<number, AddedToken & { readonly bytes: Uint8Array }>;
  readonly #addedIds: ReadonlyMap<string, number>;
  readonly #splitter = new WordSplitter();
  /** Finders for raw text with and without special tokens, then for normalised text likewise. */
  readonly #finders: Readonly<Record<"raw" | "normalized", readonly AddedTokenFinder[]>>;
  readonly #idLimit: number;
  readonly #cache = new Map<string, number | readonly number[]>();
  readonly #wordBytes = new Uint8Array(LONG_WORD * 3);
  readonly #wordIds = new Int32Array(LONG_WORD * 3);

  constructor({ vocabulary, merges, addedTokens, info, modelVocabSize }: ByteLevelBpeParts) {
    this.directory = info.directory;
    this.chatTemplate = info.chatTemplate;
    this.namedTokens = info.namedTokens;
    this.#vocabulary = vocabulary;
    this.#merges = merges;
    this.#added = new Map(
      addedTokens.map((token) => [token.id, { ...token, bytes: UTF8.encode(token.content) }]),
    );
    this.#addedIds = new Map(addedTokens.map(({ content, id }) => [content, id]));
    this.vocabSize = addedTokens.reduce((size, { id }) => Math.max(size, id + 1), vocabulary.size);
    this.#idLimit = Math.max(this.vocabSize, modelVocabSize);

    const finders = (tokens: readonly AddedToken[]) => [
      new AddedTokenFinder(tokens.filter(({ special }) => !special), this.#splitter),
      new AddedTokenFinder(tokens, this.#splitter),
    ];
    const normalized = addedTokens.filter((token) => token.normalized);
    this.#finders = {
      raw: finders(addedTokens.filter((token) => !token.normalized)),
      normalized: finders(
        normalized.map((token) => ({ ...token, content: toNfc(token.content) })),
      ),
    };
  }

  encode(text: string, { specialTokens = true }: EncodeOptions = {}): number[] {
    const ids: number[] = [];
    const raw = this.#finders.raw[Number(specialTokens)]!;
    const normalized = this.#finders.normalized[Number(specialTokens)]!;
    for (const part of raw.split(text.toWellFormed())) {
      if (typeof part !== "string") ids.push(part.id);
      else {
        for (const piece of normalized.split(toNfc(part))) {
          if (typeof piece !== "string") ids.push(piece.id);
          else this.#encodeWords(piece, ids);
        }
      }
    }
    return ids;
  }

  decode(ids: Iterable<number>, options: DecodeOptions = {}): string {
    let bytes = new Uint8Array(1024), length = 0;
    for (const id of ids) {
      const token = this.#bytesOf(id, options);
      if (length + token.length > bytes.length) {
        const larger = new Uint8Array((length + token.length) * 2);
        larger.set(bytes.subarray(0, length));
        bytes = larger;
      }
      bytes.set(token, length);
      length += token.length;
    }
    return newUtf8Decoder().decode(bytes.subarray(0, length));
  }

  streamDecoder(options: DecodeOptions = {}): StreamDecoder {
    const decoder = newUtf8Decoder();
    return {
      push: (id) => decoder.decode(this.#bytesOf(id, options), { stream: true }),
      flush: () => decoder.decode(),
    };
  }

  tokenText(id: number): string {
    requireId(id, this.#idLimit);
    return this.#added.get(id)?.content ?? this.#vocabulary.tokenText(id) ?? "";
  }

  idOf(token: string): number | undefined {
    return this.#addedIds.get(token) ?? this.#vocabulary.idOf(token);
  }

  #bytesOf(id: number, { skipSpecial = false }: DecodeOptions): Uint8Array {
    requireId(id, this.#idLimit);
    const added = this.#added.get(id);
    if (added) return skipSpecial && added.special ? new Uint8Array() : added.bytes;
    return this.#vocabulary.bytesOf(id) ?? new Uint8Array();
  }

  #encodeWords(text: string, ids: number[]): void {
    for (let at = 0, end: number; at < text.length; at = end) {
      end = this.#splitter.end(text, at);
      const word = text.slice(at, end);
      let tokens = this.#cache.get(word);
      if (tokens === undefined) {
        tokens = this.#encodeWord(word);
        if (word.length < LONG_WORD) this.#remember(word, tokens);
      }
      if (typeof tokens === "number") ids.push(tokens);
      else for (const id of tokens) ids.push(id);
    }
  }

  #encodeWord(word: string): number | number[] {
    const fits = word.length <= LONG_WORD;
    const bytes = fits ? this.#wordBytes : new Uint8Array(word.length * 3);
    const ids = fits ? this.#wordIds : new Int32Array(word.length * 3);
    const { written } = UTF8.encodeInto(word, bytes);
    for (let i = 0; i < written; i++) ids[i] = this.#vocabulary.byteIds[bytes[i]!]!;
    const count = this.#merges.apply(ids, written);
    return count === 1 ? ids[0]! : Array.from(ids.subarray(0, count));
  }

  #remember(word: string, tokens: number | readonly number[]): void {
    if (this.#cache.size >= CACHE_WORDS) this.#cache.clear();
    this.#cache.set(word, tokens);
  }
}

/** U+FEFF at the start is text like any other. */
function newUtf8Decoder(): TextDecoder {
  return new TextDecoder("utf-8", { ignoreBOM: true });
}
