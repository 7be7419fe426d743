/** Answers on a terminal: text, a letter and colour per stream, weights on request. */
import { winnerOf } from "../../../core/analysis/streams.ts";
import { visibleLines } from "../../output/clean.ts";
import { labelsOf, paintStream } from "../visualize/look.ts";
import type { AnswerPart } from "./session.ts";

/** How parts of an answer are shown. */
export interface ShowOptions {
  readonly streams: number;
  /** Adds the letter of the stream that weighs most to every part. */
  readonly letters: boolean;
  readonly colored: boolean;
}

/** A part of an answer as text. */
export function partText({ text, weights }: AnswerPart, options: ShowOptions): string {
  const shown = visibleLines(text);
  if (!options.letters || !weights || text === "") return shown;
  const stream = winnerOf(weights);
  const label = labelsOf(options.streams)[stream]!;
  return options.colored ? `${shown}${paintStream(label, stream)}` : `${shown}[${label}]`;
}

/** The weights of every part that has any, one line each. */
export function weightsText(parts: readonly AnswerPart[], streams: number): string {
  const labels = labelsOf(streams);
  return parts.flatMap(({ text, weights }) => {
    if (!weights) return [];
    const numbers = Array.from(weights, (weight, p) => `${labels[p]} ${weight.toFixed(4)}`);
    return [`  ${numbers.join("  ")}  ${JSON.stringify(text)}\n`];
  }).join("");
}
