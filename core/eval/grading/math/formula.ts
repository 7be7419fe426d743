/**
 * Formulas as trees.
 *
 * Every operation is one node with a name and arguments, so that an evaluator is a table by name.
 */
import type { FUNCTIONS } from "./complex.ts";
import type { Rational } from "./rational.ts";

/** A number, a symbol of unknown value, or an operation on other formulas. */
export type Formula =
  | { readonly kind: "number"; readonly value: Rational }
  | { readonly kind: "symbol"; readonly name: string }
  | { readonly kind: "call"; readonly name: Operation; readonly args: readonly Formula[] }
  /** A function nothing is known of, such as f in f(x). */
  | { readonly kind: "unknown"; readonly name: string; readonly args: readonly Formula[] };

/** Everything that can be computed. */
export type Operation =
  | "add"
  | "multiply"
  | "negate"
  | "power"
  | "factorial"
  | "binomial"
  | "abs"
  | "floor"
  | "ceil"
  | "conjugate"
  | keyof typeof FUNCTIONS;

/** An operation on formulas. */
export function call(name: Operation, ...args: Formula[]): Formula {
  return { kind: "call", name, args };
}

/** Names of all symbols in a formula. */
export function symbolsOf(formula: Formula, names: Set<string> = new Set()): Set<string> {
  if (formula.kind === "symbol") names.add(formula.name);
  if (formula.kind === "call" || formula.kind === "unknown") {
    for (const arg of formula.args) symbolsOf(arg, names);
  }
  return names;
}

const MINUS_ONE: Formula = { kind: "number", value: { over: -1n, under: 1n } };

/** One over a formula. */
export function reciprocal(formula: Formula): Formula {
  return call("power", formula, MINUS_ONE);
}

/** Returns whether a formula is −1 as it is written. */
export function isMinusOne(formula: Formula): boolean {
  if (formula.kind !== "call" || formula.name !== "negate") return false;
  const [one] = formula.args;
  return one?.kind === "number" && one.value.over === 1n && one.value.under === 1n;
}

/** Drops every x between factors without letters, where it stands for a cross. */
export function withoutCrosses(factors: readonly Formula[]): readonly Formula[] {
  const isPlain = (factor: Formula | undefined) =>
    factor !== undefined && symbolsOf(factor).size === 0;
  return factors.filter((factor, i) =>
    !(factor.kind === "symbol" && factor.name === "x" && isPlain(factors[i - 1]) &&
      isPlain(factors[i + 1]))
  );
}
