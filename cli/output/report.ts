/**
 * Writes the result of a command in the format that was asked for.
 *
 * A command adds rows as they become known, or hands one object to `finish`. JSON lines and CSV go
 * out row by row; a table, a JSON document and Markdown need all rows and go out at the end.
 * Opened with `using`, an unfinished report leaves no file behind.
 */
import { buildDocument, type DocumentHead, type Invocation, toJson } from "./document.ts";
import { visibleJson, visibleLines } from "./clean.ts";
import { PLAIN } from "./color.ts";
import type { Io } from "./io.ts";
import { openSink, type Sink } from "./sink.ts";
import {
  type Column,
  columnsOf,
  csvLine,
  markdownTable,
  plainTable,
  type Row,
  terminalTable,
} from "./table.ts";
import { wrapLines } from "./wrap.ts";

/** Options of reporting a result. */
export interface ReportOptions extends DocumentHead {
  /** Columns of table, Markdown and CSV, those without a format by their keys; all keys of the rows when absent. */
  readonly columns?: readonly (Column | string)[];
  /** Columns of table and Markdown alone, where CSV has all keys. */
  readonly shown?: readonly (Column | string)[];
  /** Called with the path of a file that is whole before it gets its name. */
  readonly onWhole?: (path: string) => void;
}

/** A result being written. */
export class Report implements Disposable {
  readonly #rows: Row[] = [];
  readonly #endings: string[] = [];
  #columns: readonly Column[] | undefined;
  readonly #sink: Sink;

  /** Refuses an existing file before anything is computed. */
  constructor(readonly io: Io, readonly invocation: Invocation, readonly options: ReportOptions) {
    const isReadable = invocation.format === "table" || invocation.format === "md";
    const columns = options.columns ?? (isReadable ? options.shown : undefined);
    this.#columns = columns?.map((one) => typeof one === "string" ? { key: one } : one);
    this.#sink = openSink(io, invocation.out, invocation.overwrite, options.onWhole);
  }

  /** Adds a row. */
  row(row: Row): void {
    const { format } = this.invocation;
    if (format === "jsonl") this.#write(toJson(row) + "\n");
    else if (format === "csv") this.#csv(row);
    else this.#rows.push(row);
  }

  /** Completes the result. `results` replaces the rows in a document: one object, or none. */
  async finish(results?: Row): Promise<void> {
    const { format } = this.invocation;
    if (format === "json") {
      const duration = this.io.system.now() - this.invocation.startedMs;
      const content = results ?? this.#rows;
      const document = buildDocument(this.invocation, this.options, duration, content);
      this.#write(toJson(document, 2) + "\n");
    } else if (results !== undefined && (format === "jsonl" || format === "csv")) {
      this.row(results);
    } else if (format === "table" || format === "md") {
      this.#sink.write(await this.#table(results));
      for (const text of this.#endings) this.remark(text);
    }
    this.#sink.commit();
  }

  /** Text over a readable table: a remark, a total. Lines that fit stay as they are. */
  remark(text: string): void {
    if (this.invocation.format !== "table") return;
    this.#write(`${this.#sink.isTerminal ? wrapLines(text, this.io.width()) : text}\n`);
  }

  /** Text under a readable table. */
  ending(text: string): void {
    this.#endings.push(text);
  }

  /** Text beside a readable table, such as a chart, with colours and spaces of its own. */
  raw(text: string): void {
    if (this.invocation.format === "table") this.#sink.write(text);
  }

  /** A readable table as this result shows it. */
  async draw(columns: readonly Column[], rows: readonly Row[]): Promise<string> {
    if (!this.#sink.isTerminal) return plainTable(columns, rows);
    const paint = this.invocation.out === undefined ? this.io.palette("stdout") : PLAIN;
    return await terminalTable(columns, rows, this.io.width(), paint);
  }

  /** Gives up an unfinished report. */
  [Symbol.dispose](): void {
    this.#sink[Symbol.dispose]();
  }

  #csv(row: Row): void {
    if (this.#rows.length === 0) {
      this.#columns ??= columnsOf([row]);
      this.#write(csvLine(this.#columns.map(({ key }) => key)));
      this.#rows.push(row);
    }
    this.#write(csvLine(this.#columns!.map(({ key }) => row[key])));
  }

  /** Writes what has no colours of ours. */
  #write(text: string): void {
    const clean = this.invocation.format.startsWith("json") ? visibleJson : visibleLines;
    this.#sink.write(this.#sink.isTerminal ? clean(text) : text);
  }

  /** One object is shown upright, a field per line, unless columns were given for it. */
  async #table(results: Row | undefined): Promise<string> {
    const upright = results !== undefined && this.#columns === undefined;
    const rows = upright
      ? Object.entries(results).filter(([, value]) => value !== null && value !== undefined)
        .map(([field, value]) => ({ field, value: showField(value) }))
      : results === undefined
      ? this.#rows
      : [results];
    const columns = this.#columns ?? columnsOf(rows);
    if (this.invocation.format === "table") {
      return columns.length === 0 || rows.length === 0 ? "" : await this.draw(columns, rows);
    }
    const text = markdownTable(columns, rows);
    return this.#sink.isTerminal ? visibleLines(text) : text;
  }
}

function showField(value: unknown): unknown {
  if (typeof value !== "number") return value;
  return String(Number.isInteger(value) ? value : Number(value.toPrecision(6)));
}

/** Writes rows as the whole result, under a remark that is composed once all of them are known. */
export async function reportRows(
  io: Io,
  invocation: Invocation,
  options: ReportOptions,
  rows: Iterable<Row> | AsyncIterable<Row>,
  remark?: () => string,
): Promise<void> {
  using report = new Report(io, invocation, options);
  for await (const row of rows) report.row(row);
  if (remark !== undefined) report.remark(remark());
  await report.finish();
}
