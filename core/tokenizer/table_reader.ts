/**
 * Reads the two big tables of a byte-level tokenizer, vocabulary and merges, from the file's bytes.
 *
 * Reading bytes instead of parsed JSON makes opening Qwen's tokenizer several times faster. Merges may
 * be strings with one space ("a b"), pairs (["a","b"]) or lines of text.
 *
 * A token that is not spelled in the byte alphabet is not an error of the file, but means that the
 * layout is another one; it is reported by throwing `NotByteLevel`.
 */
import type { TokenizerLists } from "../base/companions.ts";
import { DataError } from "../base/errors.ts";
import { BYTE_OF_CODE, spellBytes } from "./byte_alphabet.ts";
import { MergeTable } from "./merges.ts";
import { MAX_TOKEN_ID, Vocabulary } from "./vocabulary.ts";

/** Part of a file. */
export interface Span {
  readonly source: Uint8Array;
  readonly from: number;
  readonly to: number;
  /** Names the file in messages. */
  readonly path: string;
}

/** Thrown on the first character that stands for no byte. */
export class NotByteLevel extends Error {}

const QUOTE = 0x22,
  COMMA = 0x2c,
  SLASH = 0x2f,
  COLON = 0x3a,
  BACKSLASH = 0x5c,
  SPACE = 0x20,
  LINE_FEED = 0x0a;
const OPEN_BRACKET = 0x5b, CLOSE_BRACKET = 0x5d, OPEN_BRACE = 0x7b, CLOSE_BRACE = 0x7d;

/** The tokens of a list, which are spelled as in a file; an id is a place in it. */
export function vocabularyOf({ tokens, ids }: TokenizerLists, path: string): Vocabulary {
  if (tokens.length > MAX_TOKEN_ID) {
    throw new DataError(`"${path}" has ${tokens.length} tokens, at most ${MAX_TOKEN_ID} are read`);
  }
  const cursor = new Cursor({ source: tokens.bytes, from: 0, to: 0, path }, "tokens");
  const starts = new Uint32Array(ids.length + 1), bytes = new Uint8Array(tokens.bytes.length);
  for (let i = 0; i < ids.length; i++) {
    cursor.moveTo(tokens.start(ids[i]!), tokens.end(ids[i]!));
    starts[i + 1] = cursor.readSpelling(bytes, starts[i]!, -1);
  }
  return new Vocabulary({ count: ids.length, ids, starts, bytes }, path);
}

/** The merges of a list. */
export function mergesOf(
  { merges: list }: TokenizerLists,
  vocabulary: Vocabulary,
  path: string,
): MergeTable {
  const span = { source: list.bytes, from: 0, to: list.bytes.length, path };
  const merges = new MergeBuilder(span, vocabulary);
  const cursor = new Cursor(span, "lines");
  for (let i = 0; i < list.length; i++) {
    cursor.moveTo(list.start(i), list.end(i));
    merges.readLine(cursor);
  }
  return merges.build();
}

/** Reads `{"token": id, …}`. */
export function readVocabulary(span: Span): Vocabulary {
  const cursor = new Cursor(span, "vocabulary");
  const length = span.to - span.from;
  // The shortest entry, `"a":0,`, has six bytes; untouched memory costs nothing.
  const capacity = Math.ceil(length / 6) + 1;
  const ids = new Int32Array(capacity), starts = new Uint32Array(capacity + 1);
  const bytes = new Uint8Array(length);
  let count = 0;
  cursor.expect(OPEN_BRACE);
  for (let more = !cursor.take(CLOSE_BRACE); more; count++) {
    cursor.expect(QUOTE);
    starts[count + 1] = cursor.readSpelling(bytes, starts[count]!, QUOTE);
    cursor.expect(COLON);
    ids[count] = cursor.readId();
    more = cursor.take(COMMA);
    if (!more) cursor.expect(CLOSE_BRACE);
  }
  return new Vocabulary({ count, ids, starts, bytes }, span.path);
}

