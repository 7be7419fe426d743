/** Context and continuation as lm-evaluation-harness splits them. */
import { assertEquals } from "@std/assert";
import { encodePair } from "../../../core/tokenizer/pair.ts";
import { openTokenizer } from "../../../core/tokenizer/tokenizer.ts";
import type { EncodeOptions } from "../../../core/tokenizer/types.ts";
import { FIXTURE, mixedText, openFiles } from "./testing.ts";
import { fixtureRows, FIXTURES } from "../../fixtures.ts";

const START = 7;

/** One token per character. */
const letters = { encode: (text: string) => Array.from(text, (c) => c.codePointAt(0)!) };

Deno.test("the ids of every golden pair", async () => {
  const tokenizer = await openTokenizer(`${FIXTURES}models/tiny-qwen2`);
  const cases = fixtureRows("golden/tokenizer/encode_pair.jsonl");
  assertEquals(cases.length, 10);
  for (const { context, continuation, context_ids, continuation_ids } of cases) {
    const { tokens, from } = encodePair(tokenizer, context, continuation, undefined);
    assertEquals(tokens.slice(0, from), context_ids, JSON.stringify(context));
    assertEquals(tokens.slice(from), continuation_ids, JSON.stringify(context));
  }
});

/** Tokens that are merged across a border. */
const MERGED: Readonly<Record<string, number[]>> = { a: [1], ab: [2], abc: [2, 3] };
const merging = { encode: (text: string) => MERGED[text]! };

Deno.test("a context keeps the tokens it has alone, and an empty one is the start token", () => {
  const cases = [
    [letters, "", "ab", [START, 97, 98]],
    [letters, "", "\x07b", [START, 98]], // the continuation begins with the start token
    [merging, "a", "bc", [1, 3]],
    [merging, "a", "b", [1]], // nothing is left to score
    [letters, " \n", "x", [32, 10, 120]], // the first blank is not scored
  ] as const;
  for (const [tokenizer, context, continuation, tokens] of cases) {
    const expected = { tokens: [...tokens], from: 1 };
    assertEquals(encodePair(tokenizer, context, continuation, START), expected, continuation);
  }
});

Deno.test("a continuation that is kept whole has no blank that the tokenizer puts before a text", async () => {
  const vocab = Object.fromEntries(Array.from("▁abcd\n").map((text, id) => [text, id]));
  const model = { type: "BPE", vocab: { ...vocab, bc: 6, "▁a": 7 }, merges: ["b c", "▁ a"] };
  const replace = { type: "Replace", pattern: { String: " " }, content: "▁" };
  const layouts = [
    { pre_tokenizer: { type: "Metaspace", replacement: "▁", prepend_scheme: "first" } },
    { pre_tokenizer: { type: "Metaspace", replacement: "▁", prepend_scheme: "always" } },
    { normalizer: { type: "Sequence", normalizers: [{ type: "Prepend", prepend: "▁" }, replace] } },
  ];
  for (const layout of layouts) {
    const tokenizer = await openFiles({ "tokenizer.json": { ...layout, model, added_tokens: [] } });
    const pair = encodePair(tokenizer, "ab", "cd", START, { keepsText: true });
    const spelled = pair.tokens.map((id) => tokenizer.tokenText(id));
    assertEquals([spelled, pair.from], [["▁a", "b", "c", "d"], 2], JSON.stringify(layout));
  }
});

Deno.test("a continuation that is kept whole has the tokens it has by itself", async () => {
  const tokenizer = await openTokenizer(FIXTURE);
  const cutting = {
    encode: (text: string, options?: EncodeOptions) =>
      text === "x" ? [-1] : tokenizer.encode(text, options),
  };
  for (let seed = 0; seed < 1000; seed++) {
    const text = mixedText(seed);
    if (text === "") continue;
    const { tokens } = encodePair(cutting, "x", text, START, { keepsText: true });
    assertEquals(tokens, [-1, ...tokenizer.encode(text)], JSON.stringify(text));
  }
});

Deno.test("white space as Python strips it moves to the continuation, nothing else does", () => {
  const border = (context: string) => encodePair(letters, context, "x", START).from;
  for (const space of [" ", "\n", "\t", "\v", "\f", "\r", "\x1c", "\x1f", "\x85", "\xa0"]) {
    assertEquals(border(`ab${space}`), 2, JSON.stringify(space));
  }
  for (const space of ["\u1680", "\u2003", "\u2028", "\u2029", "\u202f", "\u205f", "\u3000"]) {
    assertEquals(border(`ab${space}`), 2, JSON.stringify(space));
  }
  for (const kept of ["\ufeff", "\u200b", "\u180e", "\0"]) {
    assertEquals(border(`ab${kept}`), 3, JSON.stringify(kept));
  }
  assertEquals(border("a b \n \t"), 3);
  assertEquals(border(" a"), 2, "white space in front stays");
  // For hours where the time grows with the square of the length.
  assertEquals(border(`a${" ".repeat(2e6)}b`), 2e6 + 2);
});
