/**
 * Values of formulas, exact where they are fractions and in floating point otherwise.
 *
 * A value is undefined at a division by zero; an exact one also where it is irrational, or too long to
 * be worth computing.
 */
import * as complex from "./complex.ts";
import type { Complex } from "./complex.ts";
import { type Formula, type Operation, symbolsOf } from "./formula.ts";
import * as rational from "./rational.ts";
import type { Rational } from "./rational.ts";

type Values<T> = (symbol: string) => T;

/** Operations whose values may be fractions. */
const EXACT: Partial<Record<Operation, (a: Rational, b: Rational) => Rational | undefined>> = {
  add: rational.add,
  multiply: rational.multiply,
  negate: rational.negate,
  power: rational.power,
  factorial: rational.factorial,
  binomial: rational.binomial,
  abs: (a) => a.over < 0n ? rational.negate(a) : a,
  floor: rational.floor,
  ceil: (a) => rational.negate(rational.floor(rational.negate(a))),
};

/** All operations in floating point; rounding is that of both parts. */
const FLOAT: Readonly<Record<Operation, (a: Complex, b: Complex) => Complex>> = {
  ...complex.FUNCTIONS,
  add: complex.add,
  multiply: complex.multiply,
  negate: complex.negate,
  conjugate: complex.conjugate,
  abs: (z) => complex.real(complex.size(z)),
  floor: ({ re, im }) => ({ re: Math.floor(re), im: Math.floor(im) }),
  ceil: ({ re, im }) => ({ re: Math.ceil(re), im: Math.ceil(im) }),
  power: complex.power,
  factorial: complex.factorial,
  binomial: (n, k) => {
    const others = complex.factorial(complex.subtract(n, k));
    return complex.divide(complex.factorial(n), complex.multiply(complex.factorial(k), others));
  },
};

/** The exact value. */
export function exactValue(formula: Formula, values: Values<Rational>): Rational | undefined {
  if (formula.kind === "number") return formula.value;
  if (formula.kind === "symbol") return values(formula.name);
  if (formula.kind === "unknown") return undefined;
  const args: Rational[] = [];
  for (const arg of formula.args) {
    const value = exactValue(arg, values);
    if (value === undefined) return undefined;
    args.push(value);
  }
  // A symbol may stand for any complex number, of which |x|² = x² does not hold.
  if (formula.name === "abs" && symbolsOf(formula).size > 0) return undefined;
  return EXACT[formula.name]?.(...args as [Rational, Rational]);
}

/** The value in floating point, whatever the formula; not finite where it is undefined. */
export function floatValue(formula: Formula, values: Values<Complex>): Complex {
  if (formula.kind === "number") return complex.real(rational.toNumber(formula.value));
  if (formula.kind === "symbol") return values(formula.name);
  const args = formula.args.map((arg) => floatValue(arg, values));
  if (formula.kind === "unknown") return unknownValue(formula.name, args, values);
  return FLOAT[formula.name](...args as [Complex, Complex]);
}

/** The size of the value, or of what cancels in it where it is a sum. */
export function magnitude(formula: Formula, values: Values<Complex>): number {
  const isSum = formula.kind === "call" && (formula.name === "add" || formula.name === "negate");
  if (isSum) return formula.args.reduce((sum, arg) => sum + magnitude(arg, values), 0);
  return complex.size(floatValue(formula, values));
}

/** Some value that depends on the name and on each argument, without a law that could be met. */
function unknownValue(name: string, args: readonly Complex[], values: Values<Complex>): Complex {
  return args.reduce((sum, arg, i) => {
    const pole = values(`${name}(${i} of ${args.length})`);
    const term = complex.divide(pole, complex.add(arg, pole));
    return complex.add(complex.multiply(sum, pole), complex.add(term, complex.multiply(arg, arg)));
  }, values(`${name}()`));
}
