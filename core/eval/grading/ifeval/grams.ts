/**
 * Character sequences that tell languages apart, taken as the language-detection library does.
 *
 * Dropped before are addresses, all punctuation, Latin letters inside other scripts, and every sequence
 * that ends in the second of two capitals. Whole scripts collapse into one letter, since Japanese,
 * Korean or Vietnamese are known by their script rather than by the letters used.
 */
import { isUpper } from "../../python/text.ts";

const URL_PATTERN = /https?:\/\/[\-_.?&~;+=\/#0-9A-Za-z]{1,2076}/g;
const MAIL_PATTERN = /[\-_.0-9A-Za-z]{1,64}@[\-_0-9A-Za-z]{1,255}[\-_.0-9A-Za-z]{1,255}/g;

/** A Vietnamese vowel and its tone, typed separately. */
const TONED_VOWEL = /[AEIOUYaeiouyÂÊÔâêôĂăƠơƯư][\u0300\u0301\u0303\u0309\u0323]/g;

/** Longer texts are truncated. */
const LONGEST_TEXT = 10_000;

const LONGEST_GRAM = 3;

/** Representatives of characters that stand for each other, see `data/README.md`. */
export type Classes = ReadonlyMap<string, string>;

/** All sequences of one to three characters, in the order of the text. */
export function* gramsOf(text: string, kanji: Classes): Generator<string> {
  let gram: string[] = [" "];
  let inCapitals = false;
  for (const raw of withoutForeignLatin(prepared(text))) {
    const character = normalize(raw, kanji);
    const last = gram.at(-1)!;
    if (last === " ") {
      gram = [" "];
      inCapitals = false;
      if (character === " ") continue;
    } else if (gram.length >= LONGEST_GRAM) {
      gram.shift();
    }
    gram.push(character);
    inCapitals = isUpper(character) && (inCapitals || isUpper(last));
    if (inCapitals) continue;
    if (character !== " ") yield character;
    for (let n = 2; n <= gram.length; n++) yield gram.slice(-n).join("");
  }
}

/** The characters of a text without addresses, blanks repeated, and what is too long. */
function prepared(text: string): string[] {
  const composed = text.replace(URL_PATTERN, " ").replace(MAIL_PATTERN, " ")
    .replace(TONED_VOWEL, (pair) => pair.normalize("NFC"));
  const characters = Array.from(composed).slice(0, LONGEST_TEXT);
  return characters.filter((character, i) => character !== " " || characters[i - 1] !== " ");
}

/** Drops Latin letters where they are fewer than half the others. */
function withoutForeignLatin(characters: readonly string[]): readonly string[] {
  let latin = 0, other = 0;
  for (const character of characters) {
    if (isBasicLatin(character)) latin++;
    else if (character >= "\u0300" && !isWithin(character, 0x1e00, 0x1eff)) other++;
  }
  return latin * 2 < other ? characters.filter((each) => !isBasicLatin(each)) : characters;
}

/** Letters, and the six marks between `Z` and `a`. */
function isBasicLatin(character: string): boolean {
  return isWithin(character, 0x41, 0x7a);
}

function isWithin(character: string, from: number, to: number): boolean {
  const point = character.codePointAt(0)!;
  return from <= point && point <= to;
}

/** Blocks of Unicode of which one letter stands for all. */
const COLLAPSED: readonly (readonly [from: number, to: number, letter: string])[] = [
  [0x1ea0, 0x1eff, "\u1ec3"], // Vietnamese
  [0x2000, 0x206f, " "], // punctuation
  [0x3040, 0x309f, "\u3042"], // Hiragana
  [0x30a0, 0x30ff, "\u30a2"], // Katakana
  [0x3100, 0x312f, "\u3105"], // Bopomofo
  [0x31a0, 0x31bf, "\u3105"],
  [0xac00, 0xd7af, "\uac00"], // Hangul
];

/** Letters that Unicode has twice, mapped to one. */
const VARIANTS: Readonly<Record<string, string>> = {
  "\u0219": "\u015f", // Romanian s and t, with a comma or a cedilla
  "\u021b": "\u0163",
  "\u06cc": "\u064a", // Farsi and Arabic yeh
};

/** The character that stands for this one: a blank for all but letters. */
export function normalize(character: string, kanji: Classes): string {
  if (character <= "\x7f") return /^[A-Za-z]$/.test(character) ? character : " ";
  if ("\u00a0\u00ab\u00b0\u00bb".includes(character)) return " ";
  const block = COLLAPSED.find(([from, to]) => isWithin(character, from, to));
  return block?.[2] ?? VARIANTS[character] ?? kanji.get(character) ?? character;
}
