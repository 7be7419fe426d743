/**
 * A page that shows the stream with the largest weight at every token, with the numbers under the pointer.
 * It needs nothing from elsewhere, and without scripts it still has text, letters and statistics. A token
 * is one `span` without any attribute but its class, and numbers are packed as base64 of 16-bit integers:
 * with an element per weight, long texts would be slow to open. Blocks of tokens end where a line ends, or
 * after 512 tokens, which may break a line of the text.
 */
import { winnerOf } from "../../../core/analysis/streams.ts";
import { PAGE_STYLE, streamStyle, strengthClass } from "../../../core/analysis/stream_look.ts";
import { type Column, formatNumber, type Row } from "../../output/table.ts";
import { VERSION } from "../../../core/base/version.ts";
import style from "./page.css" with { type: "text" };
import script from "./page.js" with { type: "text" };
import {
  endsLine,
  type MeasuredText,
  type Study,
  type SummaryTable,
  summaryTables,
  visibleText,
} from "./show.ts";

/** A block may end at a line end from this many tokens on, and must at the larger number. */
const BLOCK = 64, MOST_IN_BLOCK = 512;
/** Stands for the token that nothing predicts. */
const NO_LOGPROB = 65535;
/** Nothing may be fetched; the icon is given so that none is asked for. */
const POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; " +
  "img-src data:; base-uri 'none'; form-action 'none'";

/** Characters that mean something in markup. */
const ENTITIES: Readonly<Record<string, string>> = {
  "&": "&amp;",
  "<": "&lt;",
  ">": "&gt;",
  '"': "&quot;",
};

