/**
 * Takes a `tokenizer.json` apart: two big tables on one side, everything else on the other.
 *
 * Takes the file's bytes; returns the spans of `model.vocab` and `model.merges`, and the rest as
 * parsed JSON, with `null` in their places. Also says whether the rest describes Qwen's layout, the
 * one that the encoder of this folder knows; all others are left to @huggingface/tokenizers.
 */
import { isObject, type JsonObject, parseJsonObject } from "../base/files.ts";
import type { Span } from "./table_reader.ts";
import { QWEN_PATTERN } from "./word_splitter.ts";

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

/** Whether these are the settings of Qwen2, 2.5 and 3. */
export function isQwenLayout(settings: JsonObject): boolean {
  const { normalizer, pre_tokenizer, post_processor, decoder, model } = settings;
  const steps = isType(pre_tokenizer, "Sequence") ? pre_tokenizer.pretokenizers : undefined;
  if (!Array.isArray(steps) || steps.length !== 2) return false;
  const [split, byteLevel] = steps;
  return isType(normalizer, "NFC") &&
    isType(split, "Split") && split.behavior === "Isolated" && split.invert !== true &&
    isObject(split.pattern) && split.pattern.Regex === QWEN_PATTERN &&
    isType(byteLevel, "ByteLevel") && byteLevel.add_prefix_space === false &&
    byteLevel.use_regex === false &&
    // What comes out is what went in: this post-processor moves offsets, which are not asked for here.
    (isAbsent(post_processor) || isType(post_processor, "ByteLevel")) &&
    isType(decoder, "ByteLevel") &&
    isType(model, "BPE") && !model.dropout && !model.continuing_subword_prefix &&
    !model.end_of_word_suffix && !model.byte_fallback && !model.ignore_merges;
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
  parts.push(source.subarray(at));
  const rest = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let end = 0;
  for (const part of parts) {
    rest.set(part, end);
    end += part.length;
  }
  return rest;
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
