/**
 * Names and colours of streams, the same in every output, and the style that all pages share.
 *
 * Letters say it all: colour only repeats them, and comes round again after eight streams. The
 * colours are those of Okabe and Ito (2008), which colour-blind readers can tell apart, with grey
 * for black.
 */
import style from "./page.css" with { type: "text" };

/** A background with what is readable on it. */
interface StreamColor {
  readonly background: string;
  readonly ink: "#000000" | "#ffffff";
  /** The nearest of the 256 colours of a terminal. */
  readonly terminal: number;
}

const COLORS: readonly StreamColor[] = [
  { background: "#e69f00", ink: "#000000", terminal: 214 },
  { background: "#56b4e9", ink: "#000000", terminal: 74 },
  { background: "#009e73", ink: "#000000", terminal: 36 },
  { background: "#f0e442", ink: "#000000", terminal: 227 },
  { background: "#0072b2", ink: "#ffffff", terminal: 25 },
  { background: "#d55e00", ink: "#000000", terminal: 166 },
  { background: "#cc79a7", ink: "#000000", terminal: 175 },
  { background: "#bbbbbb", ink: "#000000", terminal: 250 },
];

/** Streams that letters suffice for. */
const LETTERS = 26;

/** Strengths of a colour on a page, from equal weights to one stream alone. */
const STRENGTHS = 10;

/** Names of P streams: A, B, C and so on, or numbers from 1 where letters do not suffice. */
export function labelsOf(streams: number): string[] {
  return Array.from(
    { length: streams },
    (_, p) => streams <= LETTERS ? String.fromCharCode(0x41 + p) : String(p + 1),
  );
}

/** Colour of a stream. */
export function colorOf(stream: number): StreamColor {
  return COLORS[stream % COLORS.length]!;
}

/** A text on the colour of a stream, for terminals. */
export function paintStream(text: string, stream: number): string {
  const { terminal, ink } = colorOf(stream);
  return `\x1b[48;5;${terminal}m\x1b[38;5;${ink === "#000000" ? 16 : 231}m${text}\x1b[39m\x1b[49m`;
}

/** Style that all pages share; a token of class `w5` has half of the strongest colour. */
export const PAGE_STYLE: string = style +
  Array.from({ length: STRENGTHS }, (_, w) => `.w${w} {\n  --strength: ${5 * w}%;\n}\n`).join("");

/** Style that gives class `s3` the colour of stream 3, for each of P streams. */
export function streamStyle(streams: number): string {
  return Array.from(
    { length: streams },
    (_, p) => `.s${p} {\n  --stream: ${colorOf(p).background};\n}\n`,
  ).join("");
}

/** Class of a token by the largest weight of its P streams: `w0` where all weigh the same. */
export function strengthClass(weight: number, streams: number): string {
  const margin = streams > 1 ? (weight * streams - 1) / (streams - 1) : 1;
  return `w${Math.round((STRENGTHS - 1) * Math.max(0, Math.min(1, margin)))}`;
}
