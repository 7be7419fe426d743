/**
 * The symbols of a formula in LaTeX.
 *
 * Digits are single tokens, so that `1 000` and `1\!000` read as one number, and a `d` before a letter
 * forms one symbol with it, as in `dx`.
 */

import type { Formula } from "./formula.ts";
import { fromDecimal } from "./rational.ts";

/** One symbol: a character, or a command with its backslash. */
export interface Token {
  readonly kind: "digit" | "letter" | "command" | "mark";
  readonly text: string;
}

/** Error for a formula beyond this reader; never leaves this folder. */
export class UnreadableFormula extends Error {}

/** Commands for spacing and size, which do not change the value. */
const SPACING = new Set([
  ...["\\,", "\\:", "\\;", "\\!", "\\thinspace", "\\medspace", "\\thickspace", "\\quad", "\\qquad"],
  ...["\\negthinspace", "\\negmedspace", "\\negthickspace", "\\left", "\\right"],
]);

const TOKEN = new RegExp(
  [
    "(?<space>[ \\t\\r\\n]+)",
    "(?<command>\\\\(?:[a-zA-Z]+|[^]))",
    "(?<digit>[0-9])",
    "(?<letter>d[ \\t\\r\\n]*(?:[a-zA-Z]|\\\\[a-zA-Z]+)|[a-zA-Z])",
    "(?<mark>[+\\-*\\/(){}\\[\\]|_^:!',.=])",
  ].join("|"),
  "uy",
);

/** @throws {UnreadableFormula} at a character that has no meaning in a formula */
export function tokenize(text: string): Token[] {
  const tokens: Token[] = [];
  const pattern = new RegExp(TOKEN);
  while (pattern.lastIndex < text.length) {
    const at = pattern.lastIndex;
    const { space, command, digit, letter, mark } = pattern.exec(text)?.groups ?? {};
    if (space !== undefined) continue;
    if (command !== undefined) {
      // The reference cannot read sized bars as an absolute value.
      if (/^\\(?:left|right)$/.test(command) && text[at + command.length] === "|") {
        throw new UnreadableFormula();
      }
      if (!SPACING.has(command)) tokens.push({ kind: "command", text: command });
    } else if (digit !== undefined) tokens.push({ kind: "digit", text: digit });
    else if (letter !== undefined) {
      tokens.push({ kind: "letter", text: letter.replace(/[ \t\r\n\\]/g, "") });
    } else if (mark !== undefined) tokens.push({ kind: "mark", text: mark });
    else throw new UnreadableFormula();
  }
  return tokens;
}

/** End of a number that begins at a place: digits, commas between groups of three, decimals. */
export function numberEnd(tokens: readonly Token[], from: number): number {
  const isDigit = (at: number) => tokens[at]?.kind === "digit";
  const digitsEnd = (at: number) => {
    while (isDigit(at)) at++;
    return at;
  };
  const isGroup = (at: number) => [1, 2, 3].every((i) => isDigit(at + i)) && !isDigit(at + 4);
  let end = digitsEnd(from);
  while (tokens[end]?.text === "," && isGroup(end)) end += 4;
  return tokens[end]?.text === "." && isDigit(end + 1) ? digitsEnd(end + 1) : end;
}

/** The formula of a decimal number. */
export function number(text: string): Formula {
  const value = fromDecimal(text);
  if (value === undefined) throw new UnreadableFormula();
  return { kind: "number", value };
}
