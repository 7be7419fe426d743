/**
 * Minerva MATH: the final answer of a solution or an output, in one spelling.
 *
 * The rules are those of Minerva's appendix as the harness has amended them, in a fixed order that
 * matters. A sentence after the answer must follow it by exactly one character, and an output that
 * stops early just lacks it.
 */
import { DataError } from "../../../base/errors.ts";
import { pythonRegex, strip } from "../../python/text.ts";

/** Result for an output without an answer. */
const INVALID = "[invalidanswer]";

const FIRST_WORDS = "Final Answer: The final answer is";
const LAST_SENTENCE = "I hope it is correct.";
/** Pattern of what follows the first words; the periods stand for any character, as in the reference. */
const ANSWER = pythonRegex("^(.*?). I hope it is correct.");

/** Longer texts are not answers, and some patterns below take quadratic time. */
const LONGEST_ANSWER = 5000;

/**
 * The gold answer of a solution, normalised.
 * @throws {DataError} when the last box is missing, not closed, or not a `\boxed`
 */
export function boxedAnswer(solution: string): string {
  const span = lastBoxed(solution);
  const inner = span === undefined ? undefined : unboxed(span);
  if (inner === undefined) {
    throw new DataError(
      span === undefined
        ? "no complete \\boxed{...}"
        : `${JSON.stringify(span)} is not a complete \\boxed{...}`,
    );
  }
  return normalizeAnswer(inner);
}

/** The last `\boxed` or `\fbox` of a solution with what belongs to it. */
function lastBoxed(solution: string): string | undefined {
  const spaced = solution.lastIndexOf("\\boxed ");
  // One box without braces anywhere decides, even where another with braces follows.
  if (spaced >= 0) return solution.slice(spaced).split("$")[0]!;
  const boxed = solution.lastIndexOf("\\boxed");
  const from = boxed >= 0 ? boxed : solution.lastIndexOf("\\fbox");
  if (from < 0) return undefined;
  for (let i = from, depth = 0; i < solution.length; i++) {
    if (solution[i] === "{") depth++;
    if (solution[i] === "}" && --depth === 0) return solution.slice(from, i + 1);
  }
  return undefined;
}

/** Returns the content of a box; undefined for a form the reference does not accept. */
function unboxed(span: string): string | undefined {
  if (span.includes("\\boxed ")) {
    return span.startsWith("\\boxed ") ? span.slice("\\boxed ".length) : undefined;
  }
  const isBoxed = span.startsWith("\\boxed{") && span.endsWith("}");
  return isBoxed ? span.slice("\\boxed{".length, -1) : undefined;
}

/** The answer an output states in its last sentence but one, as written there. */
export function extractAnswer(output: string): string {
  for (const line of (output + LAST_SENTENCE).split("\n")) {
    const at = line.indexOf(FIRST_WORDS);
    const match = at < 0 ? null : ANSWER.exec(line.slice(at + FIRST_WORDS.length));
    if (match !== null) return strip(match[1]!);
  }
  return INVALID;
}

const SUBSTITUTIONS: readonly (readonly [from: string, to: string])[] = [
  ["an ", ""],
  ["a ", ""],
  [".$", "$"],
  ["\\$", ""],
  ["\\ ", ""],
  [" ", ""],
  ["mbox", "text"],
  [",\\text{and}", ","],
  ["\\text{and}", ","],
  ["\\text{m}", "\\text{}"],
];

/** Units, fillers and spacing that say nothing about the answer, in the order of their removal. */
const REMOVED = [
  ...["square", "ways", "integers", "dollars", "mph", "inches", "ft", "hours", "km", "units"],
  ...["\\ldots", "sue", "points", "feet", "minutes", "digits", "cents", "degrees", "cm", "gm"],
  ...["pounds", "meters", "meals", "edges", "students", "childrentickets", "multiples"],
  ...["\\text{s}", "\\text{.}", "\\text{\ns}", "\\text{}^2", "\\text{}^3", "\\text{\n}"],
  ...["\\text{}", "\\mathrm{th}", "^\\circ", "^{\\circ}", "\\;", ",\\!", "{,}", '"', "\\dots"],
];

/** Entries that are words, standing alone but for a command, which a backslash begins. */
const WORDS_ALONE = REMOVED.filter(isWord)
  .map((word) => pythonRegex(`(?<!\\\\)\\b${word}\\b`, "g"));

/** Entries one by one: words wherever they stand, with commands matched to be stepped over. */
const REMOVALS = REMOVED.map((entry) =>
  isWord(entry) ? new RegExp(`(\\\\[a-zA-Z]+)|${entry}`, "g") : entry
);

function isWord(entry: string): boolean {
  return /^[a-z]+$/.test(entry);
}

/** Patterns and what stays of a match. */
const UNWRAPPED: readonly (readonly [RegExp, (...groups: string[]) => string])[] = [
  [pythonRegex("(.*?)\\$(.*?)\\$(.*)", "g"), (_, _before, inner) => `$${inner}$`],
  [pythonRegex("\\\\text\\{(.*?)\\}", "g"), (_, inner) => inner!],
  [pythonRegex("\\\\textbf\\{(.*?)\\}", "g"), (_, inner) => inner!],
  [pythonRegex("\\\\overline\\{(.*?)\\}", "g"), (_, inner) => inner!],
  [pythonRegex("\\\\boxed\\{(.*)\\}", "g"), (_, inner) => inner!],
  // Shorthands of TeX: \frac12, \sqrt[3]8, \sqrt2.
  [pythonRegex("frac([^{])(.)", "g"), (_, upper, lower) => `frac{${upper}}{${lower}}`],
  [pythonRegex("sqrt(\\[[^\\]]*\\])(\\w)", "g"), (_, root, base) => `sqrt${root}{${base}}`],
  [pythonRegex("sqrt(?!\\[)([^{])", "g"), (_, base) => `sqrt{${base}}`],
];

const WITH_COMMAS = /^-?\p{Nd}{1,3}(?:,\p{Nd}{3})+$/u;

/** One spelling for the ways an answer is written; a text too long for an answer stays as it is. */
export function normalizeAnswer(text: string): string {
  if (text.length > LONGEST_ANSWER) return text;
  let answer = text.slice(text.lastIndexOf("=") + 1);
  for (const word of WORDS_ALONE) answer = answer.replace(word, "");
  for (const [from, to] of SUBSTITUTIONS) answer = answer.replaceAll(from, () => to);
  for (const entry of REMOVALS) {
    answer = answer.replaceAll(entry, (_, command) => typeof command === "string" ? command : "");
  }
  for (const [pattern, put] of UNWRAPPED) answer = answer.replace(pattern, put);
  answer = answer.replaceAll("$", "");
  return WITH_COMMAS.test(answer) ? answer.replaceAll(",", "") : answer;
}
