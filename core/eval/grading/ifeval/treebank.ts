/**
 * Words as the Penn Treebank cuts them, in the version of NLTK's `word_tokenize`.
 *
 * It is a list of substitutions that set blanks around whatever stands alone, and a final split at
 * blanks. Order is everything, and straight double quotes leave as two backticks or two apostrophes.
 */
import { BLANKS } from "../../python/text.ts";
import { pythonRegex } from "../../python/regex.ts";

/** A pattern and what to put for a match, given its groups. */
type Rule = readonly [RegExp, (match: string, ...groups: string[]) => string];

/** Writes a rule in Python's dialect. */
function rule(pattern: string, put: Rule[1], flags = ""): Rule {
  return [pythonRegex(pattern, `g${flags}`), put];
}

const apart = (match: string) => ` ${match} `;
const first = (_: string, a: string, b: string) => `${a} ${b}`;

const OPENING_QUOTES = [
  rule("[«“‘„]|`+", apart),
  rule('^"', () => "``"),
  rule("``", apart),
  rule(`([ (\\[{<])(?:"|'')`, (_, before = "") => `${before} \`\` `),
  // An apostrophe before a word opens a quotation, unless the word is a clitic.
  rule("(?<!\\w)'(?!(?:re|ve|ll|m|t|s|d|n)\\b)(?=\\w)", () => "' ", "i"),
];

const PUNCTUATION = [
  rule(
    `([^.])(\\.)([\\])}>"'»”’ ]*)\\s*$`,
    (_, before, period, closing) => `${before} ${period} ${closing} `,
  ),
  rule("([:,])([^\\d])", (_, mark, after) => ` ${mark} ${after}`),
  rule("[:,]$", apart),
  rule("\\.{2,}", apart),
  rule("[;@#$%&\u2012-\u2015]", apart),
  rule(
    `([^.])(\\.)([\\])}>"']*)\\s*$`,
    (_, before, period, closing) => `${before} ${period}${closing} `,
  ),
  rule("[?!]", apart),
  rule("([^'])' ", (_, before) => `${before} ' `),
  rule("\\*", apart),
  rule("[\\]\\[(){}<>]", apart),
  rule("--", apart),
];

const CLOSING_QUOTES = [
  rule("[»”’]", apart),
  rule("''", apart),
  rule('"', () => " '' "),
  rule("\\s+", () => " "),
  rule("([^' ])('[sSmMdD]|') ", (match, a = "", b = "") => `${first(match, a, b)} `),
  rule(
    "([^' ])('ll|'LL|'re|'RE|'ve|'VE|n't|N'T) ",
    (match, a = "", b = "") => `${first(match, a, b)} `,
  ),
];

const CONTRACTIONS = [
  "\\b(can)(not)\\b",
  "\\b(d)('ye)\\b",
  "\\b(gim)(me)\\b",
  "\\b(gon)(na)\\b",
  "\\b(got)(ta)\\b",
  "\\b(lem)(me)\\b",
  "\\b(more)('n)\\b",
  "\\b(wan)(na)(?=\\s)",
  " ('t)(is)\\b",
  " ('t)(was)\\b",
].map((pattern) => rule(pattern, (match, a = "", b = "") => ` ${first(match, a, b)} `, "i"));

/** The words and marks of one sentence. */
export function splitWords(sentence: string): string[] {
  const opened = apply([...OPENING_QUOTES, ...PUNCTUATION], sentence);
  const closed = apply([...CLOSING_QUOTES, ...CONTRACTIONS], ` ${opened} `);
  return closed.split(BLANKS).filter((word) => word !== "");
}

function apply(rules: readonly Rule[], text: string): string {
  return rules.reduce((so, [pattern, put]) => so.replace(pattern, put), text);
}
