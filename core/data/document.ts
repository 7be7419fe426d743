/**
 * One row of training data, and what makes a row valid.
 *
 * Keys that are not ours are ignored, and null counts as absent, since a table with optional columns
 * has no other way to say so.
 */
import { parseExactJson } from "../base/exact_json.ts";
import { isObject, type JsonObject, jsonValue, show } from "../base/files.ts";
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
  input_ids: "tokens",
  labels: "tokens",
  prompt: "completion",
  completion: "completion",
  messages: "messages",
  conversations: "messages",
};

/** Every key we read; a table's other columns need not be decoded. */
export const DOCUMENT_KEYS: readonly string[] = [...Object.keys(KIND_OF_KEY), "tools"];

const KINDS_HINT =
  'a row is {"text": ...}, {"tokens": [...]}, {"prompt": ..., "completion": ...} or {"messages": [...]}';

/** Rows of other programs by their keys, Alpaca's and texts: a filter of jq, and columns of SQL. */
const CONVERSIONS: readonly (readonly [keys: readonly string[], filter: string, sql: string])[] = [
  [
    ["instruction", "output"],
    '{messages: [{role: "user", content: [.instruction, .input // empty | select(. != "")] | ' +
    'join("\\n\\n")}, {role: "assistant", content: .output}]}',
    "[{role: 'user', content: concat_ws(chr(10) || chr(10), instruction INPUT)}, " +
    "{role: 'assistant', content: output}] AS messages",
  ],
  [["content"], "{text: .content}", "content AS text"],
  [["code"], "{text: .code}", "code AS text"],
];

/** Returns hints for a value that is not a row: the kinds of rows, and the command that converts it. */
function kindHints(value: unknown): string[] {
  const has = (key: string) => isObject(value) && key in value;
  const filter = Array.isArray(value) ? ".[]" : CONVERSIONS.find(([keys]) => keys.every(has))?.[1];
  return [KINDS_HINT, ...(filter ? [`convert: \`jq -c '${filter}' FILE > rows.jsonl\``] : [])];
}

/** Returns the command that converts a table with these columns; a general one for unknown columns. */
export function tableHint(names: ReadonlySet<string>): string {
  const [, , sql = "COLUMN AS text"] =
    CONVERSIONS.find(([keys]) => keys.every((key) => names.has(key))) ?? [];
  const columns = sql.replace(" INPUT", names.has("input") ? ", nullif(input, '')" : "");
  return `convert: \`duckdb -c "COPY (SELECT ${columns} FROM 'FILE') TO 'rows.parquet'"\``;
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
    const quote = (keys: string[]) => keys.map((key) => `"${key}"`).join(", ");
    const absent = Object.keys(KIND_OF_KEY).filter((key) => key in value);
    if (absent.length > 0) throw wrong(at, `has null in ${quote(absent)}`, ["leave out such rows"]);
    const keys = quote(Object.keys(value));
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

/** The name under which a row has a value: ours, or the one that others use. */
function keyIn(row: JsonObject, name: string, other: string): string {
  return row[name] == null && row[other] != null ? other : name;
}

function requireTokens(row: JsonObject, at: string): { tokens: Int32Array; labels?: Int32Array } {
  const key = keyIn(row, "tokens", "input_ids");
  const tokens = requireIntegers(row[key], key, at);
  if (tokens.length === 0) throw wrong(at, `has no token in "${key}"`);
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
  const key = keyIn(row, "messages", "conversations");
  const list = parsed(row[key]), tools = parsed(row.tools);
  if (!Array.isArray(list) || list.length === 0) {
    throw wrong(at, `has ${show(list)} in "${key}", expected a list of at least one message`);
  }
  const messages = list.map((item) => toMessage(item, at));
  if (!messages.some(isTrained)) {
    const but = messages.some(({ role }) => role === "assistant") ? " but of weight 0" : "";
    throw wrong(at, `has no assistant turn${but}, and only those are trained`);
  }
  if ((tools ?? null) === null) return { messages };
  if (!Array.isArray(tools)) throw wrong(at, `has ${show(tools)} in "tools", expected a list`);
  return { messages, tools };
}

/** A value that a table holds as JSON text, since its columns have one type. */
function parsed(value: unknown): unknown {
  if (typeof value !== "string") return value;
  const found = jsonValue(value || "null", parseExactJson);
  return found === undefined ? value : found;
}

/** Returns whether an answer is trained: one of weight 0 is context, as in fine-tuning by OpenAI. */
export function isTrained({ role, weight }: ChatMessage): boolean {
  return role === "assistant" && weight !== 0;
}

/** Roles of ShareGPT that have other names. */
const ROLES: Readonly<Record<string, string>> = { human: "user", gpt: "assistant" };

/** Checks a message; one of ShareGPT, with `from` and `value`, is read as by TRL. */
function toMessage(item: unknown, at: string): ChatMessage {
  const { from, value, ...rest } = isObject(item) ? item : {};
  const message = typeof from === "string" && rest.role == null
    ? { ...rest, role: Object.hasOwn(ROLES, from) ? ROLES[from] : from, content: value }
    : item;
  if (!isObject(message) || typeof message.role !== "string") {
    throw wrong(at, `has message ${show(item)}, expected an object with "role" and "content"`);
  }
  const { role, weight } = message;
  if (role === "assistant" && ![undefined, null, 0, 1].includes(weight as number)) {
    throw wrong(at, `has weight ${show(weight)} in a message, expected 0 or 1`);
  }
  return message as ChatMessage;
}
