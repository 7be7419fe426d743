/**
 * Regular expressions of the keyword `pattern`, which are those of ECMAScript with the flag `u`, as
 * expressions of the JSON strings that match them.
 *
 * A pattern is looked for anywhere in a text, unless `^` and `$` hold it to the ends. Strings are spelled as
 * `JSON.stringify` writes them.
 */
import {
  choice,
  complement,
  type Expression,
  joined,
  NOTHING,
  type Ranges,
  repeat,
  sequence,
} from "./expression.ts";
import { CANONICAL_TEXT } from "./json_text.ts";
import { Refusal } from "./schema_fields.ts";

/** Longest pattern, and most places of it, counted repeats written out: a text may be at all at once. */
const MAX_CHARACTERS = 2048, MAX_PLACES = 1024;

const DIGITS: Ranges = [[0x30, 0x39]];
const WORD: Ranges = [[0x30, 0x39], [0x41, 0x5a], [0x5f, 0x5f], [0x61, 0x7a]];
const SPACE: Ranges = [
  ...[[9, 13], [0x20, 0x20], [0xa0, 0xa0], [0x1680, 0x1680], [0x2000, 0x200a], [0x2028, 0x2029]],
  ...[[0x202f, 0x202f], [0x205f, 0x205f], [0x3000, 0x3000], [0xfeff, 0xfeff]],
] as const as Ranges;
const LINE_ENDS: Ranges = [[10, 10], [13, 13], [0x2028, 0x2029]];

/** Classes that have a letter. */
const CLASSES: Readonly<Record<string, Ranges>> = {
  d: DIGITS,
  D: complement(DIGITS),
  w: WORD,
  W: complement(WORD),
  s: SPACE,
  S: complement(SPACE),
};

/** Control characters that have a letter. */
const CONTROLS: Readonly<Record<string, number>> = { t: 9, n: 10, v: 11, f: 12, r: 13, 0: 0 };

/** A part of a pattern, with the number of its places. */
type Part =
  | { readonly kind: "text"; readonly expression: Expression; readonly places: number }
  | { readonly kind: "anchor"; readonly sign: "^" | "$" }
  /** A group that has an anchor inside. */
  | { readonly kind: "group"; readonly options: readonly (readonly Part[])[] };

/**
 * The texts that a pattern matches.
 * @throws {DataError} for a pattern that is not one, or that is not supported
 */
