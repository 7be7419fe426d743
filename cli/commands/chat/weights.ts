/** Aggregation weights of an answer: a letter under every token on a terminal, numbers elsewhere. */
import { winnerOf } from "../../../core/analysis/streams.ts";
import { visible, visibleLines } from "../../output/clean.ts";
import { labelsOf } from "../../../core/base/stream_look.ts";
import { paintStream } from "../../output/paint_stream.ts";
import { displayWidth } from "../../output/wrap.ts";
import type { AnswerPart } from "./session.ts";

/** The weights of every part that has any, one line each. */
export function weightsText(parts: readonly AnswerPart[], streams: number): string {
  const labels = labelsOf(streams);
  return parts.flatMap(({ text, weights }) => {
    if (!weights) return [];
    const numbers = Array.from(weights, (weight, p) => `${labels[p]} ${weight.toFixed(4)}`);
    return [`  ${numbers.join("  ")}  ${JSON.stringify(text)}\n`];
  }).join("");
}

/** Mean weight of each stream over an answer: `mean weights: A 0.31  B 0.69`. */
export function meanWeightsText(parts: readonly AnswerPart[], streams: number): string {
  const all = parts.flatMap(({ weights }) => weights ? [weights] : []);
  if (all.length === 0) return "";
  const means = labelsOf(streams).map((label, p) => {
    const mean = all.reduce((sum, weights) => sum + weights[p]!, 0) / all.length;
    return `${label} ${mean.toFixed(2)}`;
  });
  return `mean weights: ${means.join("  ")}\n`;
}

/** Text of an answer with, under each of its lines, the letter of the stream with the largest weight. */
export class LetteredText {
  #column = 0;
  /** Letters of the line, by column. */
  #letters: { readonly column: number; readonly stream: number }[] = [];

  constructor(
    private readonly streams: number,
    private readonly width: number,
    private readonly colored: boolean,
  ) {}

  /** Returns the text to write for a part. */
  add({ text, weights }: AnswerPart): string {
    let shown = "";
    for (const [i, line] of text.split("\n").entries()) {
      if (i > 0) shown += this.end();
      const clean = visible(line);
      if (clean === "") continue;
      if (this.#column > 0 && this.#column + displayWidth(clean) > this.width) shown += this.end();
      if (weights) this.#letters.push({ column: this.#column, stream: winnerOf(weights) });
      shown += clean;
      this.#column += displayWidth(clean);
    }
    return shown;
  }

  /** Ends the line: its letters, on a line of their own. */
  end(): string {
    const labels = labelsOf(this.streams);
    let under = "", at = 0;
    for (const { column, stream } of this.#letters) {
      const label = labels[stream]!;
      // A token of no width has the place of the next one.
      if (column < at) continue;
      under += " ".repeat(column - at) + (this.colored ? paintStream(label, stream) : label);
      at = column + label.length;
    }
    this.#letters = [];
    this.#column = 0;
    return under === "" ? "\n" : `\n${under}\n`;
  }
}

/** Text of an answer without letters. */
export class PlainText {
  add({ text }: AnswerPart): string {
    return visibleLines(text);
  }

  end(): string {
    return "\n";
  }
}
