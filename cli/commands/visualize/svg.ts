/**
 * A figure with one row per token: its text, its weights as a stacked bar, its winner.
 *
 * Takes a study; returns one SVG document that needs nothing from elsewhere. Segments are named by
 * letters where there is room, so colour is not needed to read them. A pointer that rests on a row
 * is shown its numbers. The figure grows with the text, 18 pixels a token.
 */
import { winnerOf } from "../../../core/analysis/streams.ts";
import { colorOf } from "./look.ts";
import type { MeasuredText } from "./measure.ts";
import type { Study } from "./result.ts";
import { visibleText } from "./token_text.ts";

const ROW = 18;
const MARGIN = 16;
/** Columns of the token's text, and where the bar begins and how wide it is. */
const TEXT_WIDTH = 190, BAR_LEFT = 210, BAR_WIDTH = 520;
const WIDTH = BAR_LEFT + BAR_WIDTH + 60;
/** Characters of a token that fit. */
const MOST_CHARACTERS = 24;
/** Pixels a letter needs. */
const LETTER_WIDTH = 11;

/** Characters that mean something in markup. */
const ENTITIES: Readonly<Record<string, string>> = {
  "&": "&amp;",
  "<": "&lt;",
  ">": "&gt;",
  '"': "&quot;",
};

/** Text as it stands in HTML and SVG. */
export function escapeMarkup(text: string): string {
  return text.replace(/[&<>"]/g, (character) => ENTITIES[character]!);
}

/** Draws all texts, one below the other. */
export function drawSvg(study: Study): string {
  const { texts, labels, model } = study;
  const parts: string[] = [];
  let y = MARGIN;
  const line = (text: string, size: number) => {
    y += size + 8;
    parts.push(`<text x="${MARGIN}" y="${y - 6}" font-size="${size}">${escapeMarkup(text)}</text>`);
  };
  line(`Aggregation weights of ${model}`, 15);
  y += legend(labels, y, parts);
  for (const text of texts) {
    if (texts.length > 1) line(`Text ${String(text.id)}`, 13);
    text.tokens.forEach((_, t) => {
      parts.push(tokenRow(text, t, labels, y));
      y += ROW;
    });
    y += MARGIN;
  }
  const head = `<svg xmlns="http://www.w3.org/2000/svg" width="${WIDTH}" height="${y}" ` +
    `viewBox="0 0 ${WIDTH} ${y}" role="img" font-family="sans-serif" font-size="12">`;
  const title = `<title>Aggregation weights of ${escapeMarkup(model)} at every token</title>`;
  const back = `<rect width="100%" height="100%" fill="white"/>`;
  return [head, title, back, ...parts, "</svg>"].join("\n") + "\n";
}

/** Swatches with letters, as many on a line as fit; returns the height. */
function legend(labels: readonly string[], top: number, parts: string[]): number {
  const step = 34, perLine = Math.floor((WIDTH - 2 * MARGIN) / step);
  labels.forEach((label, p) => {
    const x = MARGIN + (p % perLine) * step, y = top + 6 + Math.floor(p / perLine) * ROW;
    parts.push(segment(x, y, 28, p, label));
  });
  return 14 + Math.ceil(labels.length / perLine) * ROW;
}

function tokenRow(
  { tokens, pieces, weights }: MeasuredText,
  t: number,
  labels: readonly string[],
  y: number,
): string {
  const row = weights[t]!;
  const shown = [...visibleText(pieces[t], tokens[t]!).replaceAll(" ", "␣")];
  const cut = shown.length > MOST_CHARACTERS
    ? [...shown.slice(0, MOST_CHARACTERS - 1), "…"]
    : shown;
  const numbers = labels.map((label, p) => `${label} ${row[p]!.toFixed(3)}`).join(", ");
  let x = BAR_LEFT;
  const bars = labels.map((label, p) => {
    const wide = row[p]! * BAR_WIDTH;
    const bar = segment(x, y, wide, p, wide >= LETTER_WIDTH * label.length ? label : "");
    x += wide;
    return bar;
  });
  return `<g><title>${escapeMarkup(`${shown.join("")} · ${t}: ${numbers}`)}</title>` +
    `<text x="${TEXT_WIDTH + MARGIN}" y="${y + 13}" text-anchor="end">` +
    `${escapeMarkup(cut.join(""))}</text>${bars.join("")}` +
    `<text x="${BAR_LEFT + BAR_WIDTH + 10}" y="${y + 13}" font-weight="bold">` +
    `${labels[winnerOf(row)]}</text></g>`;
}

function segment(x: number, y: number, wide: number, stream: number, label: string): string {
  const { background, ink } = colorOf(stream);
  const place = (value: number) => Number(value.toFixed(2));
  const bar = `<rect x="${place(x)}" y="${y + 1}" width="${place(wide)}" height="${ROW - 2}" ` +
    `fill="${background}"/>`;
  if (label === "") return bar;
  return `${bar}<text x="${place(x + wide / 2)}" y="${y + 13}" text-anchor="middle" ` +
    `fill="${ink}">${label}</text>`;
}