export function patternText(given: string): Expression {
  // Python and patterns without the flag escape characters that need no escape.
  const pattern = given.replace(
    /\\([!-/:-@[-`{-~ ])/g,
    (_, sign: string) => `\\x${sign.charCodeAt(0).toString(16)}`,
  );
  if (pattern.length > MAX_CHARACTERS) {
    throw unsupported(`with more than ${MAX_CHARACTERS} characters`);
  }
  try {
    new RegExp(pattern, "u");
  } catch (error) {
    throw unsupported(`as ${JSON.stringify(given)}: ${(error as Error).message}`);
  }
  return matching(new PatternReader(pattern).options());
}

function unsupported(where: string): Refusal {
  return new Refusal("pattern", where);
}

/** Whole texts in which one of the options is found. */
function matching(options: readonly (readonly Part[])[]): Expression {
  const any = CANONICAL_TEXT;
  const expressions = options.map((parts): Expression => {
    const [only] = parts;
    if (parts.length === 1 && only?.kind === "group") return matching(only.options);
    const [first, last] = [isAnchor(parts[0], "^"), isAnchor(parts.at(-1), "$")];
    const inner = parts.slice(first ? 1 : 0, last ? -1 : undefined).map((part) => {
      if (part.kind === "text") return part.expression;
      throw unsupported('with "^" or "$" inside');
    });
    return sequence(...(first ? [] : [any]), ...inner, ...(last ? [] : [any]));
  });
  return choice(...expressions);
}

function isAnchor(part: Part | undefined, sign: "^" | "$"): boolean {
  return part?.kind === "anchor" && part.sign === sign;
}

/** Reads a pattern that is known to be valid. */
class PatternReader {
  #at = 0;

  constructor(private readonly pattern: string) {}

  /** The alternatives up to the end of the group, or of the pattern. */
  options(): readonly (readonly Part[])[] {
    const options: Part[][] = [[]];
    for (let next; (next = this.#peek()) !== undefined && next !== ")";) {
      if (this.#take("|")) options.push([]);
      else options.at(-1)!.push(this.#quantified());
    }
    requireFew(placesOf(options));
    return options;
  }

  #quantified(): Part {
    const part = this.#atom();
    const [min, max] = this.#quantifier();
    if (min === 1 && max === 1) return part;
    if (part.kind !== "text") throw unsupported('with "^" or "$" in a repeated group');
    return this.#text(
      repeat(part.expression, min, max),
      part.places * Math.max(1, max === Infinity ? min : max),
    );
  }

  /** A lazy quantifier matches the same texts. */
  #quantifier(): [min: number, max: number] {
    const [sign, least, comma, most] = this.#match(/[*+?]|\{(\d+)(,?)(\d*)\}/y) ?? [];
    if (sign === undefined) return [1, 1];
    this.#take("?");
    if (sign === "*") return [0, Infinity];
    if (sign === "+") return [1, Infinity];
    if (sign === "?") return [0, 1];
    return [Number(least), most ? Number(most) : comma ? Infinity : Number(least)];
  }

  #atom(): Part {
    if (this.#take("(")) return this.#group();
    if (this.#take("^")) return { kind: "anchor", sign: "^" };
    if (this.#take("$")) return { kind: "anchor", sign: "$" };
    const ranges = this.#take(".")
      ? complement(LINE_ENDS)
      : this.#take("[")
      ? this.#class()
      : this.#character();
    return this.#text(ranges.length > 0 ? { kind: "character", ranges } : NOTHING, 1);
  }

  #group(): Part {
    if (this.#match(/\?(?:[=!]|<[=!])/y)) throw unsupported("with lookaround");
    if (this.#match(/\?(?!:|<)/y)) throw unsupported("with flags of a group");
    this.#match(/\?(?::|<[^>]*>)/y);
    const options = this.options();
    this.#take(")");
    const all = options.flat();
    if (all.some(({ kind }) => kind !== "text")) return { kind: "group", options };
    const texts = options.map((parts) =>
      sequence(...parts.map((part) => part.kind === "text" ? part.expression : NOTHING))
    );
    return this.#text(choice(...texts), placesOf(options));
  }

  #text(expression: Expression, places: number): Part {
    requireFew(places);
    return { kind: "text", expression, places };
  }

  /** A class up to its bracket. */
  #class(): Ranges {
    const isNegated = this.#take("^");
    const ranges: (readonly [number, number])[] = [];
    while (!this.#take("]")) {
      const low = this.#character(), from = this.#at;
      const isRange = low.length === 1 && low[0]![0] === low[0]![1] && this.#take("-") &&
        this.#peek() !== "]";
      if (isRange) ranges.push([low[0]![0], this.#character()[0]![1]]);
      else {
        this.#at = from;
        ranges.push(...low);
      }
    }
    return isNegated ? complement(ranges) : complement(complement(joined(ranges)));
  }

  /** One character, or the class of an escape. */
  #character(): Ranges {
    const [character] = this.#match(/./syu)!;
    if (character !== "\\") return one(character.codePointAt(0)!);
    const [escape] = this.#match(/./syu)!;
    if (Object.hasOwn(CLASSES, escape)) return CLASSES[escape]!;
    if (Object.hasOwn(CONTROLS, escape)) return one(CONTROLS[escape]!);
    if (escape === "x") return one(parseInt(this.#match(/../sy)![0], 16));
    if (escape === "c") return one(this.#match(/./sy)![0].charCodeAt(0) % 32);
    if (escape === "u") return one(this.#unicode());
    if (escape === "p" || escape === "P") throw unsupported(`with "\\${escape}"`);
    if (/[1-9kbB]/.test(escape)) {
      // In a class, \b is a backspace.
      throw unsupported(`with "\\${escape}"`);
    }
    return one(escape.codePointAt(0)!);
  }

  #unicode(): number {
    const [, long] = this.#match(/\{([^}]*)\}/y) ?? [];
    if (long !== undefined) return parseInt(long, 16);
    const pair = this.#match(/([dD][89abAB]..)\\u([dD][c-fC-F]..)/y);
    if (!pair) return parseInt(this.#match(/..../sy)![0], 16);
    const [, high, low] = pair.map((text) => parseInt(text, 16));
    return 0x10000 + (high! - 0xd800) * 0x400 + (low! - 0xdc00);
  }

  #peek(): string | undefined {
    return this.pattern[this.#at];
  }

  #take(character: string): boolean {
    if (this.#peek() !== character) return false;
    this.#at++;
    return true;
  }

  #match(expression: RegExp): RegExpExecArray | undefined {
    expression.lastIndex = this.#at;
    const match = expression.exec(this.pattern) ?? undefined;
    if (match) this.#at = expression.lastIndex;
    return match;
  }
}

/** Places of alternatives, at least one. */
function placesOf(options: readonly (readonly Part[])[]): number {
  return options.flat().reduce((sum, part) => {
    if (part.kind === "anchor") return sum;
    return sum + (part.kind === "text" ? part.places : placesOf(part.options));
  }, 1);
}

function requireFew(places: number): void {
  if (places > MAX_PLACES) throw unsupported(`with more than ${MAX_PLACES} places`);
}

function one(point: number): Ranges {
  return [[point, point]];
}
