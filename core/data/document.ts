/**
 * One row of training data, and what makes a row valid.
 *
 * Keys that are not ours are ignored, and null counts as absent, since a table with optional columns
 * has no other way to say so.
 */
import { isObject, type JsonObject, show } from "../base/files.ts";
import { DataError } from "../base/errors.ts";
import type { ChatMessage } from "../tokenizer/tokenizer.ts";

/** Kind of a row, which decides what is trained and whether it may be cut. */
export type DocumentKind = "text" | "tokens" | "completion" | "messages";

/** One training document; `row` is its line in a text file, its row in a table, from 1. */
export type Document =
  & { readonly row: number }
  & (
    | { readonly kind: "text"; readonly text: string }
    | { readonly kind: "tokens"; readonly tokens: Int32Array; readonly labels?: Int32Array }
    | { readonly kind: "completion"; readonly prompt: string; readonly completion: string }
    | {
      readonly kind: "messages";
      readonly messages: readonly ChatMessage[];
      readonly tools?: readonly unknown[];
    }
  );

/** The label of a token that is not trained. */
export const IGNORED_LABEL = -100;

/** The keys that tell the kind; the others only accompany them. */
const KIND_OF_KEY: Readonly<Record<string, DocumentKind>> = {
  text: "text",
  tokens: "tokens",
  labels: "tokens",
  prompt: "completion",
  completion: "completion",
  messages: "messages",
};

/** Every key we read; a table's other columns need not be decoded. */
export const DOCUMENT_KEYS: readonly string[] = [...Object.keys(KIND_OF_KEY), "tools"];

const KINDS_HINT =
  'a row is {"text": ...}, {"tokens": [...]}, {"prompt": ..., "completion": ...} or {"messages": [...]}';

/** Filters of jq for rows of other programs, by the keys of such rows: ShareGPT's, Alpaca's, texts. */
const CONVERSIONS: readonly (readonly [keys: readonly string[], filter: string])[] = [
  [
    ["conversations"],
    '{messages: [.conversations[] | {role: ({human: "user", gpt: "assistant"}[.from] // .from), ' +
    "content: .value}]}",
  ],
  [
    ["instruction", "output"],
    '{messages: [{role: "user", content: [.instruction, .input // empty | select(. != "")] | ' +
    'join("\\n\\n")}, {role: "assistant", content: .output}]}',
  ],
  [["content"], "{text: .content}"],
  [["code"], "{text: .code}"],
];

/** Returns hints for a value that is not a row: the kinds of rows, and the command that converts it. */
function kindHints(value: unknown): string[] {
  const has = (key: string) => isObject(value) && key in value;
  const filter = Array.isArray(value) ? ".[]" : CONVERSIONS.find(([keys]) => keys.every(has))?.[1];
  return [KINDS_HINT, ...(filter ? [`convert: \`jq -c '${filter}' FILE > rows.jsonl\``] : [])];
}

/** Returns the name of a place in a file, for messages. */
export function rowOf(file: string, row: number): string {
  return `row ${row} of "${file}"`;
}

/** Checks a row and gives it its kind. */
export function toDocument(value: unknown, file: string, row: number): Document {
  const at = rowOf(file, row);
  if (!isObject(value)) throw wrong(at, `is not a JSON object: ${show(value)}`, kindHints(value));
  const present = Object.keys(KIND_OF_KEY).filter((key) => (value[key] ?? null) !== null);
  const kinds = new Set(present.map((key) => KIND_OF_KEY[key]!));
  if (kinds.size === 0) {
    const keys = Object.keys(value).map((key) => `"${key}"`).join(", ");
    const problem = keys === ""
      ? "is an empty object"
      : `has no "text", "tokens", "prompt" or "messages": its keys are ${shorten(keys)}`;
    throw wrong(at, problem, kindHints(value));
  }
  if (kinds.size > 1) {
    const keys = present.map((key) => `"${key}"`).join(" and ");
    throw wrong(at, `mixes the keys of several kinds: ${keys}`, [KINDS_HINT]);
  }
  switch ([...kinds][0]!) {
    case "text":
      return { row, kind: "text", text: requireText(value, "text", at) };
    case "tokens":
      return { row, kind: "tokens", ...requireTokens(value, at) };
    case "completion": {
      const prompt = requireText(value, "prompt", at);
      const completion = requireText(value, "completion", at);
      if (completion === "") throw wrong(at, 'has an empty "completion"');
      return { row, kind: "completion", prompt, completion };
    }
    case "messages":
      return { row, kind: "messages", ...requireMessages(value, at) };
  }
}

