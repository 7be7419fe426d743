/**
 * Results of texts: statistics, rows and the document for programs; tables, and texts with their
 * letters, for readers.
 *
 * Lines of text have a line of letters below, each below the first column of its token. A token is at
 * least as wide as its stream's name, so that names never run into each other. A character of several
 * tokens has the letters of all of them.
 *
 *     The cat sat on the mat.
 *     A  BB   A   CC A   B  A
 */
import { type Diversity, diversityOf } from "../../../core/analysis/diversity.ts";
import {
  describeStreams,
  entropyOf,
  type StreamStatistics,
  type WeightedText,
  winnerOf,
} from "../../../core/analysis/streams.ts";
import { paintStream } from "../../../core/analysis/stream_look.ts";
import { snakeKeys } from "../../output/document.ts";
import type { Column, Row } from "../../output/table.ts";
import { grouped } from "../../output/units.ts";
import { displayWidth, mayBreak, shorten } from "../../output/wrap.ts";

/** A text with all that is shown of it. */
export interface MeasuredText extends WeightedText {
  readonly id: unknown;
  /** Text of every token; see `piecesOf`. */
  readonly pieces: readonly (string | undefined)[];
  /** log p of tokens 1 and on. */
  readonly logprobs: Float32Array;
  /** The same under each stream alone, [T − 1][P]; only for --diversity. */
  readonly streamLogprobs: readonly Float32Array[] | undefined;
}

/** All texts with everything said of them. */
export interface Study {
  /** Name of the checkpoint, for headings. */
  readonly model: string;
  /** Names of the streams, in their order. */
  readonly labels: readonly string[];
  readonly texts: readonly MeasuredText[];
  /** All texts together. */
  readonly overall: StreamStatistics;
  /** One per text. */
  readonly each: readonly StreamStatistics[];
  /** Undefined unless asked for, and where no token has one before it. */
  readonly diversity: Diversity | undefined;
}

/** Computes the statistics. */
export function studyTexts(
  model: string,
  labels: readonly string[],
  texts: readonly MeasuredText[],
): Study {
  const predictions = texts.flatMap(({ streamLogprobs, logprobs }) =>
    streamLogprobs ? [{ streams: streamLogprobs, model: logprobs }] : []
  );
  return {
    model,
    labels,
    texts,
    overall: describeStreams(texts),
    each: texts.map((text) => describeStreams([text])),
    diversity: diversityOf(predictions),
  };
}

/** One row per token. */
export function* rowsOf(text: MeasuredText, labels: readonly string[]): Generator<Row> {
  const { id, tokens, pieces, weights, logprobs, streamLogprobs } = text;
  for (const [position, token] of tokens.entries()) {
    const stream = winnerOf(weights[position]!);
    yield {
      text_id: id,
      position,
      token,
      text: pieces[position] ?? null,
      winner: labels[stream]!,
      stream,
      weights: weights[position]!,
      entropy: entropyOf(weights[position]!),
      logprob: logprobs[position - 1] ?? null,
      ...(streamLogprobs ? { stream_logprobs: streamLogprobs[position - 1] ?? null } : {}),
    };
  }
}

/** Everything a document says. */
export function resultOf({ labels, texts, overall, each, diversity }: Study): Row {
  return {
    streams: labels.length,
    labels,
    statistics: snakeKeys(overall),
    texts: texts.map(({ id }, i) => ({ text_id: id, ...snakeKeys(each[i]!) })),
    diversity: diversity ? snakeKeys(diversity) : null,
    rows: texts.flatMap((text) => [...rowsOf(text, labels)]),
  };
}

/** Columns of CSV and Markdown, which have one for every weight. */
export function columnsOf(labels: readonly string[]): Column[] {
  return [
    ...["text_id", "position", "token", "text", "winner"].map((key) => ({ key })),
    { key: "entropy", digits: 4 },
    { key: "logprob", digits: 4 },
    ...labels.map((label) => ({ key: `weight_${label}`, digits: 4 })),
  ];
}

/** A row with its weights side by side. */
export function flatRow(row: Row, labels: readonly string[]): Row {
  const weights = row.weights as Float32Array;
  const named = labels.map((label, p) => [`weight_${label}`, weights[p]!]);
  return { ...row, ...Object.fromEntries(named) };
}

/** Layout of texts. */
interface TextView {
  /** Columns to wrap at. */
  readonly width: number;
  /** True if winners are coloured as well as named. */
  readonly colored: boolean;
}

/** Legend of letters and colours. */
export function legendText(labels: readonly string[], { width, colored }: TextView): string {
  const lines = ["Streams:"];
  let used = lines[0]!.length;
  labels.forEach((label, p) => {
    const swatch = colored ? ` ${label} ` : label;
    if (used + 1 + swatch.length > width) {
      lines.push("        ");
      used = 8;
    }
    lines[lines.length - 1] += ` ${colored ? paintStream(swatch, p) : swatch}`;
    used += 1 + swatch.length;
  });
  return lines.join("\n") + "\n";
}

