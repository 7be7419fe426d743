/**
 * Cuts text into the words that Qwen's byte pair encoding works on.
 *
 * Does by hand what the split expression of the tokenizer file says; other expressions are not
 * handled here. A scanner rather than a regular expression for two reasons: V8's engine overflows its
 * stack on a few megabytes of one rare letter, and its `\s` is not Unicode's White_Space, which the
 * expression means (`\s` has U+FEFF and lacks U+0085).
 */

/** The split expression of Qwen2, 2.5 and 3, as their tokenizer files write it. */
export const QWEN_PATTERN =
  "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

// What a code point is. The value 0 is left for "not looked up yet".
const LETTER = 1, NUMBER = 2, NEWLINE = 3, BLANK = 4, OTHER = 5;

const APOSTROPHE = 0x27, SPACE = 0x20;

/** Finds word ends; remembers the kind of every code point it has met. */
export class WordSplitter {
  readonly #kinds = new Uint8Array(0x110000);

  /** End of the word that starts at `at`, which is a position inside well-formed text. */
  end(text: string, at: number): number {
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
    if (kind === NUMBER) return next;
    // ` ?[^\s\p{L}\p{N}]+[\r\n]*`
    if (kind === OTHER || (code === SPACE && follower === OTHER)) {
      return this.#skip(text, this.#skip(text, next, OTHER), NEWLINE);
    }
    return this.#endOfBlanks(text, at);
  }

  /** Whether the code point at `at` has the property White_Space. */
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

/** Length of `s`, `t`, `re`, `ve`, `m`, `ll` or `d` at `at`, in either case; 0 if there is none. */
function contractionLength(text: string, at: number): number {
  // Setting bit 5 turns an ASCII capital into its small letter and nothing else into a letter.
  const first = String.fromCharCode(text.charCodeAt(at) | 0x20);
  if (first === "s" || first === "t" || first === "m" || first === "d") return 1;
  const second = String.fromCharCode(text.charCodeAt(at + 1) | 0x20);
  const pair = first + second;
  return pair === "re" || pair === "ve" || pair === "ll" ? 2 : 0;
}
