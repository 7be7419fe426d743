/**
 * Reads comma-separated values (RFC 4180) in one pass, cell by cell: a quote that nothing closes is refused
 * where it opens, and no line is kept.
 */
import { DataError } from "./errors.ts";

/** Options of the layout. */
export interface CsvOptions {
  /** One character (default a comma). */
  readonly separator?: string;
  /** Leaves out blanks before a cell. */
  readonly trimsStart?: boolean;
}

/** The rows of a text, empty lines left out; `name` stands for it in messages. @throws {DataError} */
export function* csvRows(
  text: string,
  name: string,
  { separator = ",", trimsStart = false }: CsvOptions = {},
): Generator<string[]> {
  const plain = new RegExp(`[^${separator}\n]*`, "y");
  const wrong = (at: number, problem: string) =>
    new DataError(`${name} is not valid CSV: line ${lineAt(text, at)} has ${problem}`, {
      hints: ['write a cell with quotes as "a ""b"""'],
    });
  let cells: string[] = [];
  for (let at = 0; at < text.length; at++) {
    while (trimsStart && text[at] === " ") at++;
    const first = at;
    let cell = "";
    if (text[at] === '"') {
      while (text[at] === '"') {
        const end = text.indexOf('"', at + 1);
        if (end < 0) throw wrong(first, "a quote that is not closed");
        cell += text.slice(at > first ? at : at + 1, end); // a second quote stands for itself
        at = end + 1;
      }
    } else {
      plain.lastIndex = at;
      cell = plain.exec(text)![0];
      at += cell.length;
      if (cell.includes('"')) throw wrong(first, "a quote inside a cell without quotes");
      if (text[at] !== separator && cell.endsWith("\r")) cell = cell.slice(0, -1);
    }
    if (text[at] === "\r" && text[at + 1] === "\n") at++;
    const isLast = at >= text.length || text[at] === "\n";
    if (!isLast && text[at] !== separator) throw wrong(first, "text after a quoted cell");
    const isEmpty = cell === "" && text[first] !== '"';
    if (!isLast || cells.length > 0 || !isEmpty) cells.push(cell);
    if (isLast && cells.length > 0) {
      yield cells;
      cells = [];
    }
    if (at === text.length - 1 && !isLast) yield [...cells, ""]; // a separator ends the text
  }
}

function lineAt(text: string, at: number): number {
  let line = 1;
  for (let end = -1; (end = text.indexOf("\n", end + 1)) >= 0 && end < at;) line++;
  return line;
}
