/**
 * Python's string methods, for scorers whose reference is written in Python.
 *
 * JavaScript's own methods are near misses. `trim` also removes U+FEFF and keeps U+001C to U+001F and
 * U+0085, `length` counts UTF-16 units, and nothing there knows title case. Regular expressions are
 * translated in `regex.ts`.
 */
import { rstrip, SPACE } from "../../base/rstrip.ts";

export { pythonRegex } from "./regex.ts";
export { rstrip, SPACE };

/** White space between words, where `str.split` and `\s+` cut a text. */
export const BLANKS = new RegExp(`[${SPACE}]+`, "u");

const LEADING_SPACE = new RegExp(`^[${SPACE}]+`, "u");

/** `str.strip`: without white space, or without any of `chars`, at both ends. */
export function strip(text: string, chars?: string): string {
  return lstrip(rstrip(text, chars), chars);
}

/** `str.lstrip`: the same at the start only. */
export function lstrip(text: string, chars?: string): string {
  if (chars === undefined) return text.replace(LEADING_SPACE, "");
  const set = new Set(chars);
  let from = 0;
  for (const character of text) {
    if (!set.has(character)) break;
    from += character.length;
  }
  return text.slice(from);
}

/** `str.capitalize`: the first character in title case, all others in lower case. */
export function capitalize(text: string): string {
  if (text === "") return "";
  const first = String.fromCodePoint(text.codePointAt(0)!);
  // Lower-cased as a whole: the lower case of a sigma depends on the letters before it.
  return titleCase(first) + text.toLowerCase().slice(first.toLowerCase().length);
}

/**
 * The title case of one character, which is its upper case but for digraphs, ligatures and Greek.
 */
function titleCase(character: string): string {
  const point = character.codePointAt(0)!;
  if (point >= 0x1c4 && point <= 0x1cc) return "ǅǅǅǈǈǈǋǋǋ"[point - 0x1c4]!;
  if (point >= 0x1f1 && point <= 0x1f3) return "ǲ";
  if (/^[\u10d0-\u10ff\u0149]$/.test(character)) return point === 0x149 ? "ʼN" : character;
  const upper = character.toUpperCase();
  const [head = "", ...tail] = upper;
  if (tail.length === 0) return upper;
  if (point >= 0x1f80 && point <= 0x1fff && tail.at(-1) === "Ι") {
    // The iota below the letter stays below: one character where there is one.
    const marked = `${head}${tail.slice(0, -1).join("")}\u0345`;
    const composed = marked.normalize("NFC");
    return composed.length === 1 ? composed : marked;
  }
  return head + tail.join("").toLowerCase();
}

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