/** The text with its letters. */
export function textView(text: MeasuredText, labels: readonly string[], view: TextView): string {
  const lines: string[] = [];
  let above = "", below = "", used = 0;
  /** Letters of tokens that hold the first bytes of a character. */
  let begun = "";
  let word: (readonly [shown: string, wide: number, label: string, stream: number])[] = [];
  const flush = () => {
    if (used > 0) lines.push(view.colored ? above : above.trimEnd(), below.trimEnd());
    above = below = "";
    used = 0;
  };
  const place = () => {
    if (used + word.reduce((sum, [, wide]) => sum + wide, 0) > view.width) flush();
    for (const [shown, wide, label, stream] of word) {
      if (used + wide > view.width) flush();
      const cell = shown + " ".repeat(wide - displayWidth(shown));
      above += view.colored ? paintStream(cell, stream) : cell;
      below += label.padEnd(wide);
      used += wide;
    }
    word = [];
  };
  text.tokens.forEach((id, t) => {
    const stream = winnerOf(text.weights[t]!);
    const label = begun + labels[stream]!;
    begun = text.pieces[t] === "" ? label : "";
    if (begun !== "") return;
    const shown = shorten(visibleText(text.pieces[t], id), view.width);
    const wide = Math.max(displayWidth(shown), label.length);
    if (mayBreak(word.at(-1)?.[0] ?? "", shown)) place();
    word.push([shown, wide, label, stream]);
    if (!endsLine(text.pieces[t])) return;
    place();
    flush();
  });
  place();
  flush();
  return lines.map((line) => line + "\n").join("");
}

/** Control and format characters, separators but the blank, and halves of surrogate pairs. */
const INVISIBLE = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}\u00a0\u00ad]/gu;

/** A token as it is shown: one line, nothing a terminal or a page would act upon. */
export function visibleText(piece: string | undefined, id: number): string {
  if (piece === undefined) return `<${id}>`;
  const shown = piece.replace(INVISIBLE, (character) => {
    if (character === "\n") return "↵";
    if (character === "\t") return "→";
    const code = character.codePointAt(0)!;
    // The pictures of control characters: U+2400 for NUL and so on.
    if (code < 0x20) return String.fromCodePoint(0x2400 + code);
    if (code === 0x7f) return "\u2421";
    return `\\u{${code.toString(16)}}`;
  });
  // An accent would otherwise stand on the token before.
  return /^\p{Mark}/u.test(shown) ? `◌${shown}` : shown;
}

/** Returns true if a line of the text ends with this token. */
export function endsLine(piece: string | undefined): boolean {
  return piece?.endsWith("\n") ?? false;
}

/** A table with what it is about. */
export interface SummaryTable {
  readonly title: string;
  readonly columns: readonly Column[];
  readonly rows: readonly Row[];
  /** Explanation for readers. */
  readonly note: string;
}

/** Texts listed one by one. */
const MOST_TEXTS = 50;

/** All tables, the most important first. */
export function summaryTables(study: Study): SummaryTable[] {
  return [
    streamTable(study),
    textTable(study),
    ...(study.diversity ? [diversityTable(study.diversity, study.labels)] : []),
  ];
}

/** One line per stream. */
function streamTable({ labels, overall }: Study): SummaryTable {
  return {
    title: "Streams",
    columns: [
      { key: "stream" },
      { key: "share", title: "share of tokens", digits: 3 },
      { key: "weight", title: "mean weight", digits: 3 },
    ],
    rows: labels.map((stream, p) => ({
      stream,
      share: overall.shares[p],
      weight: overall.meanWeights[p],
    })),
    note: "share of tokens: those where the stream's weight is the largest",
  };
}

/** One line per text, and one for all. */
function textTable({ texts, each, overall }: Study): SummaryTable {
  const listed = texts.length < 2 ? [] : texts.slice(0, MOST_TEXTS);
  const rows = listed.map(({ id }, i) => ({ text: String(id), ...each[i]! }));
  const left = texts.length - listed.length;
  return {
    title: "Texts",
    columns: [
      { key: "text" },
      { key: "tokens" },
      { key: "meanEntropy", title: "entropy (nats)", digits: 3 },
      { key: "entropyShare", title: "of ln P", digits: 3 },
      { key: "meanRunLength", title: "run (tokens)", digits: 2 },
      { key: "chanceRunLength", title: "by chance", digits: 2 },
      { key: "locality", title: "ratio", digits: 2 },
    ],
    rows: [...rows, { text: "all", ...overall }],
    note:
      "run: consecutive tokens with one winner; by chance: each token's winner drawn on its own" +
      (listed.length > 0 && left > 0 ? `; ${left} more texts are in the document of --json` : ""),
  };
}

function diversityTable(
  diversity: NonNullable<Study["diversity"]>,
  labels: readonly string[],
): SummaryTable {
  const { rho, rhoStandardError: standardError, tokens } = diversity;
  const error = standardError === undefined ? "" : ` ± ${standardError.toFixed(4)}`;
  const estimate = rho === undefined ? "unknown, as a stream never varies" : rho.toFixed(4) + error;
  const losses = [...diversity.streamLosses, diversity.meanMixtureLoss, diversity.modelLoss];
  return {
    title: `Diversity: rho ${estimate}`,
    columns: [
      { key: "of", title: "stream" },
      { key: "loss", title: "loss alone (nats)", digits: 4 },
      { key: "residual", title: "mean residual", digits: 4 },
    ],
    rows: [...labels, "mean of all", "model"].map((of, p) => ({
      of,
      loss: losses[p],
      residual: diversity.meanResiduals[p],
    })),
    note: `${grouped(tokens)} predicted tokens; what every stream finds hard counts as ` +
      "correlation (see --help)",
  };
}
