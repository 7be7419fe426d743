/** Added tokens in text: which one is found, and what it takes along. */
import { assertEquals } from "@std/assert";
import { type AddedToken, AddedTokenFinder } from "../../../core/tokenizer/added_tokens.ts";
import { WordSplitter } from "../../../core/tokenizer/word_splitter.ts";

const token = (id: number, content: string, more: Partial<AddedToken> = {}): AddedToken => ({
  id,
  content,
  special: true,
  normalized: false,
  lstrip: false,
  rstrip: false,
  ...more,
});

const FINDER = new AddedTokenFinder([
  token(1, "<a>"),
  token(2, "<a><b>"),
  token(3, "<left>", { lstrip: true }),
  token(4, "<right>", { rstrip: true }),
], new WordSplitter());

const CASES: readonly (readonly [string, string, readonly (string | number)[]])[] = [
  ["of two added tokens that match, the longer wins", "x<a><b>y<a>z", ["x", 2, "y", 1, "z"]],
  ["lstrip takes the blanks on the left", "x  <left>  y", ["x", 3, "  y"]],
  ["rstrip takes the blanks on the right", "x  <right>  y", ["x  ", 4, "y"]],
  ["a token in the blanks of another is found", "<right>  <left>", [4, 3]],
];

for (const [name, text, expected] of CASES) {
  Deno.test(name, () => {
    const parts = [...FINDER.split(text)];
    assertEquals(parts.map((part) => typeof part === "string" ? part : part.id), expected);
  });
}
