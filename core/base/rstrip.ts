/** Python's `str.rstrip`, for what has its reference in Python: `trimEnd` takes other characters. */

/** Python's white space, as members of a class. */
export const SPACE = "\\p{White_Space}\\x1c-\\x1f";

const SPACE_CHARACTER = new RegExp(`^[${SPACE}]$`, "u");

/** A text without white space, or without any of `chars`, at its end. */
export function rstrip(text: string, chars?: string): string {
  const set = new Set(chars);
  const isStripped = chars === undefined
    ? (character: string) => SPACE_CHARACTER.test(character)
    : (character: string) => set.has(character);
  // From the end by hand: a pattern anchored there tries every run of blanks, which is quadratic.
  let to = text.length;
  while (to > 0) {
    const last = lastCharacter(text, to);
    if (!isStripped(last)) break;
    to -= last.length;
  }
  return text.slice(0, to);
}

/** The code point that ends before `to`, as text. */
function lastCharacter(text: string, to: number): string {
  const pair = text.slice(Math.max(0, to - 2), to);
  return pair.length === 2 && pair.codePointAt(0)! > 0xffff ? pair : text.slice(to - 1, to);
}
