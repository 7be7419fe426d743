/**
 * Fractions of big integers.
 *
 * Every operation may answer undefined, where the result would not be a fraction, or would be too
 * large to be worth the time.
 */

/** A fraction in lowest terms, its denominator positive. */
export interface Rational {
  readonly over: bigint;
  readonly under: bigint;
}

/** Largest number of bits; larger numbers are not computed. */
const MOST_BITS = 24_000;

const ZERO: Rational = { over: 0n, under: 1n };
export const ONE: Rational = { over: 1n, under: 1n };

/** `over / under` in lowest terms; undefined for a zero denominator. */
export function rational(over: bigint, under = 1n): Rational | undefined {
  if (under === 0n || bits(over) > MOST_BITS || bits(under) > MOST_BITS) return undefined;
  const sign = under < 0n ? -1n : 1n;
  const divisor = greatestCommonDivisor(over, under) * sign;
  return { over: over / divisor, under: under / divisor };
}

/** A decimal number such as `12.50`. */
export function fromDecimal(text: string): Rational | undefined {
  const [whole = "", decimals = ""] = text.split(".");
  return rational(BigInt(whole + decimals), 10n ** BigInt(decimals.length));
}

/** a + b. */
export function add(a: Rational, b: Rational): Rational | undefined {
  return rational(a.over * b.under + b.over * a.under, a.under * b.under);
}

/** a · b. */
export function multiply(a: Rational, b: Rational): Rational | undefined {
  return rational(a.over * b.over, a.under * b.under);
}

/** −a. */
export function negate({ over, under }: Rational): Rational {
  return { over: -over, under };
}

/** baseⁿ for a whole n; 0⁰ is 1. */
export function power(base: Rational, exponent: Rational): Rational | undefined {
  if (exponent.under !== 1n) return undefined;
  const n = exponent.over < 0n ? -exponent.over : exponent.over;
  // The size of the result is known before it is computed.
  const size = BigInt(Math.max(bits(base.over), bits(base.under)) - 1);
  if (size * n > BigInt(MOST_BITS)) return undefined;
  const sign = base.over < 0n && n % 2n === 1n ? -1n : 1n;
  const isUnit = base.under === 1n && (base.over === 1n || base.over === -1n);
  if (isUnit) return { over: sign, under: 1n }; // however large the exponent
  const over = base.over ** n, under = base.under ** n;
  return exponent.over < 0n ? rational(under, over) : rational(over, under);
}

/** n! for a whole n that is not too large. */
export function factorial({ over, under }: Rational): Rational | undefined {
  if (under !== 1n || over < 0n || over > 5000n) return undefined;
  let product = 1n;
  for (let i = 2n; i <= over; i++) product *= i;
  return rational(product);
}

/** n over k for whole numbers. */
export function binomial(n: Rational, k: Rational): Rational | undefined {
  if (n.under !== 1n || k.under !== 1n || n.over < 0n || k.over > 5000n) return undefined;
  if (k.over < 0n || k.over > n.over) return ZERO;
  let value = 1n;
  for (let i = 1n; i <= k.over; i++) {
    value = value * (n.over - k.over + i) / i;
    if (bits(value) > MOST_BITS) return undefined;
  }
  return rational(value);
}

/** The whole number below. */
export function floor({ over, under }: Rational): Rational {
  const cut = over / under; // towards zero
  return { over: over < 0n && cut * under !== over ? cut - 1n : cut, under: 1n };
}

/** The nearest floating-point number. */
export function toNumber({ over, under }: Rational): number {
  // 64 significant bits of each survive, whatever their size.
  const shift = (value: bigint) => Math.max(0, bits(value) - 64);
  const [up, down] = [shift(over), shift(under)];
  return Number(over >> BigInt(up)) / Number(under >> BigInt(down)) * 2 ** (up - down);
}

/** Length in binary, at least one. */
function bits(value: bigint): number {
  return (value < 0n ? -value : value).toString(16).length * 4;
}

function greatestCommonDivisor(a: bigint, b: bigint): bigint {
  let [x, y] = [a < 0n ? -a : a, b < 0n ? -b : b];
  while (y !== 0n) [x, y] = [y, x % y];
  return x;
}
