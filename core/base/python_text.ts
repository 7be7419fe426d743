/** Methods of Python's `str`, for what has its reference in Python: `trim` takes other characters. */

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
