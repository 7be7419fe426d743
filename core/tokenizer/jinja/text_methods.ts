/** Methods of Python's `str`. */
import { capitalize, lstrip, rstrip, SPACE, strip } from "../../base/python_text.ts";
import { spend, spendItems, spendText } from "./meter.ts";
import { type Signature, signature } from "./signature.ts";
import { str } from "./text.ts";
import {
  Callable,
  codePoints,
  indexOf,
  integer,
  isText,
  iterate,
  type Keywords,
  plain,
  PythonError,
  Tuple,
  typeError,
  typeName,
  Undefined,
  type Value,
} from "./values.ts";

type Given = Value | undefined;

const WORDS = new RegExp(`[^${SPACE}]+`, "gu");
/** Ends of lines of `str.splitlines`. */
// deno-lint-ignore no-control-regex
export const LINE_END = /\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]/g;

/** A text argument. */
export function textOf(value: Value): string {
  if (isText(value)) return plain(value);
  if (value instanceof Undefined) value.fail();
  throw typeError(`expected a str, not ${typeName(value)}`);
}

/** A text argument that may be left out or None. */
export function optionalText(value: Given): string | undefined {
  return value === undefined || value === null ? undefined : textOf(value);
}

/** Python's `replace`; a negative count replaces all. */
export function replace(text: string, old: string, by: string, count = -1): string {
  const parts = old === "" ? ["", ...text, ""] : splitAt(text, old, -1);
  const times = count < 0 ? parts.length - 1 : Math.min(count, parts.length - 1);
  spendText(text.length + times * by.length);
  const rest = old === "" ? parts.slice(times).join("") : parts.slice(times).join(old);
  return times === 0 ? text : parts.slice(0, times).join(by) + by + rest;
}

function splitAt(text: string, separator: string, most: number): string[] {
  const parts: string[] = [];
  spendText(text.length);
  spend(text.length * separator.length / 4096);
  let from = 0;
  while (most < 0 || parts.length < most) {
    const at = text.indexOf(separator, from);
    if (at < 0) break;
    parts.push(text.slice(from, at));
    spend(1);
    from = at + separator.length;
  }
  parts.push(text.slice(from));
  return parts;
}

function split(text: string, separator: Given, most: Given): Value {
  const limit = most === undefined ? -1 : integer(most), given = optionalText(separator);
  if (given === "") throw new PythonError("ValueError", "empty separator");
  const parts = given === undefined ? words(text, limit) : splitAt(text, given, limit);
  spendItems(parts.length);
  return parts;
}

/** Runs of what is not blank; the last one is the rest where there are more than allowed. */
function words(text: string, most: number): string[] {
  spendText(text.length);
  const parts: string[] = [];
  for (const { 0: word, index } of text.matchAll(WORDS)) {
    if (parts.length === most) return [...parts, text.slice(index)];
    parts.push(word);
  }
  return parts;
}

function rsplit(text: string, separator: Given, most: Given): Value {
  const limit = most === undefined ? -1 : integer(most), given = optionalText(separator);
  if (limit < 0) return split(text, separator, most);
  if (given === "") throw new PythonError("ValueError", "empty separator");
  const all = given === undefined ? words(text, -1) : splitAt(text, given, -1);
  spendItems(all.length);
  // Of words the last one that is split off leaves the blanks before the rest.
  if (all.length <= (given === undefined ? limit : limit + 1)) return all;
  const tail = all.slice(all.length - limit);
  if (given !== undefined) return [all.slice(0, all.length - limit).join(given), ...tail];
  const heads = [...text.matchAll(WORDS)], end = heads[all.length - limit - 1]!;
  return [text.slice(0, end.index + end[0].length), ...tail];
}

function splitLines(text: string, keepEnds: boolean): Value {
  spendText(text.length);
  const lines: string[] = [];
  let from = 0;
  for (const { 0: end, index } of text.matchAll(LINE_END)) {
    lines.push(text.slice(from, keepEnds ? index + end.length : index));
    from = index + end.length;
  }
  if (from < text.length) lines.push(text.slice(from));
  spendItems(lines.length);
  return lines;
}

/** Place of a part in code points, or −1. */
function find(text: string, part: Value, isLast = false): number {
  const sought = textOf(part);
  spend(text.length * sought.length / 4096);
  const at = isLast ? text.lastIndexOf(sought) : indexOf(text, sought);
  return at < 0 ? -1 : codePoints(text.slice(0, at));
}

function index(text: string, part: Value): bigint {
  const at = find(text, part);
  if (at < 0) throw new PythonError("ValueError", "substring not found");
  return BigInt(at);
}

function count(text: string, part: Value): bigint {
  const sought = textOf(part);
  if (sought === "") return BigInt(codePoints(text) + 1);
  return BigInt(splitAt(text, sought, -1).length - 1);
}

