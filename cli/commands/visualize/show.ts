/**
 * Writes the result of `parscale visualize` in the format that was asked for.
 *
 * Takes texts one by one, then the study of all; returns for readers the texts with their letters
 * and the statistics, for programs rows or a document. Only a document has both rows and
 * statistics.
 *
 * Lines of text have a line of letters below, each below the first column of its token. A token is at
 * least as wide as its stream's name, so that names never run into each other.
 *
 *     The cat sat on the mat.
 *     A  BB   A   CC A   B  A
 */
import { winnerOf } from "../../../core/analysis/streams.ts";
import { visible } from "../../output/clean.ts";
import { wantsColor } from "../../output/color.ts";
import type { Invocation } from "../../output/document.ts";
import type { Io } from "../../output/io.ts";
import { openReport } from "../../output/report.ts";
import { openSink } from "../../output/sink.ts";
import { type Column, plainTable, type Row, terminalTable } from "../../output/table.ts";
import { displayWidth } from "../../output/wrap.ts";
import { paintStream } from "./look.ts";
import type { MeasuredText } from "./measure.ts";
import { columnsOf, flatRow, resultOf, rowsOf, SCHEMA, type Study } from "./result.ts";
import { summaryTables } from "./summary.ts";
import { endsLine, visibleText } from "./token_text.ts";

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

/** How texts are laid out. */
export interface TextView {
  /** Columns to wrap at. */
  readonly width: number;
  /** Whether winners are coloured as well as named. */
  readonly colored: boolean;
}

/** What every letter and colour stands for. */
export function legendText(labels: readonly string[], { width, colored }: TextView): string {
  const entries = labels.map((label, p) => {
    const swatch = ` ${label} `;
    return { text: colored ? paintStream(swatch, p) : label, size: colored ? label.length + 2 : 0 };
  });
  const lines = ["Streams:"];
  let used = lines[0]!.length;
  entries.forEach(({ text, size }, p) => {
    const wide = 1 + (size || labels[p]!.length);
    if (used + wide > width) {
      lines.push("        ");
      used = 8;
    }
    lines[lines.length - 1] += ` ${text}`;
    used += wide;
  });
  return lines.join("\n") + "\n";
}

/** The text with its letters. */
export function textView(
  text: MeasuredText,
  labels: readonly string[],
  view: TextView,
): string {
  const lines: string[] = [];
  let above = "", below = "", used = 0;
  const flush = () => {
    if (used > 0) lines.push(view.colored ? above : above.trimEnd(), below.trimEnd());
    above = below = "";
    used = 0;
  };
  text.tokens.forEach((id, t) => {
    const stream = winnerOf(text.weights[t]!);
    const label = labels[stream]!;
    const shown = shorten(visibleText(text.pieces[t], id), view.width);
    const wide = Math.max(displayWidth(shown), label.length);
    if (used + wide > view.width) flush();
    const cell = shown + " ".repeat(wide - displayWidth(shown));
    above += view.colored ? paintStream(cell, stream) : cell;
    below += label.padEnd(wide);
    used += wide;
    if (endsLine(text.pieces[t])) flush();
  });
  flush();
  return lines.map((line) => line + "\n").join("");
}

/** A token that fills more than a line: its beginning. */
function shorten(shown: string, width: number): string {
  if (displayWidth(shown) <= width) return shown;
  let kept = "";
  for (const character of shown) {
    if (displayWidth(kept + character) > width - 1) break;
    kept += character;
  }
  return `${kept}…`;
}
