/**
 * What tokens look like: their texts, and those texts with everything invisible made visible.
 *
 * Takes ids and a tokenizer; returns one piece of text per token, which joined are the text. A
 * character may take several tokens. It then belongs to the last of them, and those before have an
 * empty piece, which is shown as U+FFFD.
 */
import type { Tokenizer } from "../../../core/tokenizer/tokenizer.ts";

/** The text of every token; ids alone where there is no tokenizer. */
export function piecesOf(tokens: readonly number[], tokenizer: Tokenizer | undefined) {
  if (!tokenizer) return tokens.map(() => undefined);
  const decoder = tokenizer.streamDecoder();
  const pieces = tokens.map((id) => decoder.push(id));
  const rest = decoder.flush();
  if (rest !== "") pieces.push(pieces.pop()! + rest);
  return pieces;
}

/** Control and format characters, separators but the blank, and halves of surrogate pairs. */
const INVISIBLE = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}\u00a0\u00ad]/gu;

/** A token as it is shown: never empty, one line, nothing a terminal or a page would act upon. */
export function visibleText(piece: string | undefined, id: number): string {
  if (piece === undefined) return `<${id}>`;
  if (piece === "") return "\ufffd";
  const shown = piece.replace(INVISIBLE, (character) => {
    if (character === "\n") return "↵";
    if (character === "\t") return "→";
    const code = character.codePointAt(0)!;
    // The pictures of control characters: U+2400 for NUL and so on.
    if (code < 0x20) return String.fromCodePoint(0x2400 + code);
    if (code === 0x7f) return "\u2421";
    return `\\u{${code.toString(16)}}`;
  });
  // An accent would otherwise stand on the token before.
  return /^\p{Mark}/u.test(shown) ? `◌${shown}` : shown;
}

/** Whether a line of the text ends with this token. */
export function endsLine(piece: string | undefined): boolean {
  return piece?.endsWith("\n") ?? false;
}
