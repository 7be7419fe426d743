/** Drawing of tokens and streams, without a model: odd characters, many streams, narrow lines. */
import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { drawPage } from "../../cli/commands/visualize/html.ts";
import { piecesOf } from "../../cli/commands/visualize/run.ts";
import {
  legendText,
  type MeasuredText,
  studyTexts,
  textView,
  visibleText,
} from "../../cli/commands/visualize/show.ts";
import { colorOf, labelsOf } from "../../core/analysis/stream_look.ts";
import { openTokenizer } from "../../core/tokenizer/tokenizer.ts";
import { MODEL } from "./models.ts";

/** A text whose tokens are won by the streams in turn. */
function wonInTurn(pieces: string[], P: number): MeasuredText {
  return {
    id: 0,
    tokens: pieces.map((_, t) => t),
    pieces,
    weights: pieces.map((_, t) =>
      Float32Array.from({ length: P }, (_, p) => p === t % P ? 0.5 : 0.5 / (P - 1))
    ),
    logprobs: new Float32Array(Math.max(0, pieces.length - 1)).fill(-1),
    streamLogprobs: undefined,
  };
}

/** The page of a text. */
const pageOf = (text: MeasuredText, P: number) => drawPage(studyTexts("m", labelsOf(P), [text]));

Deno.test("what cannot be seen is made visible, and nothing acts upon a terminal", () => {
  for (
    const [piece, shown] of [
      ...[[undefined, "<7>"], [".\n\n", ".↵↵"], ["\ta\r", "→a␍"], [" cat", " cat"]],
      ["\x1b[31m\x00\x7f", "␛[31m␀␡"],
      ["a\u202eb\u200b\u0085", "a\\u{202e}b\\u{200b}\\u{85}"],
      ["\u0301", "◌\u0301"],
    ]
  ) assertEquals(visibleText(piece, 7), shown);
});

Deno.test("pieces joined are the text, whatever bytes the tokens end in", async () => {
  const tokenizer = await openTokenizer(MODEL);
  const ids = tokenizer.encode("é日😀!");
  const pieces = piecesOf(ids, tokenizer);
  assertEquals(pieces.join(""), "é日😀!");
  assertEquals(pieces.length, ids.length);
  // Cut inside the last character, and a stray byte before a letter.
  const cut = piecesOf(ids.slice(0, -2), tokenizer);
  assertEquals([cut.length, cut.join("")], [ids.length - 2, "é日\ufffd"]);
  const stray = [ids.at(-2)!, ...tokenizer.encode("ab")];
  assertEquals(piecesOf(stray, tokenizer).join(""), "\ufffdab");
});

Deno.test("streams have letters up to 26 and numbers beyond", () => {
  assertEquals(labelsOf(3), ["A", "B", "C"]);
  assertEquals([labelsOf(26).at(-1), labelsOf(27).at(0), labelsOf(27).at(-1)], ["Z", "1", "27"]);
  const eight = Array.from({ length: 8 }, (_, p) => colorOf(p).background);
  assertEquals([new Set(eight).size, colorOf(8).background], [8, eight[0]]);
});

Deno.test("a letter stands below the first column of its token, and lines keep the width", () => {
  const pieces = ["The", " ", "日本", "", "x\n", "and", " more", " words", " to", " wrap"];
  const text = wonInTurn(pieces, 3);
  const view = { width: 16, colored: false };
  assertEquals(textView(text, labelsOf(3), view).split("\n"), [
    "The 日本x↵",
    "A  BC   AB",
    "and more words",
    "C  A    B",
    " to wrap",
    "C  A",
    "",
  ]);
  const many = wonInTurn(new Array(30).fill("a"), 30);
  const [above, below] = textView(many, labelsOf(30), { width: 200, colored: false }).split("\n");
  assertEquals(below, labelsOf(30).join(""));
  assertStringIncludes(above!, "aaaaaaaaaa a a");
  const long = wonInTurn([" ".repeat(200)], 2);
  assert(textView(long, labelsOf(2), { width: 40, colored: true }).includes("…"));
  assert(legendText(labelsOf(60), view).split("\n").every((line) => line.length <= 16));
});

Deno.test("a character of two tokens is drawn once, with the letters of both", () => {
  const view = { width: 16, colored: false };
  const text = wonInTurn(["caf", "", "é", "!"], 3);
  assertEquals(textView(text, labelsOf(3), view), "café !\nA  BCA\n");
  const page = pageOf(text, 3);
  assertMatch(page, /<span class="s1 w\d"><\/span><span class="s2 w\d">é<\/span>/);
});

Deno.test("a line end with an indent breaks the line of the page", () => {
  const text = wonInTurn(["if x:", "\n    ", "y", "\n\n", "↵"], 2);
  const page = pageOf(text, 2);
  const shown = [...page.matchAll(/<span class="s[^>]*>([^<]*)<\/span>/g)].map(([, text]) => text);
  assertEquals(shown, ["if x:", "↵\n    ", "y", "↵\n↵\n", "↵"]);
});

Deno.test("the colour of a token is the stronger the larger the weight of its stream", () => {
  const weights = [[0.25, 0.25, 0.25, 0.25], [0.5, 0.25, 0.25, 0], [1, 0, 0, 0]];
  const rows = weights.map((row) => Float32Array.from(row));
  const page = pageOf({ ...wonInTurn(["a", "b", "c"], 4), weights: rows }, 4);
  const strengths = [...page.matchAll(/class="s0 (w\d)/g)].map(([, strength]) => strength);
  assertEquals(strengths, ["w0", "w3", "w9"]);
  assertStringIncludes(page, "@media (prefers-color-scheme: dark)");
  assert(!/background(-color)?: (white|#fff)/.test(page), "no fixed white ground");
});

Deno.test("a page has all of thirty streams; its blocks end with a line or after 512 tokens", () => {
  const thirty = pageOf(wonInTurn(new Array(40).fill("a "), 30), 30);
  assertStringIncludes(thirty, `.tokens .s29::before {\n  content: "30";\n}`);
  const pieces = Array.from({ length: 1300 }, (_, t) => t === 99 ? "\n" : "a");
  const page = pageOf(wonInTurn(pieces, 2), 2);
  const starts = [...page.matchAll(/<div data-from="(\d+)">/g)].map(([, from]) => Number(from));
  assertEquals(starts, [0, 100, 612, 1124]);
});