/** Reads `["a b", …]` or `[["a", "b"], …]`. */
export function readMerges(span: Span, vocabulary: Vocabulary): MergeTable {
  const cursor = new Cursor(span, "merges");
  const merges = new MergeBuilder(span, vocabulary);
  cursor.expect(OPEN_BRACKET);
  for (let more = !cursor.take(CLOSE_BRACKET); more;) {
    if (cursor.take(OPEN_BRACKET)) {
      cursor.expect(QUOTE);
      const middle = cursor.readSpelling(merges.scratch, 0, QUOTE);
      cursor.expect(COMMA);
      cursor.expect(QUOTE);
      merges.add(middle, cursor.readSpelling(merges.scratch, middle, QUOTE));
      cursor.expect(CLOSE_BRACKET);
    } else {
      cursor.expect(QUOTE);
      const middle = cursor.readSpelling(merges.scratch, 0, SPACE);
      merges.add(middle, cursor.readSpelling(merges.scratch, middle, QUOTE));
    }
    more = cursor.take(COMMA);
    if (!more) cursor.expect(CLOSE_BRACKET);
  }
  return merges.build();
}

/** Reads `merges.txt`: one merge a line after an optional line that starts with `#version`. */
export function readMergeLines(span: Span, vocabulary: Vocabulary): MergeTable {
  const { source, to } = span;
  const merges = new MergeBuilder(span, vocabulary);
  const cursor = new Cursor(span, "lines");
  for (let from = span.from, end; from < to; from = end + 1) {
    end = source.indexOf(LINE_FEED, from);
    if (end < 0) end = to;
    const last = source[end - 1] === 0x0d ? end - 1 : end; // Windows line ends
    if (last <= from || (from === 0 && isVersionLine(source))) continue;
    cursor.moveTo(from, last);
    merges.readLine(cursor);
  }
  return merges.build();
}

function isVersionLine(source: Uint8Array): boolean {
  return new TextDecoder().decode(source.subarray(0, 8)) === "#version";
}

/** Turns the spellings of merges, lying in `scratch` as bytes, into a table. */
class MergeBuilder {
  readonly scratch: Uint8Array;
  /** Left, right and merged id of each merge by rank. */
  readonly #triples: Int32Array;
  #count = 0;

  constructor(private readonly span: Span, private readonly vocabulary: Vocabulary) {
    this.scratch = new Uint8Array(span.to - span.from);
    // The shortest merge, a line `a b`, has four bytes with its end.
    this.#triples = new Int32Array(Math.ceil((span.to - span.from + 1) / 4) * 3);
  }

  /** Adds the merge of `scratch[0..middle)` with `scratch[middle..end)`. */
  add(middle: number, end: number): void {
    const at = this.#count++ * 3;
    this.#triples[at] = this.#find(0, middle);
    this.#triples[at + 1] = this.#find(middle, end);
    // Merges usually lie in the order of the tokens they make, which spares most of the look-ups.
    const guess = at === 0 ? 0 : this.#triples[at - 1]! + 1;
    const hit = this.vocabulary.equals(guess, this.scratch, 0, end);
    this.#triples[at + 2] = hit ? guess : this.#find(0, end);
  }

  /** Adds the merge between the cursor and its end. */
  readLine(cursor: Cursor): void {
    const middle = cursor.readSpelling(this.scratch, 0, SPACE);
    this.add(middle, cursor.readSpelling(this.scratch, middle, -1));
  }

  build(): MergeTable {
    const table = new MergeTable(this.#count);
    for (let rank = 0; rank < this.#count; rank++) {
      const at = rank * 3;
      table.set(this.#triples[at]!, this.#triples[at + 1]!, rank, this.#triples[at + 2]!);
    }
    return table;
  }

  #find(from: number, to: number): number {
    const id = this.vocabulary.find(this.scratch, from, to);
    if (id >= 0) return id;
    const token = JSON.stringify(spellBytes(this.scratch.subarray(from, to)).slice(0, 60));
    throw new DataError(
      `merge ${this.#count} in "${this.span.path}" has token ${token}, which is not in the vocabulary`,
      { hints: ["vocabulary and merges must be from the same tokenizer; copy both again"] },
    );
  }
}

/** Reads the tables from bytes; knows as much of JSON as they use. */
class Cursor {
  readonly #source: Uint8Array;
  readonly #path: string;
  readonly #isJson: boolean;
  #at: number;
  #to: number;

