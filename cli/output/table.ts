/**
 * Rows as text for people: wrapped to a terminal, aligned by spaces elsewhere, Markdown, CSV.
 *
 * Numbers stand on the right with the precision their column states; without one, integers are
 * printed whole and others with four significant digits. CSV is the exception: it is read by
 * programs, so its numbers are never rounded. The table package is only loaded on a terminal.
 */
import { visible } from "./clean.ts";
import type { Palette } from "./color.ts";
import { displayWidth, wrap } from "./wrap.ts";

/** One result row by `snake_case` key. */
export type Row = Readonly<Record<string, unknown>>;

/** Heading and precision of one key of the rows. */
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

function pad(text: string, width: number, right: boolean): string {
  const space = " ".repeat(Math.max(0, width - displayWidth(text)));
  return right ? space + text : text + space;
}

function widths({ titles, rows }: Cells): number[] {
  return titles.map((title, i) =>
    rows.reduce((widest, row) => Math.max(widest, displayWidth(row[i]!)), displayWidth(title))
  );
}

/** All cells on one line, without control characters. */
function visibleCells({ titles, numeric, rows }: Cells): Cells {
  const clean = (text: string) => visible(oneLine(text));
  return { titles: titles.map(clean), numeric, rows: rows.map((row) => row.map(clean)) };
}

/** The table for pipes and files: no colour, no lines, nothing wrapped. */
export function plainTable(columns: readonly Column[], rows: readonly Row[]): string {
  const cells = formatCells(columns, rows);
  const wide = widths(cells);
  const line = (texts: readonly string[]) =>
    texts.map((text, i) => pad(oneLine(text), wide[i]!, cells.numeric[i]!)).join("  ").trimEnd();
  return [cells.titles, ...cells.rows].map((texts) => line(texts) + "\n").join("");
}

/**
 * The table for a terminal: a rule under the titles, cells wrapped at words. Numbers, intervals and
 * words stay whole; rows that do not fit even so become blocks of a line per column.
 */
export async function terminalTable(
  columns: readonly Column[],
  rows: readonly Row[],
  width: number,
  paint: Palette,
): Promise<string> {
  const cells = visibleCells(formatCells(columns, rows));
  const wide = fittingWidths(cells, width);
  if (wide === undefined) return blocks(cells, width, paint);
  const { default: Table } = await import("cli-table3");
  const draw = (lines: readonly (readonly string[])[]) => {
    const table = new Table({
      chars: NO_LINES,
      colWidths: wide,
      colAligns: cells.numeric.map((right) => right ? "right" : "left"),
      style: { head: [], border: [], "padding-left": 0, "padding-right": 0 },
      wordWrap: true,
    });
    for (const line of lines) table.push([...line]);
    return table.toString().replace(/ +$/gm, "");
  };
  const rule = "─".repeat(wide.reduce((sum, one) => sum + one, GAP * (wide.length - 1)));
  const head = draw([cells.titles.map((title) => paint.bold(title))]);
  const body = cells.rows.length > 0 ? `${draw(cells.rows)}\n` : "";
  return `${head}\n${rule}\n${body}`;
}

const GAP = 2;
const NO_LINES = {
  ...Object.fromEntries(
    ["top", "bottom", "mid"].flatMap((name) =>
      ["", "-left", "-mid", "-right"].map((part) => [`${name}${part}`, ""])
    ),
  ),
  "left-mid": "",
  "mid-mid": "",
  "right-mid": "",
  left: "",
  right: "",
  middle: " ".repeat(GAP),
};

/** Numbers and intervals, which are read as one. */
const WHOLE = /^[[(<~]?[-+−]?\d.{0,30}$/;

/** Widths that leave every word whole, the widest columns narrowed first; undefined if none fit. */
function fittingWidths(cells: Cells, width: number): number[] | undefined {
  const wide = widths(cells);
  const least = cells.titles.map((title, i) =>
    Math.max(...[title, ...cells.rows.map((row) => row[i]!)].map(leastWidth))
  );
  let excess = wide.reduce((sum, one) => sum + one, GAP * (wide.length - 1)) - width;
  while (excess > 0) {
    const spare = wide.map((one, i) => one > least[i]! ? one : 0);
    const widest = spare.indexOf(Math.max(...spare));
    if (spare[widest] === 0) return undefined;
    wide[widest]!--;
    excess--;
  }
  return wide;
}

function leastWidth(text: string): number {
  const parts = WHOLE.test(text) ? [text] : text.split(" ");
  return Math.max(...parts.map(displayWidth));
}

/** A block per row, a line per column. */
function blocks({ titles, rows }: Cells, width: number, paint: Palette): string {
  const left = Math.max(...titles.map(displayWidth)) + GAP;
  return rows.map((row) =>
    row.map((text, i) => {
      const lines = wrap(text, Math.max(20, width - left)).split("\n");
      const title = titles[i]!;
      return `${paint.bold(title)}${" ".repeat(left - displayWidth(title))}${
        lines.join(`\n${" ".repeat(left)}`)
      }\n`;
    }).join("")
  ).join("\n");
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
