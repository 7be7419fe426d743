/**
 * Splits text into the words that byte pair encoding works on.
 *
 * A scanner with the rules of the split expressions of Qwen, Llama 3 and GPT-2; for GPT-2 digits are split
 * off first where the file says so. Other expressions are left to the library. It replaces regular expressions
 * for two reasons: V8's engine overflows its stack on a few megabytes of one rare letter, and its `\s` is not
 * Unicode's White_Space, which the expression means (`\s` has U+FEFF and lacks U+0085).
 */

/** The split expression of Qwen2, 2.5 and 3, as their tokenizer files write it. */
export const QWEN_PATTERN =
  "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

/** The split expression of Llama 3: Qwen's with up to three digits in a word. */
export const LLAMA3_PATTERN = QWEN_PATTERN.replace("|\\p{N}|", "|\\p{N}{1,3}|");

/** GPT-2's expression, in its two spellings. */
export const GPT2_PATTERNS: readonly string[] = ["'s|'t|'re|'ve|'m|'ll|'d", "'(?:[sdmt]|ll|ve|re)"]
  .map((contraction) =>
    `${contraction}| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+`
  );

/** Rules that cut a text into words. */
export type WordRules =
  /** Qwen's expression, with at most `digits` digits in a word. */
  | { readonly expression: "qwen"; readonly digits: number }
  /** GPT-2's; digits are words of their own before it applies, one by one or in runs. */
  | { readonly expression: "gpt-2"; readonly cutDigits: "none" | "each" | "runs" };

// Classes of code points; 0 stands for one that is not in the table yet.
const LETTER = 1, NUMBER = 2, NEWLINE = 3, BLANK = 4, OTHER = 5;

const APOSTROPHE = 0x27, SPACE = 0x20;

/** Finds word ends; remembers the kind of every code point it has met. */
export class WordSplitter {
  readonly #kinds = new Uint8Array(0x110000);

  constructor(private readonly rules: WordRules = { expression: "qwen", digits: 1 }) {}

  /** End of the word that starts at `at`, which is a position inside well-formed text. */
  end(text: string, at: number): number {
    const rules = this.rules;
    return rules.expression === "qwen"
      ? this.#endOfQwen(text, at, rules.digits)
      : this.#endOfGpt2(text, at, rules.cutDigits);
  }

  #endOfQwen(text: string, at: number, digits: number): number {
    const kind = this.#kindAt(text, at);
    const next = at + this.#width(text, at);
    if (kind === LETTER) return this.#skip(text, next, LETTER);
    const code = text.charCodeAt(at);
    if (code === APOSTROPHE) {
      const length = contractionLength(text, next);
      if (length > 0) return next + length;
    }
    const follower = next < text.length ? this.#kindAt(text, next) : 0;
    // [^\r\n\p{L}\p{N}]?\p{L}+
    if (follower === LETTER && (kind === BLANK || kind === OTHER)) {
      return this.#skip(text, next, LETTER);
    }
    if (kind === NUMBER) {
      let end = next;
      for (let count = 1; count < digits && this.#isNumber(text, end); count++) {
        end += this.#width(text, end);
      }
      return end;
    }
    // ` ?[^\s\p{L}\p{N}]+[\r\n]*`
    if (kind === OTHER || (code === SPACE && follower === OTHER)) {
      return this.#skip(text, this.#skip(text, next, OTHER), NEWLINE);
    }
    return this.#endOfBlanks(text, at);
  }

  #endOfGpt2(text: string, at: number, cutDigits: "none" | "each" | "runs"): number {
    const kind = this.#kindAt(text, at);
    const next = at + this.#width(text, at);
    if (kind === NUMBER) return cutDigits === "each" ? next : this.#skip(text, next, NUMBER);
    if (kind === LETTER) return this.#skip(text, next, LETTER);
    if (kind === OTHER) {
      const length = text.charCodeAt(at) === APOSTROPHE ? contractionLength(text, next, true) : 0;
      return length > 0 ? next + length : this.#skip(text, next, OTHER);
    }
    // ` ?` before letters, digits or other characters; digits cut off before end the text here.
    const isCut = (position: number) => cutDigits !== "none" && this.#isNumber(text, position);
    if (text.charCodeAt(at) === SPACE && next < text.length && !isCut(next)) {
      const follower = this.#kindAt(text, next);
      if (follower !== BLANK && follower !== NEWLINE) return this.#skip(text, next, follower);
    }
    let end = next;
    while (end < text.length && this.isBlank(text, end)) end++;
    return end === text.length || end === next || isCut(end) ? end : end - 1;
  }

  #isNumber(text: string, at: number): boolean {
    return at < text.length && this.#kindAt(text, at) === NUMBER;
  }

  /** Returns whether the code point at `at` has the property White_Space. */
  isBlank(text: string, at: number): boolean {
    const kind = this.#kindAt(text, at);
    return kind === BLANK || kind === NEWLINE;
  }

  /** `\s*[\r\n]+|\s+(?!\S)|\s+`: all white space is in the basic plane, one unit each. */
  #endOfBlanks(text: string, at: number): number {
    let end = at, afterNewline = 0;
    for (; end < text.length && this.isBlank(text, end); end++) {
      if (this.#kindAt(text, end) === NEWLINE) afterNewline = end + 1;
    }
    if (afterNewline > 0) return afterNewline;
    // The last blank before a word belongs to that word, unless it is the only one.
    return end === text.length || end === at + 1 ? end : end - 1;
  }

  #skip(text: string, at: number, kind: number): number {
    while (at < text.length && this.#kindAt(text, at) === kind) at += this.#width(text, at);
    return at;
  }

  #width(text: string, at: number): number {
    return (text.charCodeAt(at) & 0xfc00) === 0xd800 ? 2 : 1;
  }

  #kindAt(text: string, at: number): number {
    let code = text.charCodeAt(at);
    if ((code & 0xfc00) === 0xd800) code = text.codePointAt(at)!;
    return this.#kinds[code] || (this.#kinds[code] = kindOf(code));
  }
}

function kindOf(code: number): number {
  if (code === 0x0a || code === 0x0d) return NEWLINE;
  const character = String.fromCodePoint(code);
  if (/\p{L}/u.test(character)) return LETTER;
  if (/\p{N}/u.test(character)) return NUMBER;
  return /\p{White_Space}/u.test(character) ? BLANK : OTHER;
}

/**
 * Length of `s`, `t`, `re`, `ve`, `m`, `ll` or `d` at `at`, in either case unless `isSmall`; 0 if there
 * is none.
 */
function contractionLength(text: string, at: number, isSmall = false): number {
  // Setting bit 5 turns an ASCII capital into its small letter and nothing else into a letter.
  const bit = isSmall ? 0 : 0x20;
  const first = String.fromCharCode(text.charCodeAt(at) | bit);
  if (first === "s" || first === "t" || first === "m" || first === "d") return 1;
  const second = String.fromCharCode(text.charCodeAt(at + 1) | bit);
  const pair = first + second;
  return pair === "re" || pair === "ve" || pair === "ll" ? 2 : 0;
}
