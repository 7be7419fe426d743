/**
 * Takes a `tokenizer.json` apart: two big tables on one side, everything else on the other.
 *
 * The rest is parsed as JSON, with `null` in the places of the tables. Also says which layout the rest
 * describes, where it is one that the encoder of this folder knows; all others are left to
 * @huggingface/tokenizers.
 */
import { isObject, joinBytes, type JsonObject, parseJsonObject } from "../base/files.ts";
import type { Span } from "./table_reader.ts";
import { GPT2_PATTERNS, LLAMA3_PATTERN, QWEN_PATTERN, type WordRules } from "./word_splitter.ts";

/** A `tokenizer.json` without its tables, which are undefined where the file has none. */
export interface TokenizerFile {
  readonly settings: JsonObject;
  readonly vocabulary?: Span;
  readonly merges?: Span;
}

interface Place {
  readonly from: number;
  readonly to: number;
}

const QUOTE = 0x22, COMMA = 0x2c, BACKSLASH = 0x5c, OPEN_BRACE = 0x7b, CLOSE_BRACE = 0x7d;

/** Finds the tables and parses the rest; bytes that are not JSON are bad data. */
export function takeApart(source: Uint8Array, path: string): TokenizerFile {
  const places = new Map<string, Place>();
  // Goes astray on what is not JSON, but ends: the parser that gets the rest says what is wrong.
  findMembers(source, skipBlanks(source, 0), "", places);
  const vocabulary = places.get("model.vocab"), merges = places.get("model.merges");
  const tables = [vocabulary, merges].filter((place) => place !== undefined);
  const settings = parseJsonObject(without(source, tables), path);
  const span = (place: Place | undefined) => place && { source, ...place, path };
  return { settings, vocabulary: span(vocabulary), merges: span(merges) };
}

/** A layout that the encoder of this folder knows. */
export interface ByteLevelLayout {
  readonly words: WordRules;
  /** True if texts are brought into Unicode's NFC. */
  readonly isNfc: boolean;
  /** True if a word that is a token skips the merges. */
  readonly ignoresMerges: boolean;
  /** True if bytes without a token are left out; else they stand for an unknown token. */
  readonly dropsUnknown: boolean;
  /** Ids before and after a text. */
  readonly frame: Frame;
}

/** Tokens that the tokenizer puts around a text. */
export interface Frame {
  readonly before: readonly number[];
  readonly after: readonly number[];
}

/** The layout that these settings describe; undefined for one that is left to the library. */
export function byteLevelLayout(settings: JsonObject): ByteLevelLayout | undefined {
  const { normalizer, pre_tokenizer, post_processor, decoder, model } = settings;
  const words = wordRules(pre_tokenizer), frame = frameOf(post_processor);
  const isNfc = isType(normalizer, "NFC");
  const isKnown = (isNfc || isAbsent(normalizer)) && isType(decoder, "ByteLevel") &&
    isType(model, "BPE") && !model.dropout && !model.continuing_subword_prefix &&
    !model.end_of_word_suffix && !model.byte_fallback;
  if (!words || !frame || !isKnown) return undefined;
  const dropsUnknown = isAbsent(model.unk_token);
  return { words, isNfc, ignoresMerges: model.ignore_merges === true, dropsUnknown, frame };
}

/** Rules of a pre-tokenizer that ends with `ByteLevel`. */
function wordRules(preTokenizer: unknown): WordRules | undefined {
  const steps = isType(preTokenizer, "Sequence") ? preTokenizer.pretokenizers : [preTokenizer];
  if (!Array.isArray(steps)) return undefined;
  const byteLevel = steps.at(-1);
  if (!isType(byteLevel, "ByteLevel") || byteLevel.add_prefix_space !== false) return undefined;
  const splits = steps.slice(0, -1);
  let cutDigits: "none" | "each" | "runs" = "none";
  if (isType(splits[0], "Digits")) {
    cutDigits = splits.shift().individual_digits === true ? "each" : "runs";
  } else if (patternOf(splits[0]) === "\\p{N}") {
    splits.shift();
    cutDigits = "each";
  }
  const pattern = splits.length === 0 ? GPT2_PATTERNS[0] : patternOf(splits[0]);
  const usesRegex = byteLevel.use_regex !== false;
  if (splits.length > 1 || pattern === undefined || usesRegex !== (splits.length === 0)) {
    return undefined;
  }
  if (GPT2_PATTERNS.includes(pattern)) return { expression: "gpt-2", cutDigits };
  if (cutDigits !== "none") return undefined;
  if (pattern === QWEN_PATTERN) return { expression: "qwen", digits: 1 };
  return pattern === LLAMA3_PATTERN ? { expression: "qwen", digits: 3 } : undefined;
}