/** Throws when a file changes its kind of rows, which is nearly always a mistake in making it. */
export function requireKind(expected: DocumentKind, document: Document, file: string): void {
  if (document.kind === expected) return;
  throw wrong(
    rowOf(file, document.row),
    `has kind "${document.kind}", expected "${expected}" like the rows before`,
    ["put each kind into a file of its own"],
  );
}

/** The error for a row that cannot be used; `problem` is a predicate, such as "is not UTF-8 text". */
export function wrong(at: string, problem: string, hints: readonly string[] = []): DataError {
  return new DataError(`${at} ${problem}`, { hints });
}

function shorten(text: string): string {
  return text.length > 60 ? `${text.slice(0, 57)}...` : text;
}

function requireText(row: JsonObject, key: string, at: string): string {
  const value = row[key];
  if (typeof value !== "string") throw wrong(at, `has ${show(value)} in "${key}", expected text`);
  return value;
}

function requireTokens(row: JsonObject, at: string): { tokens: Int32Array; labels?: Int32Array } {
  const tokens = requireIntegers(row.tokens, "tokens", at);
  if (tokens.length === 0) throw wrong(at, 'has no token in "tokens"');
  const negative = tokens.find((token) => token < 0);
  if (negative !== undefined) throw wrong(at, `has the negative token id ${negative}`);
  if ((row.labels ?? null) === null) return { tokens };

  const labels = requireIntegers(row.labels, "labels", at);
  if (labels.length !== tokens.length) {
    throw wrong(at, `has ${labels.length} labels, expected ${tokens.length}, one for each token`);
  }
  labels.forEach((label, i) => {
    const token = tokens[i];
    if (label === IGNORED_LABEL || label === token) return;
    const expected = `${IGNORED_LABEL} or the token id`;
    const problem = `has label ${label} for token ${token}, expected ${expected}`;
    throw wrong(at, problem, [
      "a label says whether its own token is trained; it is not shifted by one",
    ]);
  });
  return { tokens, labels };
}

function requireIntegers(value: unknown, key: string, at: string): Int32Array {
  if (!Array.isArray(value)) {
    throw wrong(at, `has ${show(value)} in "${key}", expected a list of integers`);
  }
  const numbers = new Int32Array(value.length);
  for (let i = 0; i < value.length; i++) {
    // Anything but a number could run code of its own, or fail, when it is converted.
    if (typeof value[i] === "number") numbers[i] = value[i];
    if (numbers[i] !== value[i]) {
      throw wrong(at, `has ${show(value[i])} in "${key}", expected integers below 2147483648`);
    }
  }
  return numbers;
}

function requireMessages(
  row: JsonObject,
  at: string,
): { messages: readonly ChatMessage[]; tools?: readonly unknown[] } {
  const { messages, tools } = row;
  if (!Array.isArray(messages) || messages.length === 0) {
    throw wrong(at, `has ${show(messages)} in "messages", expected a list of at least one message`);
  }
  for (const message of messages) {
    if (isObject(message) && typeof message.role === "string") continue;
    throw wrong(at, `has message ${show(message)}, expected an object with "role" and "content"`);
  }
  if (!messages.some(({ role }) => role === "assistant")) {
    throw wrong(at, "has no assistant turn, and only those are trained");
  }
  if ((tools ?? null) === null) return { messages };
  if (!Array.isArray(tools)) throw wrong(at, `has ${show(tools)} in "tools", expected a list`);
  return { messages, tools };
}
