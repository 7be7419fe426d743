/**
 * Instructions about letter case and language.
 *
 * A text whose language cannot be told, such as one of digits only, counts as written in the
 * language asked for.
 */
import { isLower, isUpper } from "../../python/text.ts";
import { checker, type Context, type Family, holds } from "./checker.ts";
import { detectLanguage } from "./language.ts";
import { splitSentences } from "./punkt.ts";
import { splitWords } from "./treebank.ts";

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

function isIn(response: string, language: string, { tools }: Context): boolean {
  const detected = detectLanguage(response, tools.profiles);
  return detected === undefined || detected === language;
}
