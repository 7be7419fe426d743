/**
 * Expressions of a grammar over characters, and the rules that they make up.
 *
 * They say which texts are allowed, and nothing of tokens or of the order in which texts are read. Counted
 * repeats are a part of them, so that a bound of 4,096 costs no more than one of 4.
 */

/** First and last code points of intervals, ascending and apart. */
export type Ranges = readonly (readonly [first: number, last: number])[];

/** The texts that are allowed in a place. A string is that text itself. */
export type Expression =
  | string
  | { readonly kind: "class"; readonly ranges: Ranges }
  | Character
  | { readonly kind: "sequence"; readonly parts: readonly Expression[] }
  | { readonly kind: "choice"; readonly options: readonly Expression[] }
  | Repeat
  | { readonly kind: "rule"; readonly rule: number };

/** A character of a JSON string: in any spelling, or one of a class as `JSON.stringify` writes it. */
export interface Character {
  readonly kind: "character";
  readonly ranges: Ranges | "any spelling";
}

/** `min` to `max` repetitions of an expression; `max` may be Infinity. */
export interface Repeat {
  readonly kind: "repeat";
  readonly part: Expression;
  readonly min: number;
  readonly max: number;
}

/** Rules by number; a text is one of the first rule. */
export interface Grammar {
  readonly rules: readonly Expression[];
}

/** No text at all, as opposed to the empty one. */
export const NOTHING: Expression = { kind: "choice", options: [] };

export function sequence(...parts: readonly Expression[]): Expression {
  return parts.length === 1 ? parts[0]! : { kind: "sequence", parts };
}

/** Any one of the options; `NOTHING` among them is left out. */
export function choice(...options: readonly Expression[]): Expression {
  const possible = options.filter((option) => option !== NOTHING);
  if (possible.length === 0) return NOTHING;
  return possible.length === 1 ? possible[0]! : { kind: "choice", options: possible };
}

/** Any one of these texts, whose common prefixes are read once. */
export function oneOfTexts(texts: readonly string[]): Expression {
  const groups = Map.groupBy(texts, ([first = ""]) => first);
  return choice(...[...groups].map(([first, group]) => {
    if (first === "" || group.length === 1) return group[0]!;
    const shared = commonPrefix(group);
    return sequence(shared, oneOfTexts(group.map((text) => text.slice(shared.length))));
  }));
}

/** The longest common prefix that does not end within a character. */
function commonPrefix(texts: readonly string[]): string {
  let prefix = texts[0]!;
  for (const text of texts) while (!text.startsWith(prefix)) prefix = prefix.slice(0, -1);
  return prefix.isWellFormed() ? prefix : prefix.slice(0, -1);
}

export function repeat(part: Expression, min: number, max = Infinity): Expression {
  return max < min ? NOTHING : { kind: "repeat", part, min, max };
}

/** Returns whether an expression may read nothing; a rule is taken for one that may not. */
export function isEmpty(expression: Expression): boolean {
  if (typeof expression === "string") return expression === "";
  if (expression.kind === "choice") return expression.options.some(isEmpty);
  if (expression.kind === "sequence") return expression.parts.every(isEmpty);
  return expression.kind === "repeat" && (expression.min === 0 || isEmpty(expression.part));
}

/** The expressions that an expression is made of. */
export function partsOf(expression: Expression): readonly Expression[] {
  if (typeof expression === "string") return [];
  if (expression.kind === "repeat") return [expression.part];
  if (expression.kind === "sequence") return expression.parts;
  return expression.kind === "choice" ? expression.options : [];
}

/** All ranges of characters in an expression. */
export function* rangesIn(expression: Expression): Generator<Ranges> {
  if (typeof expression === "string") {
    for (const point of expression) yield [[point.codePointAt(0)!, point.codePointAt(0)!]];
  } else if ("ranges" in expression) {
    yield expression.ranges === "any spelling" ? complement([]) : expression.ranges;
  } else for (const part of partsOf(expression)) yield* rangesIn(part);
}

/** Numbers of expressions: equal ones, whichever rules they use, have the same. */
export class Forms {
  readonly #numbers = new Map<string, number>();
  readonly #known = new Map<Expression, number>();

  of(expression: Expression): number {
    const known = this.#known.get(expression);
    if (known !== undefined) return known;
    const text = typeof expression === "string" ? `text ${expression}` : [
      expression.kind,
      "ranges" in expression ? expression.ranges : partsOf(expression).map((part) => this.of(part)),
      ...(expression.kind === "repeat" ? [expression.min, expression.max] : []),
    ].join(" ");
    const number = this.#numbers.getOrInsertComputed(text, () => this.#numbers.size);
    this.#known.set(expression, number);
    return number;
  }
}

export function optional(part: Expression): Expression {
  return repeat(part, 0, 1);
}

/** A class of characters, written as first and last ones: `"azAZ"`. */
export function range(text: string): Expression {
  const points = Array.from(text, (character) => character.codePointAt(0)!);
  const ranges = points.flatMap((first, i): [number, number][] =>
    i % 2 === 0 ? [[first, points[i + 1]!]] : []
  );
  return { kind: "class", ranges };
}

/** All characters that are not in these ranges; surrogates, which UTF-8 has not, are in none. */
export function complement(ranges: Ranges): Ranges {
  const rest: [number, number][] = [];
  let next = 0;
  for (const [first, last] of joined([...ranges, [0xd800, 0xdfff]])) {
    if (first > next) rest.push([next, first - 1]);
    next = last + 1;
  }
  if (next <= 0x10ffff) rest.push([next, 0x10ffff]);
  return rest;
}

/** The ranges in order, with those that touch as one. */
export function joined(ranges: Ranges): Ranges {
  const all: [number, number][] = [];
  for (const [first, last] of ranges.toSorted((a, b) => a[0] - b[0])) {
    const before = all.at(-1);
    if (before && first <= before[1] + 1) before[1] = Math.max(before[1], last);
    else all.push([first, last]);
  }
  return all;
}

/** Rules that can be referred to before they are written; the first one that is named is the root. */
export class Rules {
  readonly #rules: Expression[] = [];
  readonly #known = new Map<unknown, Expression>();
  readonly #open: (() => void)[] = [];

  /** Number of rules so far. */
  get size(): number {
    return this.#rules.length;
  }

  /** The rule of a text or object, written once, and later: so rules may lead to each other. */
  named(name: unknown, write: () => Expression): Expression {
    const known = this.#known.get(name);
    if (known) return known;
    const expression = this.shared(NOTHING), rule = this.#rules.length - 1;
    this.#known.set(name, expression);
    this.#open.push(() => this.#rules[rule] = write());
    return expression;
  }

  /** A rule for an expression that several places share. */
  shared(expression: Expression): Expression {
    return { kind: "rule", rule: this.#rules.push(expression) - 1 };
  }

  /** Writes the rules that are named. */
  grammar(): Grammar {
    for (let write; (write = this.#open.pop());) write();
    return { rules: this.#rules };
  }
}
