/**
 * Picks text and rows of a published corpus: `--text-column` and `--where`.
 */
import { isObject, show } from "../base/files.ts";
import { UsageError } from "../base/errors.ts";
import { type Document, rowOf, toDocument, wrong } from "./document.ts";

/** A condition on a field, which may lie in another: `metadata.language`. */
export interface Condition {
  readonly column: string;
  readonly value: string;
}

/** Rows to read, and the column of their text. */
export interface Selection {
  /** Column of the text; left out, rows have our keys. */
  readonly textColumn?: string;
  /** All of them must hold. */
  readonly where: readonly Condition[];
}

/** Reads `COLUMN=VALUE`. */
export function parseCondition(text: string): Condition {
  const at = text.indexOf("=");
  if (at > 0) return { column: text.slice(0, at), value: text.slice(at + 1) };
  throw new UsageError(`\`--where ${text}\` is not a condition`, {
    hints: ["write COLUMN=VALUE, such as `--where metadata.language=Python`"],
  });
}

/** The document of a row; undefined for a row that a condition leaves out. */
export function selectDocument(
  value: unknown,
  { textColumn, where }: Selection,
  file: string,
  row: number,
): Document | undefined {
  if (!where.every((condition) => String(fieldOf(value, condition.column)) === condition.value)) {
    return undefined;
  }
  if (textColumn === undefined) return toDocument(value, file, row);
  const text = fieldOf(value, textColumn);
  if (typeof text === "string") return { row, kind: "text", text };
  throw wrong(rowOf(file, row), `has ${show(text)} in "${textColumn}", expected text`, [
    "name the column that holds the text with `--text-column`",
  ]);
}

/** A field by its name, or by its path where no field has that name. */
function fieldOf(value: unknown, path: string): unknown {
  if (!isObject(value)) return undefined;
  if (path in value) return value[path];
  const dot = path.indexOf(".");
  return dot < 0 ? undefined : fieldOf(value[path.slice(0, dot)], path.slice(dot + 1));
}

/** Columns of a table that a selection needs besides those of documents. */
export function columnsOf({ textColumn, where }: Selection, names: ReadonlySet<string>): string[] {
  const paths = [...textColumn === undefined ? [] : [textColumn], ...where.map((c) => c.column)];
  const columns = paths.map((path) => names.has(path) ? path : path.split(".")[0]!);
  const missing = columns.find((column) => !names.has(column));
  if (missing === undefined) return [...new Set(columns)];
  throw new UsageError(`the table has no column "${missing}"`, {
    hints: [`its columns are ${[...names].map((name) => `"${name}"`).join(", ")}`],
  });
}
