/**
 * Reads a Python literal: lists, dicts, texts in either kind of quotes, numbers, True, False, None.
 *
 * Some public files hold such literals inside a column. Everything else of Python is an error.
 */

/** The value of a literal; throws `SyntaxError` with the place where it stops being one. */
export function parsePythonLiteral(source: string): unknown {
  const reader = new Reader(source);
  const value = reader.value();
  reader.requireEnd();
  return value;
}

const ESCAPES: Readonly<Record<string, string>> = {
  n: "\n",
  t: "\t",
  r: "\r",
  a: "\x07",
  b: "\b",
  f: "\f",
  v: "\v",
  "\\": "\\",
  "'": "'",
  '"': '"',
  "\n": "",
};

const WORDS: Readonly<Record<string, boolean | null>> = { True: true, False: false, None: null };

class Reader {
  #at = 0;

  constructor(readonly source: string) {}

  value(): unknown {
    this.#skipSpace();
    const next = this.source[this.#at];
    if (next === "[") return this.#items("[", "]", () => this.value());
    if (next === "(") return this.#items("(", ")", () => this.value());
    if (next === "{") return this.#dict();
    if (next === "'" || next === '"') return this.#texts();
    const word = /[-+\w.]*/y;
    word.lastIndex = this.#at;
    const [found] = word.exec(this.source)!;
    const value = found in WORDS ? WORDS[found] : found === "" ? NaN : Number(found);
    if (Number.isNaN(value)) throw this.#error("a literal");
    this.#at += found.length;
    return value;
  }

  requireEnd(): void {
    this.#skipSpace();
    if (this.#at < this.source.length) throw this.#error("the end");
  }

  #items<T>(open: string, close: string, read: () => T): T[] {
    this.#take(open);
    const items: T[] = [];
    while (!this.#tryTake(close)) {
      items.push(read());
      if (!this.#tryTake(",")) {
        this.#take(close);
        break;
      }
    }
    return items;
  }

  #dict(): Record<string, unknown> {
    const entries = this.#items("{", "}", () => {
      const key = this.value();
      this.#take(":");
      return [String(key), this.value()];
    });
    return Object.fromEntries(entries);
  }

  /** Texts side by side are one text. */
  #texts(): string {
    let text = "";
    do {
      text += this.#text(this.source[this.#at]!);
      this.#skipSpace();
    } while (/['"]/.test(this.source[this.#at] ?? ""));
    return text;
  }

  #text(quote: string): string {
    let text = "";
    for (this.#at++; this.source[this.#at] !== quote; this.#at++) {
      const character = this.source[this.#at];
      if (character === undefined || character === "\n") throw this.#error(`a closing ${quote}`);
      text += character === "\\" ? this.#escape() : character;
    }
    this.#at++;
    return text;
  }

  /** The character an escape stands for; leaves the position on its last character. */
  #escape(): string {
    const code = /\\(?:x([\da-fA-F]{2})|u([\da-fA-F]{4})|U([\da-fA-F]{8})|([0-7]{1,3}))/y;
    code.lastIndex = this.#at;
    const match = code.exec(this.source);
    if (match) {
      const [all, x, u, U, octal] = match;
      this.#at += all.length - 1;
      return String.fromCodePoint(parseInt((x ?? u ?? U ?? octal)!, octal === undefined ? 16 : 8));
    }
    const next = this.source[++this.#at] ?? "";
    // As in Python, a backslash before anything else stays.
    return ESCAPES[next] ?? `\\${next}`;
  }

  #take(expected: string): void {
    if (!this.#tryTake(expected)) throw this.#error(`"${expected}"`);
  }

  #tryTake(expected: string): boolean {
    this.#skipSpace();
    if (this.source[this.#at] !== expected) return false;
    this.#at++;
    return true;
  }

  #skipSpace(): void {
    while (/\s/.test(this.source[this.#at] ?? "")) this.#at++;
  }

  #error(expected: string): SyntaxError {
    const rest = this.source.slice(this.#at, this.#at + 20);
    return new SyntaxError(`"${rest}" at character ${this.#at}, expected ${expected}`);
  }
}
