/**
 * Texts for a terminal or a pipe: lines of text, each with a line of letters below.
 *
 *     The cat sat on the mat.
 *     A  BB   A   CC A   B  A
 *
 * Every letter stands below the first column of its token. A token is at least as wide as its
 * stream's name, so that names never run into each other.
 */
import { winnerOf } from "../../../core/analysis/streams.ts";
import { displayWidth } from "../../output/wrap.ts";
import { paintStream } from "./look.ts";
import type { MeasuredText } from "./measure.ts";
import { endsLine, visibleText } from "./token_text.ts";

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
