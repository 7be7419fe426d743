/**
 * Input rows of `score` and `generate`: JSON lines with an id, counted from 0 where they have none.
 *
 * A line that is no JSON object, or lacks what every row needs, breaks the input and ends the command
 * (exit code 3, with its line number). A well-formed row that the model cannot take is that row's
 * failure only: it is recorded and the others continue.
 */
import { DataError } from "../../core/base/errors.ts";

/** One parsed line. */
export interface InputRow {
  readonly id: unknown;
  readonly line: number;
  readonly fields: Readonly<Record<string, unknown>>;
}

/** Parses lines as they come; blank lines are passed over. */
export async function* readRows(
  lines: AsyncIterable<string>,
  name: string,
): AsyncGenerator<InputRow> {
  let line = 0;
  let row = 0;
  for await (const text of lines) {
    line++;
    if (text.trim() === "") continue;
    const fields = parseObject(text, line, name);
    yield { id: fields.id ?? row, line, fields };
    row++;
  }
}

function parseObject(text: string, line: number, name: string): Record<string, unknown> {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    const { message } = cause as Error;
    throw new DataError(`line ${line} of ${name} is not valid JSON: ${message}`);
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw rowError(name, line, shorten(text), "a JSON object");
  }
  return value as Record<string, unknown>;
}

/** Field names of a row that lacks what it needs, for its error. */
export function fieldNames(row: InputRow): string {
  const names = Object.keys(row.fields).map((name) => `"${name}"`);
  return names.length > 0 ? `only ${names.join(", ")}` : "no fields";
}

/** An error that names the line. */
export function rowError(name: string, line: number, found: string, expected: string): DataError {
  return new DataError(`line ${line} of ${name}: found ${found}, expected ${expected}`);
}

/** The token ids of a row's field. */
export function tokensOf(value: unknown, name: string, line: number): number[] {
  if (Array.isArray(value) && value.every((id) => typeof id === "number")) return value;
  throw rowError(name, line, `${shorten(JSON.stringify(value))} in "tokens"`, "a list of numbers");
}

/** The text of a row's field. */
export function textOf(value: unknown, field: string, name: string, line: number): string {
  if (typeof value === "string") return value;
  throw rowError(
    name,
    line,
    `${shorten(JSON.stringify(value) ?? "nothing")} in "${field}"`,
    "text",
  );
}

function shorten(text: string): string {
  return text.length > 60 ? `${text.slice(0, 57)}...` : text;
}

/** Returns what is written in place of a result that could not be computed. */
export function failureOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
