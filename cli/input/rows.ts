/**
 * Input rows of `score` and `generate`: JSON lines with an id, counted from 0 where they have none.
 *
 * A line that is not a JSON object, or lacks what every row needs, breaks the input and ends the command
 * (exit code 3, with its line number), unless `--on-error row` is given. A well-formed row that the model
 * cannot take is that row's failure only: it is recorded and the others continue, unless
 * `--on-error stop` is.
 */
import { DataError } from "../../core/base/errors.ts";
import { parseRowJson } from "../../core/base/exact_json.ts";
import { isObject, type JsonObject, parseJson, show } from "../../core/base/files.ts";
import { withCauses } from "../output/errors.ts";

/** One parsed line. */
export interface InputRow {
  readonly id: unknown;
  readonly line: number;
  readonly fields: JsonObject;
  /** The error in the line, where such rows are recorded. */
  readonly error?: DataError;
}

/** Treatment of rows that fail; see the flag. */
export type OnError = "row" | "stop" | undefined;

/** Lines of a text, or of a file that is being read. */
type Lines = Iterable<string> | AsyncIterable<string>;

/** JSON values as their lines come, of `name` in messages; blank lines are passed over. */
export async function* readJsonLines(
  lines: Lines,
  name: string,
): AsyncGenerator<{ readonly value: unknown; readonly line: number }> {
  for await (const { text, line } of numbered(lines)) {
    yield { value: parseJson(text, `line ${line} of ${name}`), line };
  }
}

async function* numbered(lines: Lines): AsyncGenerator<{ text: string; line: number }> {
  let line = 0;
  for await (const text of lines) {
    line++;
    if (text.trim() !== "") yield { text, line };
  }
}

/** Rows as their lines come. */
export async function* readRows(
  lines: Lines,
  name: string,
  onError?: OnError,
): AsyncGenerator<InputRow> {
  let row = 0;
  for await (const { text, line } of numbered(lines)) {
    const { value: fields = {}, error } = await attempt(onError, () => {
      const value = parseJson(text, `line ${line} of ${name}`, [], parseRowJson);
      if (isObject(value)) return value;
      throw rowError(name, line, show(value), "a JSON object");
    });
    yield { id: fields.id ?? row, line, fields, ...(error && { error }) };
    row++;
  }
}

/** The result of `read`, or the error in its data, where such rows are recorded. */
export async function attempt<T>(
  onError: OnError,
  read: () => T | Promise<T>,
): Promise<{ readonly value?: T; readonly error?: DataError }> {
  try {
    return { value: await read() };
  } catch (error) {
    if (onError !== "row" || !(error instanceof DataError)) throw error;
    return { error };
  }
}

/** The failure of a row that ends the command, which names the row. */
export function endingFailure(id: unknown, cause: unknown): DataError {
  return new DataError(`row ${show(id)}`, { cause });
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
  throw rowError(name, line, `${show(value)} in "tokens"`, "a list of numbers");
}

/** The text of a row's field. */
export function textOf(value: unknown, field: string, name: string, line: number): string {
  if (typeof value === "string") return value;
  throw rowError(name, line, `${show(value)} in "${field}"`, "text");
}

/** Returns what is written in place of a result that could not be computed. */
export function failureOf(error: unknown): string {
  return error instanceof Error ? withCauses(error) : String(error);
}