/** The expression whose matches a step makes words of their own. */
function patternOf(step: unknown): string | undefined {
  if (!isType(step, "Split") || step.behavior !== "Isolated" || step.invert === true) return;
  const expression = isObject(step.pattern) ? step.pattern.Regex : undefined;
  return typeof expression === "string" ? expression : undefined;
}

/** The frame that a post-processor makes; undefined for one that does more. */
function frameOf(processor: unknown): Frame | undefined {
  if (isAbsent(processor)) return { before: [], after: [] };
  if (isType(processor, "Sequence")) {
    const { processors } = processor;
    if (!Array.isArray(processors)) return undefined;
    return frameOf(processors.find((each) => !isType(each, "ByteLevel")));
  }
  // It moves offsets, which are not asked for here.
  if (isType(processor, "ByteLevel")) return { before: [], after: [] };
  if (!isType(processor, "TemplateProcessing")) return undefined;
  const { single, special_tokens: special } = processor;
  if (!Array.isArray(single) || !isObject(special)) return undefined;
  const text = single.findIndex((part) => isObject(part) && isObject(part.Sequence));
  const idsOf = (part: unknown) => {
    const name = isObject(part) && isObject(part.SpecialToken) ? part.SpecialToken.id : undefined;
    const token = typeof name === "string" ? special[name] : undefined;
    return isObject(token) && Array.isArray(token.ids) ? token.ids : [undefined];
  };
  const before = single.slice(0, text).flatMap(idsOf),
    after = single.slice(text + 1).flatMap(idsOf);
  const areIds = [...before, ...after].every((id) => Number.isSafeInteger(id) && id >= 0);
  return text >= 0 && areIds ? { before, after } : undefined;
}

function isType(value: unknown, type: string): value is JsonObject {
  return isObject(value) && value.type === type;
}

function isAbsent(value: unknown): boolean {
  return value === undefined || value === null;
}

/** The source with `null` in the places given. */
function without(source: Uint8Array, places: readonly Place[]): Uint8Array {
  const cuts = [...places].sort((a, b) => a.from - b.from);
  const placeholder = new TextEncoder().encode("null");
  const parts: Uint8Array[] = [];
  let at = 0;
  for (const { from, to } of cuts) {
    parts.push(source.subarray(at, from), placeholder);
    at = to;
  }
  return joinBytes([...parts, source.subarray(at)]);
}

/** Notes where the members of the object at `at` lie, and those of "model"; returns its end. */
function findMembers(
  source: Uint8Array,
  at: number,
  prefix: string,
  places: Map<string, Place>,
): number {
  if (source[at] !== OPEN_BRACE) return skipValue(source, at);
  at = skipBlanks(source, at + 1);
  while (source[at] === QUOTE) {
    const keyEnd = skipString(source, at);
    const key = prefix + new TextDecoder().decode(source.subarray(at + 1, keyEnd - 1));
    const from = skipBlanks(source, skipBlanks(source, keyEnd) + 1); // past the colon
    const to = key === "model"
      ? findMembers(source, from, "model.", places)
      : skipValue(source, from);
    places.set(key, { from, to });
    at = skipBlanks(source, to);
    if (source[at] !== COMMA) break;
    at = skipBlanks(source, at + 1);
  }
  return Math.min(at + 1, source.length);
}

function skipBlanks(source: Uint8Array, at: number): number {
  while (at < source.length && source[at]! <= 0x20) at++;
  return at;
}

/** End of the string whose opening quote is at `at`. */
function skipString(source: Uint8Array, at: number): number {
  for (at++; at < source.length && source[at] !== QUOTE; at++) if (source[at] === BACKSLASH) at++;
  return Math.min(at + 1, source.length);
}

/** End of the value at `at`: of the matching bracket, or where a comma or bracket follows. */
function skipValue(source: Uint8Array, at: number): number {
  for (let depth = 0; at < source.length;) {
    const code = source[at]!;
    if (code === QUOTE) {
      at = skipString(source, at);
      if (depth === 0) return at;
      continue;
    }
    const opens = code === OPEN_BRACE || code === 0x5b;
    const closes = code === CLOSE_BRACE || code === 0x5d;
    if (depth === 0 && (closes || code === COMMA)) return at;
    at++;
    if (opens) depth++;
    else if (closes && --depth === 0) return at;
  }
  return at;
}
