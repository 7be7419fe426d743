/**
 * Values of formulas, exact where they are fractions and in floating point otherwise.
 *
 * A value is undefined at a division by zero; an exact one also where it is irrational, or too long to
 * be worth computing.
 */
import { derivative, integral, limit, limitAtInfinity } from "./calculus.ts";
import * as complex from "./complex.ts";
import type { Complex } from "./complex.ts";
import { type Bound, type Formula, type Operation, symbolsOf } from "./formula.ts";
import * as rational from "./rational.ts";
import type { Rational } from "./rational.ts";

type Values<T> = (symbol: string) => T;

/** Most terms of a sum or product. */
const MOST_TERMS = 1000;

/** Terms with larger numbers are not added up exactly. */
const LARGEST_TERM = 1n << 1000n;

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
    return complex.divide(
      complex.factorial(n),
      complex.multiply(complex.factorial(k), others),
    );
  },
};

/** The exact value. */
export function exactValue(formula: Formula, values: Values<Rational>): Rational | undefined {
  if (formula.kind === "number") return formula.value;
  if (formula.kind === "symbol") return values(formula.name);
  if (formula.kind === "unknown") return undefined;
  if (formula.kind === "bound") return exactTotal(formula, values);
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

/** The sum or product of finitely many fractions. */
function exactTotal(bound: Bound, values: Values<Rational>): Rational | undefined {
  const { name, variable, body } = bound;
  const places = placesOf(bound);
  if (!places || bound.infinity) return undefined;
  const combine = name === "sum" ? rational.add : rational.multiply;
  let total: Rational | undefined = name === "sum" ? rational.rational(0n) : rational.ONE;
  for (const place of places) {
    const term = exactValue(body, (symbol) => symbol === variable ? place : values(symbol));
    const isShort = term && term.under < LARGEST_TERM && term.over < LARGEST_TERM &&
      -term.over < LARGEST_TERM;
    total = total && isShort ? combine(total, term) : undefined;
    if (total === undefined) return undefined;
  }
  return total;
}

/** Returns whether a formula has none of the operations that tell the parts of a number apart. */
function isAnalytic(formula: Formula): boolean {
  if (formula.kind !== "call") return true;
  return !/^(abs|floor|ceil|conjugate)$/.test(formula.name) && formula.args.every(isAnalytic);
}

/** Values of the variable of a sum or product: whole numbers, as many as are computed. */
function placesOf({ name, from, to, infinity }: Bound): Rational[] | undefined {
  if (name !== "sum" && name !== "product") return undefined;
  const unknown = () => ({ over: 0n, under: 2n }); // no whole number
  const first = exactValue(from!, unknown), last = to && exactValue(to, unknown);
  if (first?.under !== 1n || infinity === -1 || to && last?.under !== 1n) return undefined;
  if ([from!, to].some((bound) => bound && symbolsOf(bound).size > 0)) return undefined;
  const count = last ? last.over - first.over + 1n : BigInt(MOST_TERMS);
  if (count < 0n || count > BigInt(MOST_TERMS)) return undefined;
  return Array.from(
    { length: Number(count) },
    (_, i) => ({ over: first.over + BigInt(i), under: 1n }),
  );
}

/** The value of a sum, product, integral, derivative or limit; not finite where it is not known. */
function boundValue(bound: Bound, values: Values<Complex>): Complex {
  const { name, variable, body, from, to, infinity } = bound;
  const at = (z: Complex) => floatValue(body, (symbol) => symbol === variable ? z : values(symbol));
  const isTotal = name === "sum" || name === "product";
  if (!isTotal && !isAnalytic(body)) return complex.real(NaN);
  if (name === "derivative") return derivative(at, values(variable));
  if (name === "limit") {
    return infinity ? limitAtInfinity(at, infinity) : limit(at, floatValue(from!, values));
  }
  if (name === "integral") {
    return infinity
      ? complex.real(NaN)
      : integral(at, floatValue(from!, values), floatValue(to!, values));
  }
  const places = placesOf(bound);
  if (!places) return complex.real(NaN);
  const terms = places.map((place) => at(complex.real(rational.toNumber(place))));
  // An endless sum has a value here only if its last terms do not count.
  const isOpen = infinity && !(name === "sum" && complex.size(terms.at(-1)!) < 1e-30);
  if (isOpen) return complex.real(NaN);
  return name === "sum"
    ? terms.reduce(complex.add, complex.real(0))
    : terms.reduce(complex.multiply, complex.real(1));
}

/** The value in floating point, whatever the formula; not finite where it is undefined. */
export function floatValue(formula: Formula, values: Values<Complex>): Complex {
  if (formula.kind === "number") return complex.real(rational.toNumber(formula.value));
  if (formula.kind === "symbol") return values(formula.name);
  if (formula.kind === "bound") return boundValue(formula, values);
  const args = formula.args.map((arg) => floatValue(arg, values));
  if (formula.kind === "unknown") return unknownValue(formula.name, args, values);
  return FLOAT[formula.name](...args as [Complex, Complex]);
}

/** The size of the value, or of what cancels in it where it is a sum. */
export function magnitude(formula: Formula, values: Values<Complex>): number {
  const isSum = formula.kind === "call" && (formula.name === "add" || formula.name === "negate");
  if (isSum) return formula.args.reduce((sum, arg) => sum + magnitude(arg, values), 0);
  const value = complex.size(floatValue(formula, values));
  // Of terms that cancel in a sum over values only the total is known.
  return formula.kind === "bound" ? Math.max(1, value) : value;
}

/** Some value that depends on the name and on each argument, without a law that could be met. */
function unknownValue(name: string, args: readonly Complex[], values: Values<Complex>): Complex {
  return args.reduce((sum, arg, i) => {
    const pole = values(`${name}(${i} of ${args.length})`);
    const term = complex.divide(pole, complex.add(arg, pole));
    return complex.add(complex.multiply(sum, pole), complex.add(term, complex.multiply(arg, arg)));
  }, values(`${name}()`));
}
