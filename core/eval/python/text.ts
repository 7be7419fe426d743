/**
 * Python's string methods, for scorers whose reference is written in Python.
 *
 * JavaScript's own methods are near misses. `trim` also removes U+FEFF and keeps U+001C to U+001F and
 * U+0085, `length` counts UTF-16 units, and nothing there knows title case. Regular expressions are
 * translated in `regex.ts`.
 */
import { capitalize, lstrip, rstrip, SPACE, strip } from "../../base/python_text.ts";

export { pythonRegex } from "./regex.ts";
export { capitalize, lstrip, rstrip, SPACE, strip };

/** White space between words, where `str.split` and `\s+` cut a text. */
export const BLANKS = new RegExp(`[${SPACE}]+`, "u");

/** `str.isupper`: some letter has case and none is lower or title case. */
export function isUpper(text: string): boolean {
  return /\p{Uppercase}/u.test(text) && !/[\p{Lowercase}\p{Lt}]/u.test(text);
}

/** `str.islower`: some letter has case and none is upper or title case. */
export function isLower(text: string): boolean {
  return /\p{Lowercase}/u.test(text) && !/[\p{Uppercase}\p{Lt}]/u.test(text);
}

/** `len`: code points, where `length` counts surrogates twice. */
export function codePointLength(text: string): number {
  let count = 0;
  for (const _ of text) count++;
  return count;
}
