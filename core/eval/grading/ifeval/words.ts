/**
 * Instructions about words: which must occur or must not, how many there are, their case and language.
 *
 * Keywords are data, yet the reference uses them as regular expressions, without word boundaries
 * except for forbidden ones. A keyword such as `(a+)+b` can take exponential time, there and here.
 */
import { BLANKS, isLower, isUpper, lstrip, pythonRegex, strip } from "../../python/text.ts";
import { checker, type Context, countMatches, type Family, holds } from "./checker.ts";
import { detectLanguage } from "./language.ts";
import { splitSentences } from "./punkt.ts";
import { splitWords } from "./treebank.ts";

/** `keywords:*`. */
export const keywords: Family = {
  existence: checker(
    { keywords: "patterns" },
    (response, { keywords }) => keywords.every((each) => pythonRegex(each, "i").test(response)),
  ),

  frequency: checker(
    { keyword: "pattern", frequency: "count", relation: "relation" },
    (response, { keyword, frequency, relation }) =>
      holds(countMatches(response, strip(keyword), "i"), relation, frequency),
  ),

  forbidden_words: checker(
    { forbidden_words: "patterns" },
    (response, { forbidden_words: words }) =>
      !words.some((word) => pythonRegex(`\\b${word}\\b`, "i").test(response)),
  ),

  // The reference takes a random letter in place of what is none; see UNDEFINED_KEYS.
  letter_frequency: checker(
    { letter: "text", let_frequency: "count", let_relation: "relation" },
    (response, { letter, let_frequency: frequency, let_relation: relation }) => {
      const count = response.toLowerCase().split(strip(letter).toLowerCase()).length - 1;
      return holds(count, relation, frequency);
    },
  ),
};

const DIVIDER = pythonRegex("\\s?\\*\\*\\*\\s?");

/** Characters that end the first word of a paragraph. */
const WORD_END = /[.,?!'"]/;

/**
 * `length_constraints:*`. Paragraphs are what `***` separates in one instruction, and what an empty line
 * separates in the other.
 */
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

/** The first word without quotes before it and marks after it, in lower case. */
function firstWord(paragraph: string): string {
  const word = lstrip(lstrip(paragraph.split(BLANKS)[0]!, "'"), '"');
  // Letter by letter, so that a final sigma stays what it would be inside a word.
  return Array.from(word.split(WORD_END)[0]!, (letter) => letter.toLowerCase()).join("");
}

/** `change_case:*`. */
export const letterCase: Family = {
  capital_word_frequency: checker(
    { capital_frequency: "count", capital_relation: "relation" },
    (response, { capital_frequency: threshold, capital_relation: relation }, { tools }) => {
      const words = splitSentences(response, tools.punkt).flatMap(splitWords);
      return holds(words.filter(isUpper).length, relation, threshold);
    },
  ),

  english_capital: checker(
    {},
    (response, _, context) => isUpper(response) && isIn(response, "en", context),
  ),

  english_lowercase: checker(
    {},
    (response, _, context) => isLower(response) && isIn(response, "en", context),
  ),
};

/** `language:*`. */
export const language: Family = {
  response_language: checker(
    { language: "text" },
    (response, { language }, context) => isIn(response, language, context),
  ),
};

/**
 * Returns whether a text is in a language, as one is whose language cannot be told, such as one of digits
 * only.
 */
function isIn(response: string, language: string, { tools }: Context): boolean {
  const detected = detectLanguage(response, tools.profiles);
  return detected === undefined || detected === language;
}
