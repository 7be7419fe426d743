/**
 * The tokenizer in a GGUF file as `tokenizer.json` and `tokenizer_config.json`.
 *
 * GGUF has lost how tokens strip blanks and whether they are found in normalised text: none is and does.
 * The words of a text are those of the layout that `tokenizer.ggml.pre` names (llama-vocab.cpp).
 */
import type { TextList, TokenizerLists } from "../../base/companions.ts";
import { DataError } from "../../base/errors.ts";
import { type JsonObject, show } from "../../base/files.ts";
import { type Metadata, Texts } from "./metadata.ts";

/** Types of tokens. */
const [NORMAL, UNKNOWN, CONTROL, USER_DEFINED] = [1, 2, 3, 4];

/** Normalization of a text, and its division into words. */
interface Layout {
  readonly normalizer: JsonObject | null;
  readonly pre_tokenizer: JsonObject;
  readonly ignoreMerges: boolean;
  /** True if a beginning-of-text token frames texts where the file does not say. */
  readonly addsBos: boolean;
}

/** Qwen's and Llama 3's expression, which differ in how many digits a word has. */
const splitExpression = (digits: string) =>
  `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}${digits}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+`;

const byteLevel = (useRegex: boolean) => ({
  type: "ByteLevel",
  add_prefix_space: false,
  trim_offsets: true,
  use_regex: useRegex,
});

const sequence = (...pretokenizers: JsonObject[]) => ({ type: "Sequence", pretokenizers });

const split = (digits: string) =>
  sequence(
    {
      type: "Split",
      pattern: { Regex: splitExpression(digits) },
      behavior: "Isolated",
      invert: false,
    },
    byteLevel(false),
  );

const PLAIN = { normalizer: null, ignoreMerges: false, addsBos: false };

const LLAMA3: Layout = {
  ...PLAIN,
  pre_tokenizer: split("{1,3}"),
  ignoreMerges: true,
  addsBos: true,
};

const QWEN2: Layout = { ...PLAIN, normalizer: { type: "NFC" }, pre_tokenizer: split("") };

const LAYOUTS: Readonly<Record<string, Layout>> = {
  qwen2: QWEN2,
  "deepseek-r1-qwen": QWEN2,
  "llama-bpe": LLAMA3,
  llama3: LLAMA3,
  "llama-v3": LLAMA3,
  smollm: {
    ...PLAIN,
    pre_tokenizer: sequence({ type: "Digits", individual_digits: true }, byteLevel(true)),
  },
  "gpt-2": { ...PLAIN, pre_tokenizer: byteLevel(true) },
};

/** Texts at which llama.cpp ends a generation besides the end token that the file names. */
const END_TOKENS = [
  "<|eot_id|>",
  "<|im_end|>",
  "<|end|>",
  "<end_of_turn>",
  "<|endoftext|>",
  "<|end_of_text|>",
  "<|eom_id|>",
  "<EOT>",
];

/**
 * Tokens of Qwen2.5 and Qwen3 that are not special, though converters call them CONTROL by the form of
 * their names: they stay in text that is decoded without special tokens.
 */
const QWEN_PLAIN_TOKENS: ReadonlySet<string> = new Set([
  "<|fim_prefix|>",
  "<|fim_middle|>",
  "<|fim_suffix|>",
  "<|fim_pad|>",
  "<|repo_name|>",
  "<|file_sep|>",
]);

/** Roles of tokens in `tokenizer_config.json`, and their keys. */
const ROLES = { bos: "bos", eos: "eos", unk: "unknown", pad: "padding" } as const;

const KEY = "tokenizer.ggml";

const UTF8 = new TextEncoder();

/** Returns whether the file has a tokenizer at all. */
export function hasTokenizer(metadata: Metadata): boolean {
  return metadata.has(`${KEY}.model`);
}

/** A whole `tokenizer.json`, which some files have. */
const WHOLE = "tokenizer.huggingface.json";

/**
 * Parts of a `tokenizer.json`; undefined where the file has one itself.
 * @throws {DataError} for a kind that is not supported
 */
export function tokenizerLists(metadata: Metadata): TokenizerLists | undefined {
  return metadata.has(WHOLE) ? undefined : listsOf(metadata);
}

/** `tokenizer.json` of the file. @throws {DataError} for a kind that is not supported */
export function tokenizerJson(metadata: Metadata): Uint8Array<ArrayBuffer> {
  const whole = metadata.text(WHOLE);
  if (whole !== undefined) return UTF8.encode(whole);
  const { settings: { model, ...others }, tokens, ids, merges } = listsOf(metadata);
  const text = new JsonText();
  text.raw(`{"version":"1.0","model":${JSON.stringify(model).slice(0, -1)},"vocab":{`);
  for (const [i, id] of ids.entries()) {
    text.ascii(i > 0 ? "," : "");
    text.string(tokens, id);
    text.ascii(`:${id}`);
  }
  text.raw('},"merges":[');
  for (let i = 0; i < merges.length; i++) {
    text.ascii(i > 0 ? "," : "");
    text.string(merges, i);
  }
  text.raw(`]},${JSON.stringify(others).slice(1)}`);
  return text.bytes();
}

