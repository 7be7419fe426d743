/**
 * Python's regular expressions in JavaScript's, as far as the scorers of benchmarks use them. Python's `.` stops
 * at U+000A alone, its `$` also matches before a final newline, `\w \d \s \b` know all of Unicode, and `\-` or `{`
 * may stand for themselves.
 *
 * Extensions such as `(?P<name>…)`, inline flags and possessive quantifiers are refused. A reference to a group
 * that took no part matches nothing in Python and the empty text here.
 */
import { DataError } from "../../base/errors.ts";
import { SPACE } from "../../base/python_text.ts";

/** Members of classes: a word character is any letter or number, but no combining mark. */
const WORD = "\\p{L}\\p{N}_";
const CLASSES: Readonly<Record<string, string>> = {
  ...{ d: "[\\p{Nd}]", D: "[^\\p{Nd}]", s: `[${SPACE}]`, S: `[^${SPACE}]` },
  ...{ w: `[${WORD}]`, W: `[^${WORD}]` },
};

/** Escapes outside of classes. Without the flag `m`, JavaScript's `^` and `$` are the very ends. */
const PLACES: Readonly<Record<string, string>> = {
  A: "^",
  Z: "$",
  b: `(?:(?<=[${WORD}])(?![${WORD}])|(?<![${WORD}])(?=[${WORD}]))`,
  B: `(?:(?<=[${WORD}])(?=[${WORD}])|(?<![${WORD}])(?![${WORD}]))`,
};

/** Escapes that are the same in both: characters, and references to groups. */
const SHARED = /^[fnrtv1-9]$/;

/** An escape, a class, an extension, a counted or possessive quantifier, or one character. */
const PIECE =
  /\\([^]?)|\[(\^?)(\]?(?:\\[^]|[^\]\\])*)\]|\(\?(?:<?[=!]|:)?|\{\d*,?\d*\}\+?|[*+?]\+|[^]/gu;

/**
 * Translates a pattern; `flags` holds Python's `i` and `m`, and JavaScript's `g`.
 * @throws {DataError} for a pattern that Python would not compile, or that is not supported
 */
export function pythonRegex(pattern: string, flags = ""): RegExp {
  const isMultiline = flags.includes("m");
  const translate = (piece: string, escape?: string, negation?: string, members?: string) => {
    if (escape !== undefined) return PLACES[escape] ?? escaped(escape, pattern);
    if (members !== undefined) return `[${negation}${membersOf(members, pattern)}]`;
    if (["(?", "["].includes(piece) || /^[^\\].*\+$/.test(piece)) {
      throw unusable(pattern, `unknown "${piece}"`);
    }
    if (piece === ".") return "[^\\n]";
    if (piece === "^") return isMultiline ? "(?<![^\\n])" : "^";
    if (piece === "$") return isMultiline ? "(?![^\\n])" : "(?=\\n?$)";
    if (/^\{(?=.*\d)/.test(piece)) return piece.replace("{,", "{0,");
    return /^[()|*+?]/.test(piece) ? piece : literal(piece);
  };
  const source = pattern.replace(PIECE, translate);
  try {
    return new RegExp(source, `v${flags.replaceAll("m", "")}`);
  } catch (cause) {
    throw unusable(pattern, (cause as Error).message, cause);
  }
}

function unusable(pattern: string, reason: string, cause?: unknown): DataError {
  const text = `${JSON.stringify(pattern)} is not a valid regular expression: ${reason}`;
  return new DataError(text, { cause });
}

/** A character after a backslash, in a class and outside. */
function escaped(character: string, pattern: string): string {
  const known = CLASSES[character];
  if (known) return known;
  if (SHARED.test(character)) return `\\${character}`;
  if (/^[a-zA-Z0]?$/.test(character)) throw unusable(pattern, `unknown escape "\\${character}"`);
  return literal(character);
}

/** Members of a class; a hyphen at an end stands for itself. */
function membersOf(members: string, pattern: string): string {
  const { length } = members;
  return members.replace(/\\([^])|[^]/gu, (member, escape: string | undefined, at: number) => {
    if (escape !== undefined) return escaped(escape, pattern);
    return member === "-" && at > 0 && at < length - 1 ? "-" : literal(member);
  });
}

/** A character that stands for itself, inside a class and outside. */
function literal(text: string): string {
  return text.replace(
    /[^\p{L}\p{Nd}]/gu,
    (character) => `\\u{${character.codePointAt(0)!.toString(16)}}`,
  );
}