/** `startswith` and `endswith`, which take several texts in a tuple. */
const hasEnd = (test: (text: string, part: string) => boolean) =>
  bounded(
    "affix",
    (text: string, parts: Value) =>
      (parts instanceof Tuple ? parts.items : [parts]).map(textOf).some((part) => test(text, part)),
  );

/** A method on a whole text, without the bounds that Python has. */
function bounded(parameter: string, run: (text: string, part: Value) => Value): Signature<string> {
  return signature(`${parameter} start= end=`, (text: string, part: Value, ...bounds: Given[]) => {
    if (bounds.every((bound) => bound === undefined)) return run(text, part);
    throw new Error("a part of a text by start and end is not supported");
  });
}

/** Joins texts, of which the longest list and text are limited. */
export function join(separator: string, texts: readonly string[]): string {
  spendText(texts.reduce((sum, { length }) => sum + length + separator.length, 0));
  return texts.join(separator);
}

function joinItems(separator: string, values: Value): string {
  return join(
    separator,
    iterate(values).map((item, i) => {
      if (isText(item)) return plain(item);
      throw typeError(`sequence item ${i}: expected str instance, ${typeName(item)} found`);
    }),
  );
}

const stripper = (strip: (text: string, chars?: string) => string) =>
  signature("chars=", (text: string, chars: Given) => {
    spendText(text.length);
    return strip(text, optionalText(chars));
  });

/** Digits of `str.isdigit`: decimal ones, raised and lowered ones, and those in circles and the like. */
const DIGITS = new RegExp(
  "^[\\p{Nd}" +
    "\\u00b2\\u00b3\\u00b9\\u2070\\u2074-\\u2079\\u2080-\\u2089\\u2460-\\u2468\\u2474-\\u247c" +
    "\\u2488-\\u2490\\u24ea\\u24f5-\\u24fd\\u24ff\\u2776-\\u277e\\u2780-\\u2788\\u278a-\\u2792" +
    "]+$",
  "u",
);

/** Python's `str.format` for fields without a format, conversion or path. */
function format(text: string, args: readonly Value[], keywords: Keywords): string {
  let next = 0;
  return text.replace(/\{\{|\}\}|\{(\w*)\}|[{}]/g, (field, name: string | undefined) => {
    if (field === "{{" || field === "}}") return field[0]!;
    if (name === undefined) throw new Error("'format' with such fields is not supported");
    const found = /^\d*$/.test(name)
      ? args[name === "" ? next++ : Number(name)]
      : keywords.get(name);
    if (found !== undefined) return str(found);
    throw new PythonError("IndexError", `'format' has no argument for ${field}`);
  });
}

/** The method `format` of a text. */
export function formatOf(text: string): Callable {
  return new Callable("format", (args, keywords) => format(text, args, keywords));
}

/** Methods by name. */
export const TEXT_METHODS: Readonly<Record<string, Signature<string>>> = {
  capitalize: signature("", capitalize),
  count: bounded("sub", count),
  endswith: hasEnd((text, part) => text.endsWith(part)),
  find: bounded("sub", (text, part) => BigInt(find(text, part))),
  index: bounded("sub", index),
  isdigit: signature("", (text: string) => DIGITS.test(text)),
  join: signature("iterable", joinItems),
  lower: signature("", (text: string) => text.toLowerCase()),
  lstrip: stripper(lstrip),
  removeprefix: signature(
    "prefix",
    (text: string, prefix: Value) =>
      text.startsWith(textOf(prefix)) ? text.slice(textOf(prefix).length) : text,
  ),
  removesuffix: signature(
    "suffix",
    (text: string, suffix: Value) =>
      text.endsWith(textOf(suffix)) ? text.slice(0, text.length - textOf(suffix).length) : text,
  ),
  replace: signature(
    "old new count=",
    (text: string, old: Value, by: Value, count: Value = -1n) =>
      replace(text, textOf(old), textOf(by), integer(count)),
  ),
  rfind: bounded("sub", (text, part) => BigInt(find(text, part, true))),
  rsplit: signature("sep= maxsplit=", rsplit),
  rstrip: stripper(rstrip),
  split: signature("sep= maxsplit=", split),
  splitlines: signature(
    "keepends=",
    (text: string, keepEnds: Value = false) =>
      splitLines(text, keepEnds === true || keepEnds === 1n),
  ),
  startswith: hasEnd((text, part) => text.startsWith(part)),
  strip: stripper(strip),
  upper: signature("", (text: string) => text.toUpperCase()),
};

/** Methods that no known template uses. */
export const REFUSED_TEXT_METHODS =
  ("casefold center encode expandtabs format_map isalnum isalpha isascii isdecimal isidentifier " +
    "islower isnumeric isprintable isspace istitle isupper ljust maketrans partition rindex rjust " +
    "rpartition swapcase title translate zfill").split(" ");
