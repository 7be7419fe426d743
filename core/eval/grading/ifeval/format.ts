/**
 * Instructions about layout: bullets, highlights, sections, titles, JSON, fixed answers.
 *
 * S: `**a**` holds three highlights by the pattern for single asterisks, two of them empty, and one
 * more by the pattern for double ones.
 */
import { lstrip, pythonRegex, rstrip, strip } from "../../python/text.ts";
import { checker, countMatches, type Family } from "./checker.ts";

const SINGLE = pythonRegex("\\*[^\\n\\*]*\\*", "g");
const DOUBLE = pythonRegex("\\*\\*[^\\n\\*]*\\*\\*", "g");

const MANY_BLANK_LINES = pythonRegex("\\n\\s*\\n\\s*\\n", "g");

const ANSWERS = ["My answer is yes.", "My answer is no.", "My answer is maybe."];
const FENCES = ["```json", "```Json", "```JSON", "```"];

/** `detectable_format:*`. */
export const format: Family = {
  number_bullet_lists: checker({ num_bullets: "count" }, (response, { num_bullets: expected }) => {
    // One blank line does what many do, in less time: a pattern tries each of them.
    const text = response.replace(MANY_BLANK_LINES, "\n\n");
    const asterisks = countMatches(text, "^\\s*\\*[^\\*].*$", "m");
    return asterisks + countMatches(text, "^\\s*-.*$", "m") === expected;
  }),

  number_highlighted_sections: checker(
    { num_highlights: "count" },
    (response, { num_highlights: least }) => {
      const single = (response.match(SINGLE) ?? []).map((match) => strip(match, "*"));
      const double = (response.match(DOUBLE) ?? []).map((match) => match.slice(2, -2));
      return [...single, ...double].filter((inner) => strip(inner) !== "").length >= least;
    },
  ),

  multiple_sections: checker(
    { section_spliter: "pattern", num_sections: "count" },
    (response, { section_spliter: spliter, num_sections: least }) =>
      countMatches(response, `\\s?${strip(spliter)}\\s?\\d+\\s?`) >= least,
  ),

  constrained_response: checker(
    {},
    (response) => ANSWERS.some((answer) => response.includes(answer)),
  ),

  json_format: checker({}, (response) => {
    let text = strip(response);
    for (const fence of FENCES) if (text.startsWith(fence)) text = text.slice(fence.length);
    if (text.endsWith("```")) text = text.slice(0, -3);
    return isPythonJson(strip(text));
  }),

  title: checker(
    {},
    (response) => titlesOf(response).some((match) => strip(rstrip(lstrip(match, "<"), ">")) !== ""),
  ),
};

/** Matches of `<<[^\n]+>>`: in a line from the first `<<` to the last `>>`, with something between. */
function titlesOf(response: string): string[] {
  return response.split("\n").flatMap((line) => {
    const from = line.indexOf("<<"), to = line.lastIndexOf(">>");
    return from >= 0 && to > from + 2 ? [line.slice(from, to + 2)] : [];
  });
}

/** Strings, to be skipped, and the three words. */
const STRING_OR_WORD = /"(?:[^"\\]|\\.)*"|-?Infinity|NaN/gs;

const MOST_DIGITS = 4300;

/**
 * Returns whether Python's `json.loads` accepts a text: what JSON.parse takes, and `NaN`, `Infinity` and
 * `-Infinity` where a value may stand. Integers of more than 4300 digits are refused, a limit of
 * Python's own.
 */
export function isPythonJson(text: string): boolean {
  // Blanks around the stand-in, so that it joins nothing to a valid word.
  const plain = text.replace(STRING_OR_WORD, (found) => found.startsWith('"') ? found : " null ");
  try {
    JSON.parse(plain, (_, value, context?: { source?: string }) => {
      if (typeof value === "number") requireShort(context?.source);
      return value;
    });
    return true;
  } catch (error) {
    if (error instanceof SyntaxError) return false;
    throw error;
  }
}

function requireShort(source = ""): void {
  if (/^-?\d+$/.test(source) && source.replace("-", "").length > MOST_DIGITS) {
    throw new SyntaxError("too many digits");
  }
}
