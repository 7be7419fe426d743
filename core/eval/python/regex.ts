/**
 * Python's regular expressions in JavaScript's.
 *
 * Nearly every symbol differs. Python's `.` stops at U+000A alone, its `$` also matches before a final
 * newline, `\w \d \s \b` know all of Unicode, and `\-`, `\'` or `{` may stand for themselves. So each
 * piece is parsed and written anew, with the `v` flag and never with `m` or `s`.
 *
 * Two differences stay: a reference to a group that took no part matches nothing in Python and the
 * empty text here, and of matches that are empty JavaScript finds fewer next to others.
 *
 * Not carried over, and refused: verbose mode, conditional groups, `\N{...}`, the byte flags.
 * Matching backtracks as it does in Python: a pattern such as `(a+)+b` takes exponential time in
 * both.
 */
import { DataError } from "../../base/errors.ts";
import { SPACE } from "../../base/rstrip.ts";

/** Parts of words, and digits, as members of a class: a word character is any letter or number, but no combining mark. */
const WORD = "\\p{L}\\p{N}_";
const DIGIT = "\\p{Nd}";

const BOUNDARY = `(?:(?<=[${WORD}])(?![${WORD}])|(?<![${WORD}])(?=[${WORD}]))`;
const NO_BOUNDARY = `(?:(?<=[${WORD}])(?=[${WORD}])|(?<![${WORD}])(?![${WORD}]))`;

/** Classes a letter after a backslash stands for. */
const CLASSES: Readonly<Record<string, string>> = {
  d: `[${DIGIT}]`,
  D: `[^${DIGIT}]`,
  s: `[${SPACE}]`,
  S: `[^${SPACE}]`,
  w: `[${WORD}]`,
  W: `[^${WORD}]`,
};

/** Places between characters. Without the flag `m`, JavaScript's `^` and `$` are the very ends. */
const PLACES: Readonly<Record<string, string>> = {
  A: "^",
  Z: "$",
  b: BOUNDARY,
  B: NO_BOUNDARY,
};

/** Characters a letter after a backslash stands for. */
const CONTROLS: Readonly<Record<string, number>> = {
  a: 7,
  b: 8,
  t: 9,
  n: 10,
  v: 11,
  f: 12,
  r: 13,
};

/**
 * Translates `pattern`.
 *
 * `flags` holds Python's `i` (ignore case), `m` (multiline), `s` (dot matches newlines), and what
 * JavaScript keeps outside the pattern: `g`, `y`, `d`.
 * @throws {DataError} when Python would not compile the pattern, or it uses what is refused
 */
export function pythonRegex(pattern: string, flags = ""): RegExp {
  const translated = new Translator(pattern, flags).translate();
  try {
    return new RegExp(translated.source, translated.flags);
  } catch (cause) {
    throw unusable(pattern, (cause as Error).message, cause);
  }
}

function unusable(pattern: string, reason: string, cause?: unknown): DataError {
  return new DataError(
    `${JSON.stringify(pattern)} is not a valid regular expression: ${reason}`,
    { cause },
  );
}

/** Element before a quantifier, which decides whether it may stand there. */
type Before = "nothing" | "place" | "item" | "repeat";

/** Flags that change with the group. */
interface Mode {
  readonly multiline: boolean;
  readonly dotAll: boolean;
}

class Translator {
  readonly #characters: readonly string[];
  #at = 0;
  #ignoreCase: boolean;
  /** Names of the groups by number. Atomic groups take numbers too, so references go by name. */
  readonly #groups: string[] = [""];
  #atomicGroups = 0;

  constructor(readonly pattern: string, readonly flags: string) {
    this.#characters = Array.from(pattern);
    this.#ignoreCase = flags.includes("i");
  }

  translate(): { source: string; flags: string } {
    let mode = { multiline: this.flags.includes("m"), dotAll: this.flags.includes("s") };
    // Flags for the whole pattern may stand at its start only.
    const global = /^\(\?([a-zA-Z]+)\)/.exec(this.pattern);
    if (global !== null) {
      const letters = this.#requireFlags(global[1]!);
      this.#ignoreCase ||= letters.includes("i");
      mode = {
        multiline: mode.multiline || letters.includes("m"),
        dotAll: mode.dotAll || letters.includes("s"),
      };
      this.#at = global[0].length;
    }
    const source = this.#alternatives(mode);
    if (this.#at < this.#characters.length) this.#fail("unbalanced parenthesis");
    const outside = Array.from("gyd").filter((flag) => this.flags.includes(flag)).join("");
    return { source, flags: `v${this.#ignoreCase ? "i" : ""}${outside}` };
  }

  get #next(): string | undefined {
    return this.#characters[this.#at];
  }

