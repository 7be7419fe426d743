/**
 * Cuts a template into tokens as Jinja2 3.1.6 does with trim_blocks and lstrip_blocks
 * (`jinja2/lexer.py`), the settings of transformers.
 */
import { SPACE } from "../../base/python_text.ts";

/** A part of a template; `text` is what it stands for: a string is decoded, data is trimmed. */
export interface Token {
  readonly kind:
    | "data"
    | "begin"
    | "end"
    | "open"
    | "close"
    | "name"
    | "string"
    | "number"
    | "operator";
  readonly text: string;
}

const BLANKS = `[${SPACE}]*`;

/** End of data: a block, a print statement, a comment, or a block of raw text. */
const OPENING = new RegExp(
  `\\{%([-+]?)${BLANKS}raw${BLANKS}(?:-%\\}${BLANKS}|%\\})|\\{([%{#])([-+]?)`,
  "gu",
);
const RAW_END = new RegExp(
  `\\{%([-+]?)${BLANKS}endraw${BLANKS}(?:\\+%\\}|-%\\}${BLANKS}|%\\}\\n?)`,
  "gu",
);
const COMMENT_END = new RegExp(`\\+#\\}|-#\\}${BLANKS}|#\\}\\n?`, "gu");
const BLOCK_END = new RegExp(`\\+%\\}|-%\\}${BLANKS}|%\\}\\n?`, "uy");
const PRINT_END = new RegExp(`-\\}\\}${BLANKS}|\\}\\}`, "uy");

