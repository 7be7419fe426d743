/** Upper, lower and title case as Python's `str` has them. */

import { spend } from "./meter.ts";

const CASED = /[\p{L}\p{Nl}\p{So}]/u;

/** Letters that have a form for titles: digraphs, and Greek letters with an iota. */
const TITLE_FORMS: ReadonlyMap<string, string> = new Map([
  ...["ǅǄǆ", "ǈǇǉ", "ǋǊǌ", "ǲǱǳ"].flatMap(([title, ...forms]) =>
    [title!, ...forms].map((form) => [form, title!] as const)
  ),
  ...[0x1fb3, 0x1fc3, 0x1ff3].map((code) =>
    [String.fromCharCode(code), String.fromCharCode(code + 9)] as const
  ),
  ...[0x1f80, 0x1f90, 0x1fa0].flatMap((first) =>
    Array.from(
      { length: 8 },
      (_, i) => [String.fromCharCode(first + i), String.fromCharCode(first + 8 + i)] as const,
    )
  ),
]);

/** A character as the first of a title. */
function titleForm(character: string): string {
  const known = TITLE_FORMS.get(character);
  if (known) return known;
  if (/[\u10d0-\u10ff]/.test(character)) return character; // Georgian has capitals, not titles
  const [first = "", ...rest] = character.toUpperCase();
  return first + rest.join("").toLowerCase();
}

/** Returns whether a character has case, as words in `str.title` are made of. */
export function isCased(character: string): boolean {
  return /[\p{Lu}\p{Ll}\p{Lt}]/u.test(character) ||
    CASED.test(character) && character.toLowerCase() !== character.toUpperCase();
}

/** Python's `str.capitalize`. */
export function capitalize(text: string): string {
  const [first] = text;
  return first === undefined ? "" : titleForm(first) + lowerAfter(text, first.length);
}

/** The rest of a text in lower case; a sigma at its end depends on what stands before. */
function lowerAfter(text: string, length: number): string {
  return text.toLowerCase().slice(text.slice(0, length).toLowerCase().length);
}

/** Lower case of a character behind a letter; that of a sigma depends on what follows. */
function lowerAfterLetter(text: string, at: number, character: string): string {
  if (character !== "Σ") return character.toLowerCase();
  return `a${text.slice(at, at + 64)}`.toLowerCase()[1]!;
}

/** Python's `str.title`: every run of letters begins with a capital. */
export function title(text: string): string {
  spend(2 * text.length);
  let wasCased = false, made = "", at = 0;
  for (const character of text) {
    made += wasCased ? lowerAfterLetter(text, at, character) : titleForm(character);
    wasCased = isCased(character);
    at += character.length;
  }
  return made;
}

/** Python's `str.swapcase`. */
export function swapCase(text: string): string {
  spend(2 * text.length);
  let wasCased = false, made = "", at = 0;
  for (const character of text) {
    const lower = wasCased ? lowerAfterLetter(text, at, character) : character.toLowerCase();
    made += lower === character ? character.toUpperCase() : lower;
    wasCased = isCased(character);
    at += character.length;
  }
  return made;
}

/** Returns whether all cased characters are in one case, and there is one. */
export function isInCase(text: string, inCase: "upper" | "lower"): boolean {
  const wrong = inCase === "upper" ? /[\p{Ll}\p{Lt}]/u : /[\p{Lu}\p{Lt}]/u;
  const right = inCase === "upper" ? /\p{Uppercase}/u : /\p{Lowercase}/u;
  return !wrong.test(text) && right.test(text);
}

/** Python's `str.istitle`. */
export function isTitle(text: string): boolean {
  spend(2 * text.length);
  let wasCased = false, hasCased = false;
  for (const character of text) {
    const isUpper = /[\p{Lu}\p{Lt}]/u.test(character), cased = isCased(character);
    if (cased && isUpper === wasCased) return false;
    hasCased ||= cased;
    wasCased = cased;
  }
  return hasCased;
}
