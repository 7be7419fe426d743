/**
 * Tokenizers of layouts that the own encoder does not know, through @huggingface/tokenizers.
 *
 * They have a tenth of its speed. The library is loaded only when a folder needs it, and whatever it
 * throws about a file is bad data. Its decoders may treat the first token of a text in its own way, so
 * streamed text comes from decoding a sliding window of ids.
 */
import type { Tokenizer as Library } from "@huggingface/tokenizers";
import { isObject, type JsonObject, show } from "../base/files.ts";
import { DataError, ParscaleError } from "../base/errors.ts";
import type { AddedToken } from "./added_tokens.ts";
import {
  beginsWith,
  type DecodeOptions,
  type EncodeOptions,
  requireId,
  type StreamDecoder,
  type Tokenizer,
  type TokenizerInfo,
} from "./types.ts";

const MODEL_TYPES: readonly string[] = ["BPE", "WordPiece", "Unigram"];

const REPLACEMENT = "\ufffd";

/** Parts of a tokenizer. */
export interface LibraryTokenizerParts {
  /** `tokenizer.json`, complete. */
  readonly json: JsonObject;
  /** `tokenizer_config.json`, empty if there is none. */
  readonly config: JsonObject;
  readonly addedTokens: readonly AddedToken[];
  readonly info: TokenizerInfo;
  readonly modelVocabSize: number;
}

/** Loads the library and builds a tokenizer on it. */
export async function openLibraryTokenizer(parts: LibraryTokenizerParts): Promise<Tokenizer> {
  const { json, info } = parts;
  const type = isObject(json.model) ? json.model.type ?? "BPE" : "missing";
  if (typeof type !== "string" || !MODEL_TYPES.includes(type)) {
    // The library would guess.
    throw new DataError(
      `"${info.directory}/tokenizer.json" has model type ${show(type)}, expected one of ${
        MODEL_TYPES.join(", ")
      }`,
      { hints: ["the file may be truncated or damaged; copy it again"] },
    );
  }
  const { Tokenizer } = await import("@huggingface/tokenizers");
  // The library wants every section and full words about clean-up, whose old default was true.
  const complete = { normalizer: null, pre_tokenizer: null, post_processor: null, decoder: null };
  const config = { clean_up_tokenization_spaces: false, ...parts.config };
  const build = (added: readonly AddedToken[]) =>
    guard(info, "open", () => {
      const library = new Tokenizer({ ...complete, ...json, added_tokens: added }, config);
      keepByteOrderMarks(library.decoder);
      return library;
    });
  return new LibraryTokenizer(build, parts);
}

/** Has U+FEFF decoded from tokens of single bytes like any character, which the library drops. */
function keepByteOrderMarks(decoder: Library["decoder"]): void {
  if (!decoder) return;
  const { decoders } = decoder as { decoders?: typeof decoder[] };
  for (const part of decoders ?? [decoder]) {
    if ("text_decoder" in part) part.text_decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  }
}

class LibraryTokenizer implements Tokenizer {
  readonly kind = "huggingface" as const;
  readonly directory: string;
  readonly chatTemplate: string | undefined;
  readonly toolTemplate: string | undefined;
  readonly templateVariables: Readonly<Record<string, unknown>> | undefined;
  readonly namedTokens: Readonly<Record<string, string>>;
  readonly vocabSize: number;
  /** Unknown: normalizers drop characters, and one token stands for several unknown ones. */
  readonly longestToken = Infinity;
  readonly #library: Library;
  /** The same without special tokens; they are then cut up like any text. Built when asked for. */
  #plainLibrary: Library | undefined;
  readonly #buildPlain: () => Library;
  readonly #idLimit: number;
  readonly #specialIds: ReadonlySet<number>;

  constructor(build: (added: readonly AddedToken[]) => Library, parts: LibraryTokenizerParts) {
    const { addedTokens, info, modelVocabSize } = parts;
    this.directory = info.directory;
    this.chatTemplate = info.chatTemplate;
    this.toolTemplate = info.toolTemplate;
    this.templateVariables = info.templateVariables;
    this.namedTokens = info.namedTokens;
    this.#library = build(addedTokens);
    this.#buildPlain = () => build(addedTokens.filter(({ special }) => !special));
    this.#specialIds = new Set(addedTokens.filter(({ special }) => special).map(({ id }) => id));
    let size = 0;
    for (const id of guard(info, "open", () => this.#library.get_vocab()).values()) {
      size = Math.max(size, id + 1);
    }
    this.vocabSize = size;
    this.#idLimit = Math.max(this.vocabSize, modelVocabSize);
  }

  encode(text: string, { specialTokens = true, frame }: EncodeOptions = {}): number[] {
    const library = specialTokens ? this.#library : this.#plainLibrary ??= this.#buildPlain();
    const isFramed = specialTokens && (frame ?? !beginsWith(this, text));
    const { ids } = guard(
      this,
      "encode text with",
      () => library.encode(text.toWellFormed(), { add_special_tokens: isFramed }),
    );
    if (ids.every((id) => Number.isInteger(id))) return ids;
    throw new DataError(
      `tokenizer "${this.directory}" has no token for a part of the text, and no unknown token`,
    );
  }

  markSpecial(_text: string): never {
    throw new DataError(`tokenizer "${this.directory}" cannot tell special tokens from text`);
  }

  decode(ids: Iterable<number>, options: DecodeOptions = {}): string {
    const known = Array.from(ids).filter((id) => this.#isDecoded(id, options));
    if (known.length === 0) return ""; // the library refuses an empty list
    return guard(this, "decode ids with", () => this.#library.decode(known));
  }

  streamDecoder(options: DecodeOptions = {}): StreamDecoder {
    // `shown` ids of the window are in the text given out; those before keep their context alive.
    let window: number[] = [], shown = 0;
    const advance = (last: boolean) => {
      const before = this.decode(window.slice(0, shown), options);
      const now = this.decode(window, options);
      // Without new text the window stays, as its ids are the context of the next.
      const isOpen = now === before || now.endsWith(REPLACEMENT) || !now.startsWith(before);
      if (!last && isOpen) return "";
      window = window.slice(shown);
      shown = window.length;
      return now.slice(before.length);
    };
    return {
      push: (id) => {
        if (!this.#isDecoded(id, options)) return "";
        window.push(id);
        return advance(false);
      },
      flush: () => advance(true),
    };
  }

  #isDecoded(id: number, { skipSpecial = false }: DecodeOptions): boolean {
    requireId(id, this.#idLimit);
    if (skipSpecial && this.#specialIds.has(id)) return false;
    return this.#library.id_to_token(id) !== undefined;
  }

  tokenText(id: number): string {
    requireId(id, this.#idLimit);
    return this.#library.id_to_token(id) ?? "";
  }

  idOf(token: string): number | undefined {
    return this.#library.token_to_id(token);
  }
}

/** Runs library code; its exceptions come from what the file says. */
function guard<T>(info: TokenizerInfo, action: string, work: () => T): T {
  try {
    return work();
  } catch (cause) {
    if (cause instanceof ParscaleError) throw cause;
    throw new DataError(
      `cannot ${action} tokenizer "${info.directory}": ${
        cause instanceof Error ? cause.message : cause
      }`,
      { cause, hints: ["tokenizers must be of a kind that @huggingface/tokenizers supports"] },
    );
  }
}
