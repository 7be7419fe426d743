/**
 * Byte-level byte pair encoding in the layouts of Qwen, Llama 3, SmolLM and GPT-2.
 *
 * Text is cut at added tokens, brought into Unicode's NFC if the layout says so, cut into words, and each word's UTF-8
 * bytes are merged into tokens. Decoding joins the tokens' bytes. Ids equal those of Hugging Face's
 * tokenizers. Because of NFC some texts do not decode to themselves.
 */
import { joinBytes } from "../base/files.ts";
import { type AddedToken, AddedTokenFinder } from "./added_tokens.ts";
import type { ByteLevelLayout } from "./file_layout.ts";
import type { MergeTable } from "./merges.ts";
import {
  beginsWith,
  type DecodeOptions,
  type EncodeOptions,
  requireId,
  type StreamDecoder,
  type Tokenizer,
  type TokenizerInfo,
} from "./types.ts";
import { toNfc } from "./nfc.ts";
import type { Vocabulary } from "./vocabulary.ts";
import { WordCache } from "./word_cache.ts";
import { WordSplitter } from "./word_splitter.ts";

/** Words with more characters are rare. */
const LONG_WORD = 64;

/** Around the id of a marked token: characters that Unicode keeps for a program's own use. */
const MARK = ["\ufdd0", "\ufdd1"] as const, MARKED = /\ufdd0(\d+)\ufdd1/g;

const UTF8 = new TextEncoder();

/** Parts of a tokenizer. */
export interface ByteLevelBpeParts {
  readonly vocabulary: Vocabulary;
  readonly merges: MergeTable;
  readonly layout: ByteLevelLayout;
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
  readonly toolTemplate: string | undefined;
  readonly templateVariables: Readonly<Record<string, unknown>> | undefined;
  readonly namedTokens: Readonly<Record<string, string>>;
  readonly vocabSize: number;
  readonly longestToken: number;
  readonly #vocabulary: Vocabulary;
  readonly #merges: MergeTable;
  readonly #added: ReadonlyMap<number, AddedToken & { readonly bytes: Uint8Array }>;
  readonly #addedIds: ReadonlyMap<string, number>;
  readonly #layout: ByteLevelLayout;
  readonly #splitter: WordSplitter;
  /** True if every byte has a token. */
  readonly #isWhole: boolean;
  /** Finders for raw text with and without special tokens, then for normalised text likewise. */
  readonly #finders: Readonly<Record<"raw" | "normalized", readonly AddedTokenFinder[]>>;
  /** Finds special tokens without the blanks around them. */
  readonly #special: AddedTokenFinder;
  readonly #idLimit: number;
  readonly #cache = new WordCache();
  readonly #wordIds = new Int32Array(LONG_WORD * 3);

  constructor(parts: ByteLevelBpeParts) {
    const { vocabulary, merges, layout, addedTokens, info, modelVocabSize } = parts;
    this.#layout = layout;
    this.#splitter = new WordSplitter(layout.words);
    this.#isWhole = !vocabulary.byteIds.includes(-1);
    this.directory = info.directory;
    this.chatTemplate = info.chatTemplate;
    this.toolTemplate = info.toolTemplate;
    this.templateVariables = info.templateVariables;
    this.namedTokens = info.namedTokens;
    this.#vocabulary = vocabulary;
    this.#merges = merges;
    this.#added = new Map(
      addedTokens.map((token) => [token.id, { ...token, bytes: UTF8.encode(token.content) }]),
    );
    this.#addedIds = new Map(addedTokens.map(({ content, id }) => [content, id]));
    this.vocabSize = addedTokens.reduce((size, { id }) => Math.max(size, id + 1), vocabulary.size);
    this.longestToken = addedTokens.reduce(
      (longest, { content, lstrip, rstrip }) =>
        lstrip || rstrip ? Infinity : Math.max(longest, UTF8.encode(content).length),
      vocabulary.longestToken,
    );
    this.#idLimit = Math.max(this.vocabSize, modelVocabSize);

