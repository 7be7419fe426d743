/**
 * Rows as text: wrapped to a terminal, aligned by spaces elsewhere, Markdown, CSV.
 *
 * Numbers stand on the right with the precision their column states; without one, integers are
 * printed whole and others with four significant digits. CSV is the exception: it is read by
 * programs, so its numbers are never rounded. The table package is only loaded on a terminal.
 */
import { visible } from "./clean.ts";
import type { Palette } from "./color.ts";
import { displayWidth, shorten, wrap } from "./wrap.ts";

/** One result row by `snake_case` key. */
export type Row = Readonly<Record<string, unknown>>;

/** Heading and precision of one key of the rows. */
export interface Column {
  readonly key: string;
  /** Heading; the key with spaces when absent. */
  readonly title?: string;
  /** Digits after the point. */
  readonly digits?: number;
  /** Key of the uncertainty, shown after the value as `± 0.02`. */
  readonly error?: string;
  /** The value to show in place of one that is there; programs get it as it is. */
  readonly show?: (value: unknown) => unknown;
  /** True if a terminal that is too narrow may cut a cell. */
  readonly shortens?: boolean;
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

function shownValue(row: Row, { key, show }: Column): unknown {
  const value = row[key];
  return value === null || value === undefined ? value : show?.(value) ?? value;
}

function formatCell(row: Row, column: Column): string {
  const value = shownValue(row, column);
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
  const numeric = columns.map((column) => {
    const present = rows.map((row) => shownValue(row, column)).filter((value) => value != null);
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

function widths({ titles, rows }: Cells, widthOf = displayWidth): number[] {
  return titles.map((title, i) =>
    rows.reduce((widest, row) => Math.max(widest, widthOf(row[i]!)), widthOf(title))
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
 * words stay whole. Where they do not fit, columns that are the same in all rows become a line above,
 * then the last columns are left out with a line below that names them, and in the end rows become
 * blocks of a line per column.
 */
export async function terminalTable(
  columns: readonly Column[],
  rows: readonly Row[],
  width: number,
  paint: Palette,
): Promise<string> {
  const all = visibleCells(formatCells(columns, rows));
  const fitted = fit(all, columns.map(({ shortens = false }) => shortens), width);
  if (fitted === undefined) return blocks(all, width, paint);
  const { cells, wide, above, below } = fitted;
  const { default: Table } = await import("cli-table3");
  const draw = (lines: readonly (readonly string[])[]) => {
    const table = new Table({
      chars: NO_LINES,
      colWidths: [...wide],
      colAligns: cells.numeric.map((right) => right ? "right" : "left"),
      style: { head: [], border: [], "padding-left": 0, "padding-right": 0 },
      wordWrap: true,
    });
    for (const line of lines) table.push([...line]);
    return table.toString().replace(/ +$/gm, "");
  };
  const rule = "─".repeat(wide.reduce((sum, one) => sum + one, GAP * (wide.length - 1)));
  const head = draw([cells.titles.map((title) => paint.bold(title))]);
  // The library takes time by the square of the rows.
  const parts = Array.from(
    { length: Math.ceil(cells.rows.length / ROWS_AT_ONCE) },
    (_, i) => cells.rows.slice(i * ROWS_AT_ONCE, (i + 1) * ROWS_AT_ONCE),
  );
  const body = parts.map((part) => `${draw(part)}\n`).join("");
  const note = (text: string) => text === "" ? "" : `${wrap(text, width)}\n`;
  return `${note(above)}${head}\n${rule}\n${body}${note(below)}`;
}

/** Rows that are drawn together. */
const ROWS_AT_ONCE = 500;

/** A table that fits. */
interface Fitted {
  readonly cells: Cells;
  readonly wide: readonly number[];
  /** Cells that all rows have in common. */
  readonly above: string;
  /** Note on what is left out. */
  readonly below: string;
}

/** Number of columns below which rows are printed as blocks. */
const FEWEST_COLUMNS = 3;

/** The table with as many columns as fit; undefined if too few do. */
function fit(all: Cells, shortens: readonly boolean[], width: number): Fitted | undefined {
  const tried = (kept: readonly number[], above: string, below: string) => {
    const cells = columnsAt(all, kept);
    const mayShorten = kept.map((i) => shortens[i]!);
    const wide = fittingWidths(cells, mayShorten, width);
    if (wide === undefined) return undefined;
    return { cells: shortened(cells, mayShorten, wide), wide, above, below };
  };
  const every = all.titles.map((_, i) => i);
  const whole = tried(every, "", "");
  if (whole !== undefined || all.rows.length < 2) return whole;
  const varies = (i: number) => all.rows.some((row) => row[i] !== all.rows[0]![i]);
  const kept = every.filter((i) => i === 0 || varies(i));
  const common = every.filter((i) => !kept.includes(i) && all.rows[0]![i] !== "-")
    .map((i) => `${all.titles[i]} ${all.rows[0]![i]}`).join(", ");
  const above = common === "" ? "" : `all rows: ${common}`;
  for (let count = kept.length; count >= Math.min(FEWEST_COLUMNS, kept.length); count--) {
    const out = kept.slice(count).map((i) => all.titles[i]).join(", ");
    const below = out === "" ? "" : `left out for want of width: ${out}; --format csv has all`;
    const found = tried(kept.slice(0, count), above, below);
    if (found !== undefined) return found;
  }
}

function columnsAt({ titles, numeric, rows }: Cells, kept: readonly number[]): Cells {
  const pick = <T>(values: readonly T[]) => kept.map((i) => values[i]!);
  return { titles: pick(titles), numeric: pick(numeric), rows: rows.map(pick) };
}

/** Least width of a column whose cells may be shortened, and the lines they have at most. */
const SHORTEST = 12, MOST_LINES = 2;

/** Cells as they are drawn; those that may be shortened in two lines at most, the last with `…`. */
function shortened(
  { titles, numeric, rows }: Cells,
  shortens: readonly boolean[],
  wide: readonly number[],
): Cells {
  const cell = (text: string, width: number) => {
    const words = text.split(" ").map((word) => shorten(word, width)).join(" ");
    const lines = wrap(words, width).split("\n");
    if (lines.length <= MOST_LINES) return words;
    const last = lines.slice(MOST_LINES - 1).join(" ");
    return [...lines.slice(0, MOST_LINES - 1), shorten(last, width)].join(" ");
  };
  const short = rows.map((row) =>
    row.map((text, i) => shortens[i] ? cell(text, wide[i]!) : broken(text, wide[i]!))
  );
  return { titles, numeric, rows: short };
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
function fittingWidths(
  cells: Cells,
  shortens: readonly boolean[],
  width: number,
): number[] | undefined {
  const wide = widths(cells);
  const least = widths(cells, leastWidth)
    .map((whole, i) => shortens[i] ? Math.min(SHORTEST, whole) : whole);
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

/** Parts of a cell that stay whole: words, a number and its interval in parentheses, halves of a hash. */
function partsOf(text: string): readonly string[] {
  if (/^[\da-f]{64}$/.test(text)) return [text.slice(0, 32), text.slice(32)];
  return WHOLE.test(text) ? text.split(/ (?=\()/) : text.split(" ");
}

function leastWidth(text: string): number {
  return Math.max(...partsOf(text).map(displayWidth));
}

/** A cell as it is drawn: words are wrapped by the library, other parts here. */
function broken(text: string, width: number): string {
  const isWords = !WHOLE.test(text) && text.includes(" ");
  return isWords || displayWidth(text) <= width ? text : partsOf(text).join("\n");
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