function escapeMarkup(text: string): string {
  return text.replace(/[&<>"]/g, (character) => ENTITIES[character]!);
}

/** Writes the page. */
export function drawPage(study: Study): string {
  const title = `Streams of ${escapeMarkup(study.model)}`;
  let from = 0;
  const texts = study.texts.map((text, i) => {
    const section = textSection(text, i, from, study);
    from += text.tokens.length;
    return section;
  });
  return [
    "<!doctype html>",
    '<html lang="en">',
    "<head>",
    '<meta charset="utf-8">',
    `<meta http-equiv="Content-Security-Policy" content="${POLICY}">`,
    '<meta name="viewport" content="width=device-width, initial-scale=1">',
    `<meta name="generator" content="parscale ${VERSION}">`,
    `<title>${title}</title>`,
    '<link rel="icon" href="data:,">',
    `<style>\n${PAGE_STYLE}${style}${labelStyle(study.labels)}</style>`,
    "</head>",
    "<body>",
    `<h1>${title}</h1>`,
    "<p>Each token is marked with the stream that weighed most when the model predicted what " +
    "comes next, the stronger the larger its weight. Point at a token, or move from token to token " +
    "with the arrow keys, to see all weights.</p>",
    "<noscript><p>Weights of single tokens are shown by a script, which does not run " +
    "here.</p></noscript>",
    legend(study),
    '<p><label><input type="checkbox" id="letters" checked> Letters below tokens</label></p>',
    ...texts,
    ...summaryTables(study).map(tableSection),
    '<div id="tip" role="status" aria-live="polite" hidden></div>',
    `<script type="application/json" id="data">${packed(study)}</script>`,
    `<script>\n${script}</script>`,
    "</body>",
    "</html>\n",
  ].join("\n");
}

/** Colour and letter of every stream. */
function labelStyle(labels: readonly string[]): string {
  const letters = labels.map((label, p) => `.tokens .s${p}::before {\n  content: "${label}";\n}\n`);
  return streamStyle(labels.length) + letters.join("");
}

function legend({ labels, overall }: Study): string {
  const entries = labels.map((label, p) => {
    const share = `${(100 * overall.shares[p]!).toFixed(1)} %`;
    return `<li><b class="s${p}">${label}</b> ${share} of the tokens</li>`;
  });
  return `<ul class="legend" aria-label="Streams">${entries.join("")}</ul>`;
}

/** The text of a token, which continues in a new line after each of its line ends. */
function brokenLines(piece: string | undefined, token: number): string {
  const lines = piece?.split("\n") ?? [piece];
  return lines.map((line) => visibleText(line, token)).join("↵\n");
}

function textSection(text: MeasuredText, number: number, from: number, study: Study): string {
  const { id, tokens, pieces, weights } = text, P = study.labels.length;
  const parts: string[] = [];
  let inBlock = 0;
  tokens.forEach((token, t) => {
    if (inBlock === 0) parts.push(`<div data-from="${from + t}">`);
    const shown = brokenLines(pieces[t], token);
    const winner = winnerOf(weights[t]!), strength = strengthClass(weights[t]![winner]!, P);
    parts.push(`<span class="s${winner} ${strength}">${escapeMarkup(shown)}</span>`);
    inBlock++;
    const ends = inBlock >= MOST_IN_BLOCK || inBlock >= BLOCK && endsLine(pieces[t]);
    if (!ends && t < tokens.length - 1) return;
    parts.push("</div>");
    inBlock = 0;
  });
  const name = study.texts.length > 1 ? `Text ${escapeMarkup(String(id))}` : "Text";
  return `<h2 id="text${number}">${name}</h2>\n` +
    `<div class="tokens" data-from="${from}" tabindex="0" role="group" ` +
    `aria-labelledby="text${number}" aria-describedby="tip">${parts.join("")}</div>`;
}

function tableSection({ title, columns, rows, note }: SummaryTable): string {
  const isNumber = (column: Column) => rows.some((row) => typeof row[column.key] === "number");
  const mark = (column: Column) => isNumber(column) ? ' class="number"' : "";
  const head = columns.map((column) =>
    `<th scope="col"${mark(column)}>${escapeMarkup(column.title ?? column.key)}</th>`
  );
  const body = rows.map((row) =>
    `<tr>${columns.map((column) => `<td${mark(column)}>${cell(row, column)}</td>`).join("")}</tr>`
  );
  return `<h2>${escapeMarkup(title)}</h2>\n<div class="wide"><table><thead><tr>${
    head.join("")
  }</tr></thead><tbody>${body.join("\n")}</tbody></table></div>\n` +
    `<p class="note">${escapeMarkup(note)}</p>`;
}

function cell(row: Row, { key, digits }: Column): string {
  const value = row[key] ?? "";
  return escapeMarkup(typeof value === "number" ? formatNumber(value, digits) : String(value));
}

/** Numbers of all tokens: weights in 65535ths, −log p in thousandths of a nat, ids. */
function packed({ texts, labels }: Study): string {
  const P = labels.length;
  const count = texts.reduce((sum, { tokens }) => sum + tokens.length, 0);
  const weights = new Uint16Array(count * P);
  const logprobs = new Uint16Array(count);
  const ids = new Int32Array(count);
  let at = 0;
  for (const text of texts) {
    for (const [t, token] of text.tokens.entries()) {
      const row = text.weights[t]!;
      for (let p = 0; p < P; p++) weights[at * P + p] = Math.round(65535 * row[p]!);
      const surprise = t === 0 ? NO_LOGPROB : Math.round(-1000 * text.logprobs[t - 1]!);
      logprobs[at] = t === 0 ? NO_LOGPROB : Math.min(NO_LOGPROB - 1, Math.max(0, surprise));
      ids[at++] = token;
    }
  }
  const data = {
    labels,
    weights: base64(weights),
    logprobs: base64(logprobs),
    tokens: base64(ids),
  };
  return JSON.stringify(data).replaceAll("<", "\\u003c");
}

/** Bytes as they lie in memory: every machine that runs this or a browser is little-endian. */
function base64(values: Uint16Array | Int32Array): string {
  return new Uint8Array(values.buffer, values.byteOffset, values.byteLength).toBase64();
}
