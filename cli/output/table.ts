/**
 * Rows as text for people: boxed on a terminal, aligned by spaces elsewhere, Markdown, CSV.
 *
 * Numbers stand on the right with the precision their column states; without one, integers are
 * printed whole and others with four significant digits. CSV is the exception: it is read by
 * programs, so its numbers are never rounded. The box-drawing package is only loaded on a terminal.
 */
import { visible } from "./clean.ts";
import type { Palette } from "./color.ts";

/** One result row by `snake_case` key. */
export type Row = Readonly<Record<string, unknown>>;

/** How one key of the rows is shown. */
export interface Column {
  readonly key: string;
  /** Heading; the key with spaces when absent. */
  readonly title?: string;
  /** Digits after the point. */
  readonly digits?: number;
  /** Key of the uncertainty, shown behind the value as `± 0.02`. */
  readonly error?: string;
}

interface Cells {
  readonly titles: readonly string[];
  readonly numeric: readonly boolean[];
  readonly rows: readonly (readonly string[])[];
}

/** Columns for rows that come without: their keys, in order of first appearance. */
export function columnsOf(rows: readonly Row[]): Column[] {
  return [...new Set(rows.flatMap((row) => Object.keys(row)))].map((key) => ({ key }));
}

/** A number with stated precision, or four significant digits. */
export function formatNumber(value: number, digits?: number): string {
  if (digits !== undefined) return value.toFixed(digits);
  return Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(4)));
}

function formatCell(row: Row, column: Column): string {
  const value = row[column.key];
  if (value === null || value === undefined) return "-";
  if (typeof value === "string") return value;
  if (Array.isArray(value) && value.every((one) => typeof one === "string")) {
    return value.join(", ");
  }
  if (typeof value !== "number") return JSON.stringify(value);
  const error = column.error === undefined ? undefined : row[column.error];
  const text = formatNumber(value, column.digits);
  return typeof error === "number" ? `${text} ± ${formatNumber(error, column.digits)}` : text;
}

function formatCells(columns: readonly Column[], rows: readonly Row[]): Cells {
  const numeric = columns.map(({ key }) => {
    const present = rows.map((row) => row[key]).filter((value) => value != null);
    return present.length > 0 && present.every((value) => typeof value === "number");
  });
  return {
    titles: columns.map(({ key, title }) => title ?? key.replaceAll("_", " ")),
    numeric,
    rows: rows.map((row) => columns.map((column) => formatCell(row, column))),
  };
}

/** Columns a text takes on screen: wide East Asian characters and emoji count twice. */
export function displayWidth(text: string): number {
  let width = 0;
  for (const character of text) {
    if (/\p{Mark}/u.test(character)) continue;
    const wide = /[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60]/
      .test(character) || /\p{Emoji_Presentation}/u.test(character);
    width += wide ? 2 : 1;
  }
  return width;
}

function pad(text: string, width: number, right: boolean): string {
  const space = " ".repeat(Math.max(0, width - displayWidth(text)));
  return right ? space + text : text + space;
}

function widths({ titles, rows }: Cells): number[] {
  return titles.map((title, i) =>
    rows.reduce((widest, row) => Math.max(widest, displayWidth(row[i]!)), displayWidth(title))
  );
}

/** All cells without control characters. */
function visibleCells({ titles, numeric, rows }: Cells): Cells {
  return { titles: titles.map(visible), numeric, rows: rows.map((row) => row.map(visible)) };
}

/**
 * The table for pipes and files: no colour, box lines or truncation. On a terminal control characters
 * are made visible.
 */
export function plainTable(
  columns: readonly Column[],
  rows: readonly Row[],
  isTerminal = false,
): string {
  const exact = formatCells(columns, rows);
  const cells = isTerminal ? visibleCells(exact) : exact;
  const wide = widths(cells);
  const line = (texts: readonly string[]) =>
    texts.map((text, i) => pad(oneLine(text), wide[i]!, cells.numeric[i]!)).join("  ").trimEnd();
  return [cells.titles, ...cells.rows].map((texts) => line(texts) + "\n").join("");
}

/** The table for a terminal: the widest text columns give way when it would not fit. */
export async function boxedTable(
  columns: readonly Column[],
  rows: readonly Row[],
  width: number,
  paint: Palette,
): Promise<string> {
  const { default: Table } = await import("cli-table3");
  const cells = visibleCells(formatCells(columns, rows));
  // Each column also takes a space on both sides and a border.
  const colWidths = widths(cells).map((columnWidth) => columnWidth + 2);
  let excess = colWidths.reduce((sum, columnWidth) => sum + columnWidth + 1, 1) - width;
  while (excess > 0) {
    const widest = colWidths.indexOf(Math.max(...colWidths));
    if (colWidths[widest]! <= 10) break;
    colWidths[widest]!--;
    excess--;
  }
  const table = new Table({
    head: cells.titles.map((title) => paint.bold(title)),
    colWidths,
    colAligns: cells.numeric.map((right) => right ? "right" : "left"),
    style: { head: [], border: [] },
  });
  for (const row of cells.rows) table.push(row.map(oneLine));
  return table.toString() + "\n";
}

function oneLine(text: string): string {
  return text.replaceAll("\n", "\\n");
}

/** A table for Markdown documents. */
export function markdownTable(columns: readonly Column[], rows: readonly Row[]): string {
  const cells = formatCells(columns, rows);
  const escape = (text: string) => oneLine(text).replaceAll("|", "\\|");
  const line = (texts: readonly string[]) => `| ${texts.map(escape).join(" | ")} |\n`;
  const rule = line(cells.numeric.map((right) => right ? "---:" : "---"));
  return line(cells.titles) + rule + cells.rows.map(line).join("");
}

/** One CSV record, RFC 4180 quoting. */
export function csvLine(values: readonly unknown[]): string {
  const cell = (value: unknown) => {
    if (value === null || value === undefined) return "";
    const text = typeof value === "string" ? value : JSON.stringify(value);
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return values.map(cell).join(",") + "\n";
}
