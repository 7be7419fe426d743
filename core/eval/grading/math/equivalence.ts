/**
 * Compares two final answers in LaTeX: whether they are the same number or formula.
 *
 * Both are read as formulas and compared at points drawn at random: in exact fractions if possible,
 * otherwise in floating point. What cannot be read, such as a pair, an interval, a matrix or a bare
 * `.5`, is unequal to everything but the very same text, and so are sums over
 * a variable, integrals, derivatives and limits, which no final answer of the benchmarks has.
 *
 * Stricter than the reference, whose reader stops without complaint where it understands no more: it
 * takes `1,2` and `1,3` for equal, both being 1; here lists are compared item by item. Where the base
 * of a number follows, this reader stops too: `12_5` is 12.
 */
import { RandomStream } from "../../../base/random.ts";
import { type Complex, size, subtract } from "./complex.ts";
import { exactValue, floatValue, magnitude } from "./evaluate.ts";
import { type Formula, symbolsOf } from "./formula.ts";
import { UnreadableFormula } from "./latex_tokens.ts";
import { parseLatex } from "./latex_parser.ts";
import { type Rational, rational } from "./rational.ts";

/** Points at which two formulas must agree to be equal. */
const POINTS = 3;

/** Relative difference allowed in floating point. */
const TOLERANCE = 1e-11;

/** Returns whether the answers are equal. */
export function isEquivalent(a: string, b: string): boolean {
  if (a === b) return a !== "";
  try {
    const left = parseLatex(a), right = parseLatex(b);
    return left.length === right.length && left.every((item, i) => areEqual(item, right[i]!));
  } catch (error) {
    if (error instanceof UnreadableFormula) return false;
    throw error;
  }
}

function areEqual(a: Formula, b: Formula): boolean {
  const isConstant = symbolsOf(a).size === 0 && symbolsOf(b).size === 0;
  for (let point = 0; point < (isConstant ? 1 : POINTS); point++) {
    const values = fractionsAt(point);
    const left = exactValue(a, values), right = exactValue(b, values);
    const agree = left !== undefined && right !== undefined
      ? left.over === right.over && left.under === right.under
      : areClose(a, b, complexAt(point));
    if (!agree) return false;
  }
  return true;
}

function areClose(a: Formula, b: Formula, values: (symbol: string) => Complex): boolean {
  const difference = size(subtract(floatValue(a, values), floatValue(b, values)));
  // A value that is not finite makes the comparison false.
  return difference <= TOLERANCE * Math.max(magnitude(a, values), magnitude(b, values)) &&
    Number.isFinite(difference);
}

/** A value for every symbol, the same whenever it is asked for. */
function fractionsAt(point: number): (symbol: string) => Rational {
  return (symbol) => {
    const random = new RandomStream(point, `fraction ${symbol}`);
    const over = BigInt(1 + random.integer(256)); // small, since powers may be high
    return rational(random.integer(2) === 0 ? over : -over, BigInt(2 + random.integer(30)))!;
  };
}

/** The same in the plane, near the unit circle, so that √x² is not taken for x or |x|. */
function complexAt(point: number): (symbol: string) => Complex {
  return (symbol) => {
    const random = new RandomStream(point, `complex ${symbol}`);
    const radius = 0.8 + 0.4 * random.uniform(), angle = 2 * Math.PI * random.uniform();
    return { re: radius * Math.cos(angle), im: radius * Math.sin(angle) };
  };
}
