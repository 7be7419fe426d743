/**
 * Instructions about the number of sentences, words and paragraphs.
 *
 * Paragraphs are what `***` separates in one instruction, and what an empty line separates in the
 * other.
 */
import { lstrip, pythonRegex, SPACE, strip } from "../../python/text.ts";
import { checker, countMatches, type Family, holds } from "./checker.ts";
import { splitSentences } from "./punkt.ts";

const DIVIDER = pythonRegex("\\s?\\*\\*\\*\\s?");
const BLANKS = new RegExp(`[${SPACE}]+`, "u");

/** Characters that end the first word of a paragraph. */
const WORD_END = /[.,?!'"]/;

/** `length_constraints:*`. */
export const lengths: Family = {
  number_sentences: checker(
    { num_sentences: "count", relation: "relation" },
    (response, { num_sentences: threshold, relation }, { tools }) =>
      holds(splitSentences(response, tools.punkt).length, relation, threshold),
  ),

  number_words: checker(
    { num_words: "count", relation: "relation" },
    (response, { num_words: threshold, relation }) =>
      holds(countMatches(response, "\\w+"), relation, threshold),
  ),

  number_paragraphs: checker(
    { num_paragraphs: "count" },
    (response, { num_paragraphs: expected }) => {
      const parts = response.split(DIVIDER).map((part) => strip(part));
      if (parts.slice(1, -1).includes("")) return false;
      return parts.filter((part) => part !== "").length === expected;
    },
  ),

  nth_paragraph_first_word: checker(
    { num_paragraphs: "count", nth_paragraph: "count", first_word: "text" },
    (response, { num_paragraphs: expected, nth_paragraph: nth, first_word: word }) => {
      const parts = response.split("\n\n").map((part) => strip(part));
      const count = parts.filter((part) => part !== "").length;
      const paragraph = parts[nth - 1];
      if (nth > count || paragraph === undefined || paragraph === "") return false;
      return count === expected && firstWord(paragraph) === word.toLowerCase();
    },
  ),
};

/** The first word without quotes before it and marks behind it, in lower case. */
function firstWord(paragraph: string): string {
  const word = lstrip(lstrip(paragraph.split(BLANKS)[0]!, "'"), '"');
  // Letter by letter, so that a final sigma stays what it would be inside a word.
  return Array.from(word.split(WORD_END)[0]!, (letter) => letter.toLowerCase()).join("");
}
