/**
 * Instructions about words and letters that must occur, or must not.
 *
 * Keywords are data, yet the reference uses them as regular expressions, without word boundaries
 * except for forbidden ones. A keyword such as `(a+)+b` can take exponential time, there and here.
 */
import { pythonRegex, strip } from "../../python/text.ts";
import { checker, countMatches, type Family, holds } from "./checker.ts";

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
