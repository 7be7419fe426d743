/**
 * One row of a benchmark file, read by column with errors that say where it stands.
 *
 * A missing column is an error, never an empty text: a prompt built on nothing would give a score that
 * looks real.
 */
import { isObject, show } from "../../base/files.ts";
import { DataError } from "../../base/errors.ts";

/** A row and its place, such as `row 3 of "gsm8k/test.jsonl"`. */
export class Row {
  constructor(readonly fields: Readonly<Record<string, unknown>>, readonly place: string) {}

  /** A column that holds text. */
  text(column: string): string {
    const value = this.#value(column);
    if (typeof value === "string") return value;
    throw this.wrong(column, "text");
  }

  /** A column that holds a list of texts, of exactly `length` where that is given. */
  texts(column: string, length?: number): readonly string[] {
    const value = this.#value(column);
    const fits = Array.isArray(value) && value.every((item) => typeof item === "string") &&
      (length === undefined || value.length === length);
    if (fits) return value;
    const expected = length === undefined ? "a list of texts" : `a list of ${length} texts`;
    throw this.wrong(column, expected);
  }

  /** A column that holds an integer from 0 to `count` − 1, or the same as text. */
  index(column: string, count: number): number {
    const value = this.#value(column);
    const number = typeof value === "string" && /^\d+$/.test(value) ? Number(value) : value;
    if (Number.isInteger(number) && (number as number) >= 0 && (number as number) < count) {
      return number as number;
    }
    throw this.wrong(column, `an integer from 0 to ${count - 1}`);
  }

  /** A column that holds an object, as a row of its own. */
  object(column: string): Row {
    const value = this.#value(column);
    if (isObject(value)) return new Row(value, `"${column}" in ${this.place}`);
    throw this.wrong(column, "an object");
  }

  /** A column that holds a list of objects, as rows of their own. */
  objects(column: string): Row[] {
    const value = this.#value(column);
    if (Array.isArray(value) && value.every(isObject)) {
      return value.map((item, i) => new Row(item, `"${column}" ${i + 1} in ${this.place}`));
    }
    throw this.wrong(column, "a list of objects");
  }

  /** Returns whether the row has a column with something in it. */
  has(column: string): boolean {
    return this.fields[column] != null;
  }

  /** An error about this row; `problem` is a predicate, such as "has no question". */
  error(problem: string): DataError {
    return new DataError(`${this.place} ${problem}`);
  }

  /** An error about the value of a column. */
  wrong(column: string, expected: string): DataError {
    return this.error(
      `has ${show(this.fields[column])} in column "${column}", expected ${expected}`,
    );
  }

  #value(column: string): unknown {
    const value = this.fields[column];
    if (value != null) return value;
    const columns = Object.keys(this.fields).map((name) => `"${name}"`).join(", ");
    const others = columns === "" ? "it is empty" : `its columns are ${columns}`;
    throw this.error(`has no column "${column}": ${others}`);
  }
}

/** Choices as AI2's benchmarks write them: texts and labels side by side, or a list of pairs. */
export function labelledChoices(row: Row): { texts: readonly string[]; labels: readonly string[] } {
  if (Array.isArray(row.fields.choices)) {
    const choices = row.objects("choices");
    return {
      texts: choices.map((choice) => choice.text("text")),
      labels: choices.map((choice) => choice.text("label")),
    };
  }
  const choices = row.object("choices");
  const texts = choices.texts("text");
  return { texts, labels: choices.texts("label", texts.length) };
}

/** The place of an answer's key among labels; keys may have blanks before them. */
export function goldOf(row: Row, column: string, labels: readonly string[]): number {
  const key = row.text(column);
  const gold = labels.indexOf(key.trimStart());
  if (gold >= 0) return gold;
  throw row.wrong(column, `one of ${labels.join(", ")}`);
}