    const finders = (tokens: readonly AddedToken[]) => [
      new AddedTokenFinder(tokens.filter(({ special }) => !special), this.#splitter),
      new AddedTokenFinder(tokens, this.#splitter),
    ];
    const special = addedTokens.filter((token) => token.special)
      .map((token) => ({ ...token, lstrip: false, rstrip: false }));
    this.#special = new AddedTokenFinder(special, this.#splitter);
    const normalized = addedTokens.filter((token) => token.normalized);
    this.#finders = {
      raw: finders(addedTokens.filter((token) => !token.normalized)),
      normalized: finders(
        normalized.map((token) => ({ ...token, content: this.#normalize(token.content) })),
      ),
    };
  }

  markSpecial(text: string): string {
    const parts = [...this.#special.split(text)];
    return parts.map((part) => typeof part === "string" ? part : MARK.join(String(part.id))).join(
      "",
    );
  }

  encode(
    text: string,
    { specialTokens = true, frame, isMarked = false }: EncodeOptions = {},
  ): number[] {
    const { before, after } = this.#layout.frame;
    const isFramed = specialTokens && (frame ?? !beginsWith(this, text));
    const ids: number[] = isFramed ? [...before] : [];
    const raw = this.#finders.raw[Number(specialTokens)]!;
    const normalized = this.#finders.normalized[Number(specialTokens)]!;
    for (const part of raw.split(text.toWellFormed())) {
      if (typeof part !== "string") ids.push(part.id);
      else {
        for (const piece of normalized.split(this.#normalize(part))) {
          if (typeof piece !== "string") ids.push(piece.id);
          else this.#encodeWords(isMarked ? this.#unmark(piece) : piece, ids);
        }
      }
    }
    if (isFramed) { for (const id of after) ids.push(id); }
    return ids;
  }

  #unmark(text: string): string {
    return text.replace(MARKED, (mark, id) => this.#added.get(Number(id))?.content ?? mark);
  }

  decode(ids: Iterable<number>, options: DecodeOptions = {}): string {
    return newUtf8Decoder().decode(joinBytes(Array.from(ids, (id) => this.#bytesOf(id, options))));
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
      if (this.#cache.append(text, at, end, ids)) continue;
      const isShort = end - at <= LONG_WORD;
      const tokens = isShort ? this.#wordIds : this.#byteIdsOf(text.slice(at, end));
      let bytes = isShort ? this.#writeByteIds(text, at, end) : tokens.length;
      if (!this.#isWhole) bytes = withoutUnknown(tokens, bytes);
      const whole = this.#layout.ignoresMerges ? this.#wordId(text, at, end) : -1;
      if (whole >= 0) tokens[0] = whole;
      const count = whole >= 0 ? 1 : this.#merges.apply(tokens, bytes);
      for (let i = 0; i < count; i++) ids.push(tokens[i]!);
      this.#cache.set(text, at, end, tokens, count);
    }
  }

  #normalize(text: string): string {
    return this.#layout.isNfc ? toNfc(text) : text;
  }

  /** Id of the token that is a whole word, or -1. */
  #wordId(text: string, from: number, to: number): number {
    const bytes = UTF8.encode(text.slice(from, to));
    return this.#vocabulary.find(bytes, 0, bytes.length);
  }

  #byteIdsOf(word: string): Int32Array {
    const { byteIds } = this.#vocabulary, bytes = UTF8.encode(word);
    const ids = new Int32Array(bytes.length);
    for (let i = 0; i < ids.length; i++) ids[i] = byteIds[bytes[i]!]!;
    return ids;
  }

  /** Writes the ids of the UTF-8 bytes of a short word; the system's encoder is slow to call. */
  #writeByteIds(text: string, from: number, to: number): number {
    const { byteIds } = this.#vocabulary, out = this.#wordIds;
    let count = 0;
    for (let at = from; at < to; at++) {
      let code = text.charCodeAt(at);
      if (code < 0x80) {
        out[count++] = byteIds[code]!;
        continue;
      }
      if ((code & 0xfc00) === 0xd800) code = text.codePointAt(at++)!;
      if (code < 0x800) out[count++] = byteIds[0xc0 | code >> 6]!;
      else {
        if (code < 0x10000) out[count++] = byteIds[0xe0 | code >> 12]!;
        else {
          out[count++] = byteIds[0xf0 | code >> 18]!;
          out[count++] = byteIds[0x80 | code >> 12 & 0x3f]!;
        }
        out[count++] = byteIds[0x80 | code >> 6 & 0x3f]!;
      }
      out[count++] = byteIds[0x80 | code & 0x3f]!;
    }
    return count;
  }
}

/** Moves ids together over those of bytes without a token, and returns how many are left. */
function withoutUnknown(ids: Int32Array, count: number): number {
  let left = 0;
  for (let i = 0; i < count; i++) if (ids[i]! >= 0) ids[left++] = ids[i]!;
  return left;
}

/** U+FEFF at the start is text like any other. */
function newUtf8Decoder(): TextDecoder {
  return new TextDecoder("utf-8", { ignoreBOM: true });
}
