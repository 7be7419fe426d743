/** Python's string methods and regular expressions. Expected values come from Python 3.11. */
import { assert, assertEquals, assertThrows } from "@std/assert";
import { DataError } from "../../../core/base/errors.ts";
import {
  capitalize,
  codePointLength,
  isLower,
  isUpper,
  lstrip,
  pythonRegex,
  rstrip,
  strip,
} from "../../../core/eval/python/text.ts";
import { HANG_MS } from "../../hang.ts";

Deno.test("strip removes what Python calls white space, and nothing else", () => {
  for (
    const space of " \t\n\v\f\r\x1c\x1d\x1e\x1f\x85\xa0\u1680\u2003\u2028\u2029\u202f\u205f\u3000"
  ) {
    const place = JSON.stringify(space);
    assertEquals(strip(`${space}a${space}`), "a", place);
    assertEquals(lstrip(`${space}a${space}`), `a${space}`, place);
    assertEquals(rstrip(`${space}a${space}`), `${space}a`, place);
  }
  for (const kept of ["\ufeff", "\u200b", "\u180e", "\0"]) assertEquals(strip(kept), kept);
});

Deno.test("strip removes any of the given characters, pairs of surrogates as one", () => {
  assertEquals(strip('""a"b""', '"'), 'a"b');
  assertEquals(strip("<<a>>", "<"), "a>>");
  assertEquals(strip("😀a😀", "😀"), "a");
  assertEquals(strip("\ude00a", "😀"), "\ude00a", "half a pair is another character");
  assertEquals(strip("abc", "abc"), "");
  assertEquals(strip(" a ", ""), " a ");
  assertEquals(lstrip("aab", "a"), "b");
  assertEquals(rstrip("baa", "a"), "b");
});

Deno.test("stripping passes a long run of blanks inside a text once", { timeout: HANG_MS }, () => {
  const text = `a${" ".repeat(1_000_000)}b`;
  assertEquals(strip(text), text);
});

Deno.test("capitalize gives title case to the first and lower case to all others", () => {
  const pairs = {
    "": "",
    "HELLO World": "Hello world",
    "ßA": "Ssa",
    "ﬁx": "Fix",
    "ǆ": "ǅ",
    "Ǳ": "ǲ",
    "ŉ": "ʼN",
    "ა": "ა",
    "ᾳ": "ᾼ",
    "ᾲ": "Ὰ\u0345",
    "ᾷ": "Α͂\u0345",
    "ὈΔΥΣΣΕΎΣ": "Ὀδυσσεύς",
    "AΣ": "Aς",
    "1AB": "1ab",
    "𐐨𐐀": "𐐀𐐨",
    "İI": "İi",
  };
  for (const [text, expected] of Object.entries(pairs)) {
    assertEquals(capitalize(text), expected, text);
  }
});

Deno.test("case needs a letter that has it, and title case is neither", () => {
  assert(isUpper("A1!") && isUpper("ÉCOLE") && isUpper("Ⅷ") && isUpper("Ⓐ"));
  assert(!isUpper("1!") && !isUpper("Aa") && !isUpper("ǅA") && !isUpper("日本") && !isUpper(""));
  assert(isLower("a1!") && isLower("ª") && !isLower("1") && !isLower("aA") && !isLower("ǅa"));
});

Deno.test("length counts code points", () => {
  assertEquals(codePointLength("a😀\ud800"), 3);
});

/** Patterns, texts and what is found in them. */
const FOUND:
  readonly (readonly [pattern: string, text: string, found: string[], flags?: string])[] = [
    // A period stops at a line feed alone, and takes a whole character.
    [".+", "a\rb\u2028c\nd", ["a\rb\u2028c", "d"]],
    ["^.", "😀", ["😀"]],
    // Anchors know line feeds only, and the end also before a last one.
    ["a$", "a\n", ["a"]],
    ["a$", "a\n\n", []],
    ["a\\Z", "a\n", []],
    ["^b", "a\nb", []],
    ["^b$", "a\nb\nc", ["b"], "m"],
    ["^b", "a\rb\u2028b", [], "m"],
    // Classes cover all of Unicode, without combining marks.
    ["\\w+", "naïve e\u0301 ٣½Ⅷ_ 日本", ["naïve", "e", "٣½Ⅷ_", "日本"]],
    ["\\d+", "12٣ ½²", ["12٣"]],
    ["\\s", "\x1c\x85\xa0\ufeff", ["\x1c", "\x85", "\xa0"]],
    ["\\bé\\b", "é été", ["é"]],
    ["[^\\W\\d]+", "ab1_c½", ["ab", "_c½"]],
    ["[\\S\\n]+", "a\n b", ["a\n", "b"]],
    // What JavaScript refuses to escape stands for itself.
    ["it\\'s\\ a\\-b\\/c\\&", "it's a-b/c&", ["it's a-b/c&"]],
    ["[a\\-z]+", "b-a-z", ["-a-z"]],
    ["a{ {} {,x} }", "a{ {} {,x} }", ["a{ {} {,x} }"]],
    ["[]a]+", "]a", ["]a"]],
    ["[[a&&b]", "[&", ["[", "&"]],
    ["a]b", "a]b", ["a]b"]],
    ["ba{,2}", "baaa", ["baa"]],
    ["(a|b)\\1", "abaab", ["aa"]],
  ];

Deno.test("patterns find what they find in Python", () => {
  for (const [pattern, text, found, flags = ""] of FOUND) {
    const matches = text.match(pythonRegex(pattern, `g${flags}`)) ?? [];
    assertEquals([...matches], found, pattern);
  }
});

Deno.test("patterns that Python does not compile, or that no benchmark has, are refused", () => {
  const broken = ["(", ")", "[", "[z-a]", "[a-\\d]", "*a", "a**", "^*", "a{2}{3}", "\\", "\\q"];
  broken.push("\\1", "(?x)a", "\\x41", "x{2,1}", "(?P<n>a)", "C++", "a{2}+", "(?>a)", "(?#a)");
  for (const pattern of broken) {
    const error = assertThrows(() => pythonRegex(pattern), DataError, undefined, pattern);
    const start = `${JSON.stringify(pattern)} is not a valid regular expression: `;
    assertEquals(error.message.slice(0, start.length), start);
  }
});