const BLANK = new RegExp(`[${SPACE}]+`, "uy");
const TRAILING = new RegExp(`[${SPACE}]`, "u");
const ONLY_BLANK = new RegExp(`^[${SPACE}]+$`, "u");
const FLOAT = /\d+(_\d+)*(\.\d+(_\d+)*)?e[+-]?\d+(_\d+)*|\d+(_\d+)*\.\d+(_\d+)*/iy;
const INTEGER = /0b(_?[01])+|0o(_?[0-7])+|0x(_?[\da-f])+|[1-9](_?\d)*|0(_?0)*/iy;
const NAME = /[\p{L}\p{N}\p{M}\p{Pc}]+/uy;
const STRING = /'[^'\\]*(?:\\.[^'\\]*)*'|"[^"\\]*(?:\\.[^"\\]*)*"/sy;
const OPERATOR = /\/\/|\*\*|[=!<>]=|[-+*/%~[\](){}<>=.:|,;]/y;

const CLOSING: Readonly<Record<string, string>> = { ")": "(", "]": "[", "}": "{" };

/** Tokens of a template. @throws {Error} for a text that is not a template */
export function tokenize(template: string): Token[] {
  return new Lexer(template.replace(/\r\n?/g, "\n").replace(/\n$/, "")).tokens();
}

class Lexer {
  readonly #tokens: Token[] = [];
  #at = 0;
  /** True at the begin of the template and after a token that ends with a line feed. */
  #startsLine = true;

  constructor(private readonly source: string) {}

  tokens(): Token[] {
    for (;;) {
      OPENING.lastIndex = this.#at;
      const match = OPENING.exec(this.source);
      this.#data(match?.index ?? this.source.length, match?.[1] ?? match?.[3], match?.[2] !== "{");
      if (!match) return this.#tokens;
      this.#advance(match.index + match[0].length);
      if (match[2] === undefined) this.#raw();
      else if (match[2] === "#") this.#comment();
      else if (match[2] === "%") this.#code("begin", "end", BLOCK_END);
      else this.#code("open", "close", PRINT_END);
    }
  }

  #push(kind: Token["kind"], text: string): void {
    this.#tokens.push({ kind, text });
  }

  #advance(to: number): void {
    if (to > this.#at) this.#startsLine = this.source[to - 1] === "\n";
    this.#at = to;
  }

  /** Text before a tag, without blanks that the tag takes away. */
  #data(to: number, sign: string | undefined, isBlock: boolean): void {
    let text = this.source.slice(this.#at, to);
    if (to < this.source.length || sign !== undefined) {
      if (sign === "-") text = trimEnd(text);
      else if (sign !== "+" && isBlock) text = this.#withoutIndent(text);
    }
    if (text !== "") this.#push("data", text);
    if (to > this.#at) this.#startsLine = this.source[to - 1] === "\n";
    this.#at = to;
  }

  #withoutIndent(text: string): string {
    const line = text.lastIndexOf("\n") + 1;
    if (line === 0 && !this.#startsLine) return text;
    return ONLY_BLANK.test(text.slice(line)) ? text.slice(0, line) : text;
  }

  #raw(): void {
    RAW_END.lastIndex = this.#at;
    const match = RAW_END.exec(this.source);
    if (!match) throw new Error("Missing end of raw directive");
    this.#data(match.index, match[1], true);
    this.#advance(match.index + match[0].length);
  }

  #comment(): void {
    COMMENT_END.lastIndex = this.#at;
    const match = COMMENT_END.exec(this.source);
    if (!match) throw new Error("Missing end of comment tag");
    this.#advance(match.index + match[0].length);
  }

  /** Reads a block or print statement; its end counts only where no bracket is open. */
  #code(begin: "begin" | "open", end: "end" | "close", pattern: RegExp): void {
    const brackets: string[] = [];
    this.#push(begin, "");
    for (;;) {
      const close = brackets.length === 0 ? this.#match(pattern) : undefined;
      if (close !== undefined) return this.#push(end, "");
      if (this.#at >= this.source.length) throw new Error("unexpected end of template");
      if (this.#match(BLANK) === undefined) this.#token(brackets);
    }
  }

  #token(brackets: string[]): void {
    const number = this.source[this.#at - 1] === "." ? undefined : this.#match(FLOAT);
    const digits = number ?? this.#match(INTEGER);
    if (digits !== undefined) return this.#push("number", digits.replaceAll("_", ""));
    const name = this.#match(NAME);
    if (name !== undefined) return this.#push("name", name);
    const text = this.#match(STRING);
    if (text !== undefined) return this.#push("string", unescape(text.slice(1, -1)));
    const operator = this.#match(OPERATOR);
    if (operator === undefined) {
      throw new Error(`unexpected char ${JSON.stringify(this.source[this.#at])} at ${this.#at}`);
    }
    if ("([{".includes(operator)) brackets.push(operator);
    const opening = CLOSING[operator];
    if (opening && brackets.pop() !== opening) throw new Error(`unexpected '${operator}'`);
    this.#push("operator", operator);
  }

  #match(pattern: RegExp): string | undefined {
    pattern.lastIndex = this.#at;
    const text = pattern.exec(this.source)?.[0];
    if (text !== undefined) this.#advance(this.#at + text.length);
    return text;
  }
}

function trimEnd(text: string): string {
  let end = text.length;
  while (end > 0 && TRAILING.test(text[end - 1]!)) end--;
  return text.slice(0, end);
}

const ESCAPED: Readonly<Record<string, string>> = {
  "\n": "",
  "\\": "\\",
  "'": "'",
  '"': '"',
  a: "\x07",
  b: "\b",
  f: "\f",
  n: "\n",
  r: "\r",
  t: "\t",
  v: "\v",
};

const ESCAPE = /\\(?:([0-7]{1,3})|x([\da-fA-F]{2})|u([\da-fA-F]{4})|U([\da-fA-F]{8})|([^]))/gu;

/** Python's escapes; a backslash before any other character stays. */
function unescape(text: string): string {
  if (!text.includes("\\")) return text;
  return text.replace(ESCAPE, (all, octal, byte, short, long, other) => {
    if (other === undefined) {
      return String.fromCodePoint(octal ? parseInt(octal, 8) : parseInt(byte ?? short ?? long, 16));
    }
    if (other === "N" || /[xuU]/.test(other)) {
      throw new Error(`cannot read the escape ${all} of a string`);
    }
    return ESCAPED[other] ?? all;
  });
}