function listsOf(metadata: Metadata): TokenizerLists {
  const layout = layoutOf(metadata);
  const tokens = tokensOf(metadata), types = metadata.numbers(`${KEY}.token_type`);
  const typeOf = (id: number) => types?.[id] ?? NORMAL;
  const isNormal = (id: number) => typeOf(id) === NORMAL || typeOf(id) === UNKNOWN;
  let last = tokens.length - 1;
  while (last >= 0 && !isNormal(last)) last--;
  const added: JsonObject[] = [];
  const ids = new Int32Array(tokens.length);
  let count = 0;
  for (let id = 0; id < tokens.length; id++) {
    const isAdded = typeOf(id) === CONTROL || typeOf(id) === USER_DEFINED;
    if (isAdded) added.push(addedToken(id, tokens.at(id), typeOf(id), layout));
    // Python's library numbers added tokens on from the vocabulary, unless they are in it.
    if (!isNormal(id) && !(isAdded && id < last && tokens.at(id).every(isPrintable))) continue;
    ids[count++] = id;
  }
  const { ignoreMerges: ignore_merges, normalizer, pre_tokenizer } = layout;
  const settings = {
    model: { type: "BPE", dropout: null, unk_token: null, ignore_merges },
    added_tokens: added,
    normalizer,
    pre_tokenizer,
    post_processor: frameOf(metadata, tokens, layout),
    decoder: byteLevel(true),
  };
  const merges = metadata.texts(`${KEY}.merges`) ?? new Texts(new Uint8Array(), 0);
  return { settings, tokens, ids: ids.subarray(0, count), merges };
}

/** Returns whether a byte stands for itself in the alphabet of byte-level vocabularies. */
function isPrintable(byte: number): boolean {
  return byte > 0x20 && byte < 0x7f;
}

function addedToken(id: number, token: Uint8Array, type: number, layout: Layout): JsonObject {
  const content = new TextDecoder().decode(token);
  const flags = { single_word: false, lstrip: false, rstrip: false, normalized: false };
  const isPlain = layout === QWEN2 && QWEN_PLAIN_TOKENS.has(content);
  return { id, content, ...flags, special: type === CONTROL && !isPlain };
}

/** The tokens around a text. */
function frameOf(metadata: Metadata, tokens: Texts, { addsBos }: Layout): JsonObject {
  // False for any vocabulary of this size, whatever llama.cpp would add to another.
  const usual = addsBos && tokens.length !== 49152;
  const frame = (role: "bos" | "eos", usual: boolean) => {
    const id = metadata.optionalInteger(`${KEY}.${role}_token_id`);
    return id !== undefined && metadata.boolean(`${KEY}.add_${role}_token`, usual) ? [id] : [];
  };
  const [before, after] = [frame("bos", usual), frame("eos", false)];
  if (before.length + after.length === 0) return byteLevel(true);
  const name = (id: number) => textOf(metadata, tokens, id);
  const special = (id: number) => ({ SpecialToken: { id: name(id), type_id: 0 } });
  const around = (...sequences: JsonObject[]) => [
    ...before.map(special),
    ...sequences,
    ...after.map(special),
  ];
  const part = (id: string) => ({ Sequence: { id, type_id: 0 } });
  const ids = [...before, ...after];
  return {
    type: "TemplateProcessing",
    single: around(part("A")),
    pair: around(part("A"), part("B")),
    special_tokens: Object.fromEntries(
      ids.map((id) => [name(id), { id: name(id), ids: [id], tokens: [name(id)] }]),
    ),
  };
}

/** `tokenizer_config.json` of the file: named tokens, the context, and the chat template. */
export function tokenizerConfig(metadata: Metadata): JsonObject {
  const tokens = tokensOf(metadata);
  // Converters take Qwen's from its config.json; its tokenizers have none, and texts are scored without.
  const isQwen = metadata.text(`${KEY}.pre`) === "qwen2";
  const named = Object.entries(ROLES).flatMap(([role, key]) => {
    const id = metadata.optionalInteger(`${KEY}.${key}_token_id`);
    return id === undefined || isQwen && role === "bos"
      ? []
      : [[`${role}_token`, textOf(metadata, tokens, id)]];
  });
  const template = metadata.text("tokenizer.chat_template");
  const forTools = metadata.text("tokenizer.chat_template.tool_use");
  const templates = forTools === undefined ? template : [
    { name: "default", template },
    { name: "tool_use", template: forTools },
  ];
  return {
    tokenizer_class: "PreTrainedTokenizerFast",
    ...Object.fromEntries(named),
    model_max_length: metadata.optionalInteger(
      `${metadata.text("general.architecture")}.context_length`,
    ),
    ...(template === undefined ? {} : { chat_template: templates }),
    clean_up_tokenization_spaces: false,
  };
}

