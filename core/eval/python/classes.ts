/**
 * Python's classes of characters, written for JavaScript's regular expressions with the `u` or `v`
 * flag.
 *
 * A word character is any letter or number, but no combining mark.
 */

/** Python's white space, as members of a class. */
export const SPACE = "\\p{White_Space}\\x1c-\\x1f";
/** Parts of words, and digits, likewise. */
const WORD = "\\p{L}\\p{N}_";
const DIGIT = "\\p{Nd}";

const BOUNDARY = `(?:(?<=[${WORD}])(?![${WORD}])|(?<![${WORD}])(?=[${WORD}]))`;
const NO_BOUNDARY = `(?:(?<=[${WORD}])(?=[${WORD}])|(?<![${WORD}])(?![${WORD}]))`;

/** Classes a letter after a backslash stands for. */
export const CLASSES: Readonly<Record<string, string>> = {
  d: `[${DIGIT}]`,
  D: `[^${DIGIT}]`,
  s: `[${SPACE}]`,
  S: `[^${SPACE}]`,
  w: `[${WORD}]`,
  W: `[^${WORD}]`,
};

/** Places between characters. Without the flag `m`, JavaScript's `^` and `$` are the very ends. */
export const PLACES: Readonly<Record<string, string>> = {
  A: "^",
  Z: "$",
  b: BOUNDARY,
  B: NO_BOUNDARY,
};

/** Characters a letter after a backslash stands for. */
export const CONTROLS: Readonly<Record<string, number>> = {
  a: 7,
  b: 8,
  t: 9,
  n: 10,
  v: 11,
  f: 12,
  r: 13,
};

/** A character that stands for itself. */
export function literal(character: string): string {
  return /^[\p{L}\p{Nd}]$/u.test(character) ? character : point(character.codePointAt(0)!);
}

/** A code point as an escape that means the same inside a class and outside. */
export function point(code: number): string {
  return `\\u{${code.toString(16)}}`;
}