  constructor(span: Span, private readonly table: "vocabulary" | "tokens" | "merges" | "lines") {
    this.#isJson = table === "vocabulary" || table === "merges";
    this.#source = span.source;
    this.#at = span.from;
    this.#to = span.to;
    this.#path = span.path;
  }

  /** Goes to another part of the source. */
  moveTo(from: number, to: number): void {
    this.#at = from;
    this.#to = to;
  }

  /** Skips blanks and, if `code` comes next, that too. */
  take(code: number): boolean {
    this.skipBlanks();
    if (this.#at >= this.#to || this.#source[this.#at] !== code) return false;
    this.#at++;
    return true;
  }

  /** Like `take`, but anything else is bad data. */
  expect(code: number): void {
    if (!this.take(code)) this.#fail(`"${String.fromCharCode(code)}"`);
  }

  skipBlanks(): void {
    while (this.#at < this.#to && isBlank(this.#source[this.#at]!)) this.#at++;
  }

  /** Reads a non-negative whole number. */
  readId(): number {
    this.skipBlanks();
    let id = 0, digits = 0;
    for (; this.#at < this.#to && digits < 8; this.#at++, digits++) {
      const digit = this.#source[this.#at]! - 0x30;
      if (digit < 0 || digit > 9) break;
      id = id * 10 + digit;
    }
    if (digits === 0 || id >= MAX_TOKEN_ID) this.#fail(`an id below ${MAX_TOKEN_ID}`);
    return id;
  }

  /**
   * Reads characters up to `stop`, which it passes, or to the end of the span if `stop` is negative,
   * and writes the bytes they stand for into `out` from `to` on. Returns the end of what it wrote.
   */
  readSpelling(out: Uint8Array, to: number, stop: number): number {
    const start = to;
    let stopped = false;
    while (this.#at < this.#to && !stopped) {
      const code = this.#source[this.#at]!;
      if (code === stop) {
        this.#at++;
        stopped = true;
      } else {
        const byte = BYTE_OF_CODE[this.#readCharacter(code)] ?? -1;
        if (byte < 0) this.#refuseCharacter();
        out[to++] = byte;
      }
    }
    if (to === start || (stop >= 0 && !stopped)) this.#fail("a whole token");
    return to;
  }

  /** Code of the character at the cursor, -1 if no character of the alphabet starts with `first`. */
  #readCharacter(first: number): number {
    if (this.#isJson) {
      if (first === BACKSLASH) return this.#readEscape();
      if (first === QUOTE) this.#fail("a merge of two tokens");
    }
    this.#at++;
    if (first < 0x80) return first;
    // The alphabet ends below U+0800, so its characters have at most two bytes.
    if (first < 0xc0 || first >= 0xe0) return -1;
    return (first & 0x1f) << 6 | (this.#source[this.#at++]! & 0x3f);
  }

  #readEscape(): number {
    const code = this.#source[this.#at + 1]!;
    this.#at += 2;
    if (code === QUOTE || code === BACKSLASH || code === SLASH) return code;
    if (code !== 0x75) return -1; // \n, \t and the like are not in the alphabet
    const digits = String.fromCharCode(...this.#source.subarray(this.#at, this.#at + 4));
    this.#at += 4;
    return /^[0-9a-fA-F]{4}$/.test(digits) ? parseInt(digits, 16) : -1;
  }

  #refuseCharacter(): never {
    if (this.table === "vocabulary" || this.table === "tokens") throw new NotByteLevel();
    this.#fail("a merge of two byte-level tokens");
  }

  #fail(expected: string): never {
    const found = this.#at < this.#to
      ? JSON.stringify(String.fromCharCode(this.#source[this.#at]!))
      : "the end of the table";
    throw new DataError(
      `"${this.#path}" is not a valid tokenizer: ${found} at byte ${this.#at}, expected ${expected}`,
      { hints: ["the file may be truncated or damaged; copy it again"] },
    );
  }
}

function isBlank(code: number): boolean {
  return code === SPACE || code === LINE_FEED || code === 0x0d || code === 0x09;
}
