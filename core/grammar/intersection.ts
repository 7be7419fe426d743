/**
 * Texts that match several expressions at once, by a machine that reads each character for all of them
 * (derivatives of regular expressions, Brzozowski 1964).
 */
import {
  choice,
  type Expression,
  Forms,
  isEmpty,
  joined,
  NOTHING,
  type Ranges,
  rangesIn,
  repeat,
  type Rules,
  sequence,
} from "./expression.ts";

/** Most states of a machine. */
const MAX_STATES = 4000;

/** Follows a text by a number, such as that of its characters. */
export interface Counter {
  /** Characters that it tells apart. */
  readonly apart: string;
  /** The number after one more character; undefined where none may come. */
  next(count: number, point: number): number | undefined;
  isEnd(count: number): boolean;
}

interface State {
  readonly parts: readonly Expression[];
  readonly count: number;
  readonly next: Map<State, (readonly [number, number])[]>;
}

/**
 * Texts of all expressions, none of which has rules, for which the counter comes from zero to an end.
 * Characters are of `kind`. Undefined where the machine would be too large.
 */
export function intersection(
  all: readonly Expression[],
  counter: Counter,
  kind: "class" | "character",
  rules: Rules,
): Expression | undefined {
  const forms = new Forms(), states = new Map<string, State>();
  const atoms = atomsOf([...all, counter.apart]), known = new Map<number, Expression>();
  const derived = (part: Expression, atom: number): Expression => {
    const key = forms.of(part) * atoms.length + atom;
    return known.getOrInsertComputed(key, () => derivative(part, atoms[atom]![0]![0], forms));
  };
  const stateOf = (parts: readonly Expression[], count: number): State => {
    const key = `${parts.map((part) => forms.of(part))} ${count}`;
    return states.getOrInsertComputed(key, () => ({ parts, count, next: new Map() }));
  };
  const start = stateOf(all, 0);
  for (const { parts, count, next } of states.values()) {
    if (states.size > MAX_STATES) return undefined;
    for (const [i, ranges] of atoms.entries()) {
      const behind = counter.next(count, ranges[0]![0]);
      const left = behind === undefined ? [NOTHING] : parts.map((part) => derived(part, i));
      if (left.includes(NOTHING)) continue;
      const to = stateOf(left, behind!);
      next.set(to, [...next.get(to) ?? [], ...ranges]);
    }
  }
  const ruleOf = (state: State): Expression =>
    rules.named(state, () => {
      const { parts, count, next } = state;
      const read = (ranges: Ranges): Expression => ({ kind, ranges: joined(ranges) });
      const isEnd = counter.isEnd(count) && parts.every(isEmpty);
      const others = [...next].filter(([to]) => to !== state)
        .map(([to, ranges]) => sequence(read(ranges), ruleOf(to)));
      const rest = choice(isEnd ? "" : NOTHING, ...others);
      return next.has(state) ? sequence(repeat(read(next.get(state)!), 0), rest) : rest;
    });
  return ruleOf(start);
}

/** Characters, those together that no expression tells apart. */
function atomsOf(expressions: readonly Expression[]): readonly Ranges[] {
  const sets = [...new Set(expressions.flatMap((one) => [...rangesIn(one)]))];
  const cuts = new Set([0, 0xd800, 0xe000]);
  for (const [first, last] of sets.flat()) cuts.add(first).add(last + 1);
  const firsts = [...cuts].filter((cut) => cut <= 0x10ffff).sort((a, b) => a - b);
  const intervals = firsts.map((first, i) => [first, (firsts[i + 1] ?? 0x110000) - 1] as const)
    .filter(([first]) => first < 0xd800 || first >= 0xe000);
  const alike = Map.groupBy(
    intervals,
    ([first]) => sets.map((ranges) => Number(has(ranges, first))).join(""),
  );
  return [...alike.values()];
}

function has(ranges: Ranges, point: number): boolean {
  return ranges.some(([first, last]) => first <= point && point <= last);
}

/** Derivative of an expression by a character (Brzozowski 1964). */
function derivative(expression: Expression, point: number, forms: Forms): Expression {
  const after = (one: Expression) => derivative(one, point, forms);
  if (typeof expression === "string") {
    const [first] = expression;
    return first?.codePointAt(0) === point ? expression.slice(first!.length) : NOTHING;
  }
  switch (expression.kind) {
    case "sequence": {
      const [first = "", ...rest] = expression.parts;
      const followed = inOrder([after(first), ...rest]);
      if (rest.length === 0 || !isEmpty(first)) return followed;
      return anyOf([followed, after(inOrder(rest))], forms);
    }
    case "choice":
      return anyOf(expression.options.map(after), forms);
    case "repeat": {
      const { part, min, max } = expression;
      return max === 0
        ? NOTHING
        : inOrder([after(part), repeat(part, Math.max(0, min - 1), max - 1)]);
    }
    default:
      return [...rangesIn(expression)].some((ranges) => has(ranges, point)) ? "" : NOTHING;
  }
}

/** A sequence in its shortest form. */
function inOrder(parts: readonly Expression[]): Expression {
  if (parts.includes(NOTHING)) return NOTHING;
  const flat = parts.flatMap((part) =>
    typeof part === "object" && part.kind === "sequence" ? part.parts : [part]
  );
  const left = flat.filter((part) =>
    part !== "" && (typeof part === "string" || part.kind !== "repeat" || part.max > 0)
  );
  return left.length === 0 ? "" : sequence(...left);
}

/** A choice with each option once. */
function anyOf(options: readonly Expression[], forms: Forms): Expression {
  const flat = options.flatMap((one) =>
    typeof one === "object" && one.kind === "choice" ? one.options : [one]
  );
  const distinct = new Map(flat.map((one) => [forms.of(one), one]));
  return choice(...[...distinct].sort(([a], [b]) => a - b).map(([, one]) => one));
}