/** Id of the token with a role, such as `eos`, where the file names one. */
export function tokenOf(metadata: Metadata, role: string): number | undefined {
  return metadata.optionalInteger(`${KEY}.${role}_token_id`);
}

/** `generation_config.json` of the file: every token at which llama.cpp ends a generation. */
export function generationConfig(metadata: Metadata): JsonObject {
  const id = (role: string) => tokenOf(metadata, role);
  const ends = new Set(END_TOKENS);
  const longest = Math.max(...END_TOKENS.map(({ length }) => length));
  const types = metadata.numbers(`${KEY}.token_type`);
  const found: number[] = [];
  const tokens = tokensOf(metadata);
  for (let id = 0; id < tokens.length; id++) {
    if (types?.[id] === NORMAL) continue;
    const token = tokens.at(id);
    if (token.length <= longest && ends.has(new TextDecoder().decode(token))) found.push(id);
  }
  const stops = [id("eos"), id("eot"), ...found].filter((id) => id !== undefined);
  const others = { bos_token_id: id("bos"), pad_token_id: id("padding") };
  return { ...others, eos_token_id: [...new Set(stops)] };
}

function tokensOf(metadata: Metadata): Texts {
  const tokens = metadata.texts(`${KEY}.tokens`);
  if (tokens) return tokens;
  throw metadata.error(`${KEY}.tokens`, "a list of texts");
}

function textOf(metadata: Metadata, tokens: Texts, id: number): string {
  if (id < tokens.length) return new TextDecoder().decode(tokens.at(id));
  throw metadata.error(`${KEY}.tokens`, `a list with token ${id}, which has a role`);
}

function layoutOf(metadata: Metadata): Layout {
  const model = metadata.text(`${KEY}.model`);
  const hints = ["use the Hugging Face folder of this model, which has its tokenizer.json"];
  if (model !== "gpt2") {
    throw new DataError(
      `"${metadata.path}" has a tokenizer of kind ${show(model)}, expected "gpt2" (byte-level BPE)`,
      { hints },
    );
  }
  const pre = metadata.text(`${KEY}.pre`);
  if (pre !== undefined && Object.hasOwn(LAYOUTS, pre)) return LAYOUTS[pre]!;
  throw new DataError(
    `"${metadata.path}" cuts text into words in the way ${show(pre)}, expected one of ${
      Object.keys(LAYOUTS).join(", ")
    }`,
    { hints },
  );
}

/** UTF-8 of a JSON document, written in pieces. */
class JsonText {
  #bytes = new Uint8Array(1 << 20);
  #length = 0;

  raw(text: string): void {
    this.#reserve(text.length * 3);
    const room = this.#bytes.subarray(this.#length);
    this.#length += UTF8.encodeInto(text, room).written;
  }

  /** A short text of ASCII, for which an encoder takes longer. */
  ascii(text: string): void {
    this.#reserve(text.length);
    for (let i = 0; i < text.length; i++) this.#bytes[this.#length++] = text.charCodeAt(i);
  }

  /** A text of a list as a string; bytes that JSON escapes are rare. */
  string(texts: TextList, index: number): void {
    const { bytes } = texts, end = texts.end(index), start = texts.start(index);
    this.#reserve((end - start) * 6 + 2);
    const out = this.#bytes;
    let at = this.#length;
    out[at++] = 0x22;
    for (let i = start; i < end; i++) {
      const byte = bytes[i]!;
      if (byte < 0x20) {
        const escape = `\\u${byte.toString(16).padStart(4, "0")}`;
        at += UTF8.encodeInto(escape, out.subarray(at)).written;
        continue;
      }
      if (byte === 0x22 || byte === 0x5c) out[at++] = 0x5c;
      out[at++] = byte;
    }
    out[at++] = 0x22;
    this.#length = at;
  }

  bytes(): Uint8Array<ArrayBuffer> {
    return this.#bytes.subarray(0, this.#length);
  }

  #reserve(size: number): void {
    if (this.#length + size <= this.#bytes.length) return;
    const larger = new Uint8Array(Math.max(this.#bytes.length * 2, this.#length + size));
    larger.set(this.#bytes.subarray(0, this.#length));
    this.#bytes = larger;
  }
}
