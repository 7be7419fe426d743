/** Context and continuation as lm-evaluation-harness splits them. */
import { fileURLToPath } from "node:url";
import { assertEquals, assertThrows } from "@std/assert";
import { DataError } from "../../../core/base/errors.ts";
import { encodePair } from "../../../core/tokenizer/pair.ts";
import { openTokenizer } from "../../../core/tokenizer/tokenizer.ts";

const FIXTURES = fileURLToPath(new URL("../../../fixtures/", import.meta.url));
const START = 7;

/** One token per character. */
const letters = { encode: (text: string) => Array.from(text, (c) => c.codePointAt(0)!) };

Deno.test("the ids of every golden pair", async () => {
  const tokenizer = await openTokenizer(`${FIXTURES}models/tiny-qwen2`);
  const text = await Deno.readTextFile(`${FIXTURES}golden/tokenizer/encode_pair.jsonl`);
  const cases = text.trim().split("\n").map((line) => JSON.parse(line));
  assertEquals(cases.length, 10);
  for (const { context, continuation, context_ids, continuation_ids } of cases) {
    const { tokens, from } = encodePair(tokenizer, context, continuation, undefined);
    assertEquals(tokens.slice(0, from), context_ids, JSON.stringify(context));
    assertEquals(tokens.slice(from), continuation_ids, JSON.stringify(context));
  }
});

Deno.test("an empty context is the start token, unless the continuation begins with it", () => {
  assertEquals(encodePair(letters, "", "ab", START), { tokens: [START, 97, 98], from: 1 });
  assertEquals(encodePair(letters, "", "\x07b", START), { tokens: [START, 98], from: 1 });
  const error = assertThrows(() => encodePair(letters, "", "ab", undefined), DataError);
  assertEquals(error.message.startsWith("cannot score after an empty prompt"), true);
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
});

Deno.test("where a merge crosses the border, the context keeps the tokens it has alone", () => {
  const ids: Record<string, number[]> = { a: [1], "ab": [2], "abc": [2, 3] };
  const merging = { encode: (text: string) => ids[text]! };
  assertEquals(encodePair(merging, "a", "bc", START), { tokens: [1, 3], from: 1 });
  assertEquals(encodePair(merging, "a", "b", START), { tokens: [1], from: 1 }, "nothing is left");
});

Deno.test("a context of white space alone leaves its first token unscored", () => {
  assertEquals(encodePair(letters, " \n", "x", START), { tokens: [32, 10, 120], from: 1 });
});

Deno.test("an empty continuation is refused", () => {
  const error = assertThrows(() => encodePair(letters, "ab", "", START), DataError);
  assertEquals(error.message, "cannot score an empty continuation");
});