  /** The characters that come next, `count` at most. */
  #ahead(count: number): string {
    return this.#characters.slice(this.#at, this.#at + count).join("");
  }

  #take(expected: string): boolean {
    if (this.#ahead(expected.length) !== expected) return false;
    this.#at += expected.length;
    return true;
  }

  /** Everything up to `end`, which is consumed. */
  #until(end: string): string {
    const from = this.#at;
    while (this.#next !== undefined && this.#next !== end) this.#at++;
    if (this.#next === undefined) this.#fail(`missing "${end}"`);
    return this.#characters.slice(from, this.#at++).join("");
  }

  #fail(problem: string): never {
    throw unusable(this.pattern, `${problem} at position ${this.#at}`);
  }

  #requireFlags(letters: string): string {
    if (!/^[imsu]*$/.test(letters)) {
      this.#fail(`unknown flags "${letters}" (i, m, s and u are known)`);
    }
    return letters;
  }

  /** Reads up to the end of the pattern or the parenthesis that closes the group. */
  #alternatives(mode: Mode): string {
    let out = "", item = "";
    let before = "nothing" as Before; // not narrowed: `push` assigns it
    const push = (text: string, kind: Before) => {
      out += item;
      item = text;
      before = kind;
    };
    for (let next = this.#next; next !== undefined && next !== ")"; next = this.#next) {
      const repeat = this.#quantifier();
      if (repeat !== undefined) {
        if (before === "repeat") this.#fail("multiple repeat");
        if (before !== "item") this.#fail("nothing to repeat");
        const possessive = this.#take("+");
        const lazy = !possessive && this.#take("?");
        item = possessive ? this.#atomic(item + repeat) : `${item}${repeat}${lazy ? "?" : ""}`;
        before = "repeat";
        continue;
      }
      this.#at++;
      if (next === "|") push("|", "nothing");
      else if (next === ".") push(mode.dotAll ? "[^]" : "[^\\n]", "item");
      else if (next === "^") push(mode.multiline ? "(?<![^\\n])" : "^", "place");
      else if (next === "$") push(mode.multiline ? "(?![^\\n])" : "(?=\\n?$)", "place");
      else if (next === "[") push(this.#set(), "item");
      else if (next === "\\") {
        const place = PLACES[this.#next ?? ""];
        if (place === undefined) push(this.#escape(), "item");
        else {
          this.#at++;
          push(place, "place");
        }
      } else if (next === "(") {
        const group = this.#group(mode);
        if (group !== "") push(group, "item"); // else a comment
      } else push(literal(next), "item");
    }
    return out + item;
  }

  /** A quantifier in JavaScript's form, if one stands here. */
  #quantifier(): string | undefined {
    if (this.#next === "*" || this.#next === "+" || this.#next === "?") {
      return this.#characters[this.#at++];
    }
    if (this.#next !== "{") return undefined;
    const [whole, low = "", comma, high] = /^\{(\d*)(?:(,)(\d*))?\}/.exec(this.#ahead(40)) ?? [];
    if (whole === undefined || whole === "{}") return undefined; // a brace like any character
    this.#at += whole.length;
    return comma === undefined ? `{${low}}` : `{${low || 0},${high}}`;
  }

  /** A group that never gives back: captured ahead, then repeated from there. */
  #atomic(body: string): string {
    const name = `atomic${++this.#atomicGroups}`;
    return `(?:(?=(?<${name}>${body}))\\k<${name}>)`;
  }

  /** After an opening parenthesis, up to and including the closing one. */
  #group(mode: Mode): string {
    if (this.#take("?#")) {
      this.#until(")");
      return "";
    }
    if (this.#take("?P=")) return `\\k<${this.#until(")")}>`;
    if (this.#take("?>")) return this.#atomic(this.#body(mode));
    for (const look of ["?=", "?!", "?<=", "?<!"]) {
      // Wrapped, since JavaScript does not let one be repeated.
      if (this.#take(look)) return `(?:(${look}${this.#body(mode)}))`;
    }
    if (this.#take("?:")) return `(?:${this.#body(mode)})`;
    if (this.#take("?P<")) return this.#capture(this.#until(">"), mode);
    if (this.#take("?")) return this.#modified(mode);
    return this.#capture(`group${this.#groups.length}`, mode);
  }

  #capture(name: string, mode: Mode): string {
    this.#groups.push(name);
    return `(?<${name}>${this.#body(mode)})`;
  }

  #body(mode: Mode): string {
    const body = this.#alternatives(mode);
    if (!this.#take(")")) this.#fail("unterminated group");
    return body;
  }

  /** A group with flags of its own: `(?i-s:...)`. */
  #modified(mode: Mode): string {
    const letters = /^([a-zA-Z]*)(?:-([a-zA-Z]+))?:/.exec(this.#ahead(40));
    if (letters === null) this.#fail("unknown extension");
    const [whole, on = "", off = ""] = letters;
    this.#at += whole.length;
    this.#requireFlags(on + off);
    const inner = {
      multiline: (mode.multiline || on.includes("m")) && !off.includes("m"),
      dotAll: (mode.dotAll || on.includes("s")) && !off.includes("s"),
    };
    const sign = off.includes("i") ? "-i" : on.includes("i") ? "i" : "";
    return `(?${sign}:${this.#body(inner)})`;
  }

  /** Translates an escape outside a class. */
  #escape(): string {
    const next = this.#next;
    if (next !== undefined && CLASSES[next] !== undefined) {
      this.#at++;
      return CLASSES[next]!;
    }
    if (next !== undefined && /[1-9]/.test(next)) {
      const digits = /^\d{1,3}/.exec(this.#ahead(3))![0];
      if (/^[0-3][0-7]{2}$/.test(digits)) {
        this.#at += 3;
        return point(parseInt(digits, 8));
      }
      const number = Number(digits.slice(0, 2));
      this.#at += Math.min(digits.length, 2);
      const group = this.#groups[number];
      if (group === undefined) {
        this.#fail(`reference to the missing group ${number}`);
      }
      return `\\k<${group}>`;
    }
    return point(this.#character());
  }

  /** The code point a backslash stands for, inside a class or outside. */
  #character(): number {
    const next = this.#next;
    if (next === undefined) this.#fail("lone backslash at the end");
    this.#at++;
    const digits = { x: 2, u: 4, U: 8 }[next];
    if (digits !== undefined) {
      const text = this.#ahead(digits);
      const code = parseInt(text, 16);
      if (!new RegExp(`^[0-9a-fA-F]{${digits}}$`).test(text) || code > 0x10ffff) {
        this.#fail(`incomplete escape "\\${next}${text}"`);
      }
      this.#at += digits;
      return code;
    }
    if (next === "0" || (/[1-7]/.test(next))) {
      const octal = next + /^[0-7]{0,2}/.exec(this.#ahead(2))![0];
      this.#at += octal.length - 1;
      return parseInt(octal, 8);
    }
    if (CONTROLS[next] !== undefined) return CONTROLS[next]!;
    if (/[a-zA-Z89]/.test(next)) this.#fail(`unknown escape "\\${next}"`);
    return next.codePointAt(0)!;
  }

  /** A class, after its opening bracket. */
  #set(): string {
    const negated = this.#take("^");
    let members = "";
    for (let first = true; first || this.#next !== "]"; first = false) {
      const low = this.#member();
      if (this.#next !== "-" || this.#characters[this.#at + 1] === "]") {
        members += typeof low === "number" ? point(low) : low;
        continue;
      }
      this.#at++;
      const high = this.#member();
      if (typeof low === "string" || typeof high === "string" || low > high) {
        this.#fail("bad character range");
      }
      members += `${point(low)}-${point(high)}`;
    }
    this.#at++;
    return `[${negated ? "^" : ""}${members}]`;
  }

  /** One member of a class: a code point, or a class inside it. */
  #member(): number | string {
    const next = this.#next;
    if (next === undefined) this.#fail("unterminated character set");
    this.#at++;
    if (next !== "\\") return next.codePointAt(0)!;
    const inside = CLASSES[this.#next ?? ""];
    if (inside === undefined) return this.#character();
    this.#at++;
    return inside;
  }
}

/** A character that stands for itself. */
function literal(character: string): string {
  return /^[\p{L}\p{Nd}]$/u.test(character) ? character : point(character.codePointAt(0)!);
}

/** A code point as an escape that means the same inside a class and outside. */
function point(code: number): string {
  return `\\u{${code.toString(16)}}`;
}
