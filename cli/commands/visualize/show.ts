/**
 * Writes the result of `parscale visualize` in the format that was asked for.
 *
 * Takes texts one by one, then the study of all; returns for readers the texts with their letters
 * and the statistics, for programs rows or a document. Only a document has both rows and
 * statistics.
 */
import { visible } from "../../output/clean.ts";
import { wantsColor } from "../../output/color.ts";
import type { Invocation } from "../../output/document.ts";
import type { Io } from "../../output/io.ts";
import { openReport } from "../../output/report.ts";
import { openSink } from "../../output/sink.ts";
import { type Column, plainTable, type Row, terminalTable } from "../../output/table.ts";
import type { MeasuredText } from "./measure.ts";
import { columnsOf, flatRow, resultOf, rowsOf, SCHEMA, type Study } from "./result.ts";
import { summaryTables } from "./summary.ts";
import { legendText, textView } from "./terminal.ts";

/** A result being written. */
export interface Result extends Disposable {
  text(text: MeasuredText): void;
  finish(study: Study): Promise<void>;
}

/** What is known before the first text. */
export interface ResultOptions {
  readonly labels: readonly string[];
  readonly device: string;
  /** Number of texts to come. */
  readonly texts: number;
  /** Whether texts are shown as well as statistics, in the format for readers. */
  readonly showsTexts: boolean;
}

/** Opens the result; refuses an existing file. */
export function openResult(io: Io, invocation: Invocation, options: ResultOptions): Result {
  return invocation.format === "table"
    ? readableResult(io, invocation, options)
    : programResult(io, invocation, options);
}

function programResult(
  io: Io,
  invocation: Invocation,
  { labels, device }: ResultOptions,
): Result {
  const { format } = invocation;
  const columns = format === "json" ? {} : { columns: columnsOf(labels) };
  const report = openReport(io, invocation, { schema: SCHEMA, device, ...columns });
  return {
    text(text) {
      if (format === "json") return;
      for (const row of rowsOf(text, labels)) {
        report.row(format === "jsonl" ? row : flatRow(row, labels));
      }
    },
    finish: (study) => report.finish(format === "json" ? resultOf(study) : undefined),
    [Symbol.dispose]: () => report[Symbol.dispose](),
  };
}

function readableResult(
  io: Io,
  { out, overwrite }: Invocation,
  { labels, texts, showsTexts }: ResultOptions,
): Result {
  const sink = openSink(io, out, overwrite);
  const isFile = out !== undefined && out !== "-";
  const colored = !isFile &&
    wantsColor(io.settings.color, io.isTerminal("stdout"), (name) => io.env(name));
  const view = { width: io.width(), colored };
  const draw = (columns: readonly Column[], rows: readonly Row[]) =>
    sink.isTerminal
      ? terminalTable(columns, rows, view.width, io.palette("stdout"))
      : plainTable(columns, rows);
  if (showsTexts) sink.write(legendText(labels, view) + "\n");
  return {
    text(text) {
      if (!showsTexts) return;
      const head = texts > 1 ? `--- text ${visible(String(text.id))}\n` : "";
      sink.write(`${head}${textView(text, labels, view)}\n`);
    },
    async finish(study) {
      const tables: string[] = [];
      for (const { title, columns, rows, note } of summaryTables(study)) {
        tables.push(`${title}\n${await draw(columns, rows)}${note}\n`);
      }
      sink.write(tables.join("\n"));
      sink.commit();
    },
    [Symbol.dispose]: () => sink.abandon(),
  };
}
