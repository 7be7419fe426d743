/** Tokens of a template as the parser takes them. */
import type { Token } from "./lexer.ts";

/** A place between tokens. */
export class TokenStream {
  #at = 0;

  constructor(private readonly tokens: readonly Token[]) {}

  get current(): Token | undefined {
    return this.tokens[this.#at];
  }

  /** Returns whether a token is next, by its text where that tells. */
  is(kind: Token["kind"], text?: string, ahead = 0): boolean {
    const token = this.tokens[this.#at + ahead];
    return token?.kind === kind && (text === undefined || token.text === text);
  }

  /** Takes a token if it is next. */
  skip(kind: Token["kind"], text?: string): boolean {
    const found = this.is(kind, text);
    if (found) this.#at++;
    return found;
  }

  /** Takes a token that must be next. */
  expect(kind: Token["kind"], text?: string): string {
    const { current } = this;
    if (!current || !this.skip(kind, text)) throw this.unexpected(text ?? kind);
    return current.text;
  }

  /** The error for another token than expected. */
  unexpected(expected: string): Error {
    const { current } = this;
    const found = current === undefined
      ? "end of template"
      : current.kind === "end" || current.kind === "close"
      ? "end of statement"
      : `'${current.text}'`;
    return new Error(`expected ${expected}, got ${found}`);
  }
}
