/** Words by the split expressions, case by case. */
import { assertEquals } from "@std/assert";
import { type WordRules, WordSplitter } from "../../../core/tokenizer/word_splitter.ts";

const QWEN: WordRules = { expression: "qwen", digits: 1 };
const LLAMA3: WordRules = { expression: "qwen", digits: 3 };
const GPT2: WordRules = { expression: "gpt-2", cutDigits: "none" };

const CASES: readonly (readonly [string, WordRules, readonly string[]])[] = [
  ["contractions in every mixture of cases", QWEN, [
    ...["a", "'s", "b", "'T", "c", "'re", "d", "'rE", "e", "'Re", "f", "'RE", "g", "'Ve"],
    ...["h", "'m", "i", "'lL", "j", "'D", "k", "'x"],
  ]],
  ["small contractions alone", GPT2, ["a", "'s", "b", "'", "S", " c", "'ll", "d", "'", "LL"]],
  ["one digit in a word", QWEN, ["1", "2", "3", "x"]],
  ["three digits in a word", LLAMA3, ["123", "456", "7", "x"]],
  ["a blank goes with the word behind it", QWEN, ["a", " ", " b", " \n", " c", "  "]],
  ["line feeds go with signs", QWEN, ["a", " !?\n\n", "b"]],
];

for (const [name, rules, words] of CASES) {
  Deno.test(name, () => {
    const splitter = new WordSplitter(rules), text = words.join("");
    const found: string[] = [];
    for (let at = 0; at < text.length; at += found.at(-1)!.length) {
      found.push(text.slice(at, splitter.end(text, at)));
    }
    assertEquals(found, words);
  });
}
