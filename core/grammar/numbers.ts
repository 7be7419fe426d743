/**
 * Expressions of JSON numbers between bounds, digit by digit.
 *
 * Bounds are decimals of any length, compared exactly. Numbers have at most 200 digits before and after the
 * point, and exponents only where no bound is given, so that none is read as infinity.
 */
import {
  choice,
  type Expression,
  NOTHING,
  optional,
  range,
  repeat,
  sequence,
} from "./expression.ts";

const MAX_DIGITS = 200;

/** Most digits of a bound, on each side of the point. */
export const MAX_BOUND = 40;

const DIGIT = range("09"), NONZERO = range("19");

/** Any number of integer digits that follow a first one. */
const MORE_DIGITS = repeat(DIGIT, 0, MAX_DIGITS - 1);
const NATURAL = choice("0", sequence(NONZERO, MORE_DIGITS));
const FRACTION = sequence(".", repeat(DIGIT, 1, MAX_DIGITS));
const SIGN = optional("-"), SIGNS = optional(choice("+", "-"));

/** Any number. One with an exponent of three digits has one digit before the point. */
export const NUMBER: Expression = sequence(
  SIGN,
  choice(
    sequence(NATURAL, optional(FRACTION), optional(exponent(SIGNS, repeat(DIGIT, 1, 2)))),
    sequence(
      NONZERO,
      optional(FRACTION),
      choice(
        exponent(SIGNS, sequence(range("12"), DIGIT, DIGIT)),
        exponent(SIGNS, sequence("30", range("07"))),
        exponent("-", sequence("3", range("02"), DIGIT)),
      ),
    ),
  ),
);

function exponent(sign: Expression, digits: Expression): Expression {
  return sequence({ kind: "class", ranges: [[69, 69], [101, 101]] }, sign, digits);
}

/** Any integer. */
export const INTEGER: Expression = choice("0", sequence(SIGN, NONZERO, MORE_DIGITS));

/** A decimal number: `digits` · 10^−`places`. */
export interface Decimal {
  readonly digits: bigint;
  readonly places: number;
}

/** Reads a JSON number; undefined for one with more digits than are taken. */
export function decimalOf(text: string): Decimal | undefined {
  const [, sign, whole, fraction = "", power = "0"] = /^(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?$/
    .exec(text)!;
  const trimmed = fraction.replace(/0+$/, "");
  const places = trimmed.length - Number(power);
  const digits = BigInt(`${sign}${whole}${trimmed}`);
  if (digits === 0n) return { digits, places: 0 };
  const length = whole!.length + trimmed.length;
  if (Math.abs(places) > MAX_BOUND || length > MAX_BOUND) return undefined;
  return places >= 0 ? { digits, places } : { digits: digits * 10n ** BigInt(-places), places: 0 };
}

/** A number as `JSON.stringify` writes it, unless that would change its value. */
export function canonicalNumber(text: string): string {
  const written = JSON.stringify(Number(text));
  const [given, read] = [decimalOf(text), written === "null" ? undefined : decimalOf(written)];
  return given && read && compare(given, read) === 0 ? written : text;
}

/** Returns a negative number where the first is less, zero where both are equal. */
export function compare(a: Decimal, b: Decimal): number {
  const places = Math.max(a.places, b.places);
  const difference = scaled(a, places) - scaled(b, places);
  return difference < 0n ? -1 : difference > 0n ? 1 : 0;
}

function scaled({ digits, places }: Decimal, to: number): bigint {
  return digits * 10n ** BigInt(to - places);
}

/** The same decimal with the other sign. */
export function negated({ digits, places }: Decimal): Decimal {
  return { digits: -digits, places };
}

/** Greatest integer that is not above a decimal. */
export function floor({ digits, places }: Decimal): bigint {
  const unit = 10n ** BigInt(places);
  const towardsZero = digits / unit;
  return digits < 0n && towardsZero * unit !== digits ? towardsZero - 1n : towardsZero;
}

/** Least integer that is not below a decimal. */
export function ceil(value: Decimal): bigint {
  return -floor(negated(value));
}

/** Integers from one bound to the other, both included. */
export function integers(low: bigint | undefined, high: bigint | undefined): Expression {
  if (low !== undefined && high !== undefined && low > high) return NOTHING;
  const positive = high !== undefined && high < 0n
    ? NOTHING
    : naturals(low === undefined || low < 0n ? 0n : low, high);
  const negative = low !== undefined && low >= 0n
    ? NOTHING
    : naturals(high === undefined || high >= 0n ? 1n : -high, low === undefined ? low : -low);
  return choice(positive, negative === NOTHING ? NOTHING : sequence("-", negative));
}

/** Integers from a bound that is not negative. */
function naturals(low: bigint, high: bigint | undefined): Expression {
  const from = String(low);
  if (high === undefined) {
    const longer = sequence(NONZERO, repeat(DIGIT, from.length, MAX_DIGITS - 1));
    return choice(between(from, "9".repeat(from.length)), longer);
  }
  const to = String(high);
  if (low > high) return NOTHING;
  if (from.length === to.length) return between(from, to);
  const inner = from.length + 1 < to.length
    ? sequence(NONZERO, repeat(DIGIT, from.length, to.length - 2))
    : NOTHING;
  return choice(
    between(from, "9".repeat(from.length)),
    inner,
    between(`1${"0".repeat(to.length - 1)}`, to),
  );
}

/** Digits that are not below the one text and not above the other, all of the same length. */
function between(from: string, to: string): Expression {
  if (from === to) return from;
  const rest = from.length - 1;
  if (/^0*$/.test(from.slice(1)) && /^9*$/.test(to.slice(1))) {
    return sequence(range(from[0]! + to[0]!), repeat(DIGIT, rest, rest));
  }
  if (from[0] === to[0]) return sequence(from[0]!, between(from.slice(1), to.slice(1)));
  return choice(
    sequence(from[0]!, between(from.slice(1), "9".repeat(rest))),
    digitsBetween(from[0]!, to[0]!, repeat(DIGIT, rest, rest)),
    sequence(to[0]!, between("0".repeat(rest), to.slice(1))),
  );
}

/** A digit strictly between two others, and what follows it. */
function digitsBetween(low: string, high: string, rest: Expression): Expression {
  const [first, last] = [Number(low) + 1, Number(high) - 1];
  return first > last ? NOTHING : sequence(range(`${first}${last}`), rest);
}

/** Numbers from one bound to the other, both included, without exponents. */
export function decimals(low: Decimal | undefined, high: Decimal | undefined): Expression {
  if (low && high && compare(low, high) > 0) return NOTHING;
  const zero = { digits: 0n, places: 0 };
  const positive = high && high.digits < 0n
    ? NOTHING
    : magnitudes(low && low.digits > 0n ? low : zero, high);
  const negative = low && low.digits > 0n
    ? NOTHING
    : magnitudes(high && high.digits < 0n ? negated(high) : zero, low && negated(low));
  return choice(positive, negative === NOTHING ? NOTHING : sequence("-", negative));
}

/** Numbers without a sign between bounds that have none. */
function magnitudes(low: Decimal, high: Decimal | undefined): Expression {
  const [from, lowest] = parts(low);
  if (!high) {
    const above = naturals(from + 1n, undefined);
    return choice(
      sequence(String(from), fractions(lowest, undefined)),
      sequence(above, optional(FRACTION)),
    );
  }
  const [to, highest] = parts(high);
  if (from === to) return sequence(String(from), fractions(lowest, highest));
  const inner = naturals(from + 1n, to - 1n);
  return choice(
    sequence(String(from), fractions(lowest, undefined)),
    inner === NOTHING ? NOTHING : sequence(inner, optional(FRACTION)),
    sequence(String(to), fractions("", highest)),
  );
}

/** The integer part of a decimal, and its digits after the point without zeros at their end. */
function parts({ digits, places }: Decimal): [bigint, string] {
  const text = String(digits).padStart(places + 1, "0");
  const at = text.length - places;
  return [BigInt(text.slice(0, at)), text.slice(at).replace(/0+$/, "")];
}

/** A point and digits whose value lies between; none at all where zero does. */
function fractions(low: string, high: string | undefined): Expression {
  const digits = digitsFrom(low, high, MAX_DIGITS);
  return low === "" ? optional(sequence(".", digits)) : sequence(".", digits);
}

/** At least one digit, of a fraction that is not below and not above others. */
function digitsFrom(low: string, high: string | undefined, left: number): Expression {
  if (low === "" && high === undefined) return repeat(DIGIT, 1, left);
  if (low === "" && high === "") return repeat("0", 1, left);
  if (left === 1 && high === undefined) return range(`${low[0]}9`);
  const [first, last] = [low[0] ?? "0", high === undefined ? "9" : high[0] ?? "0"];
  const more = (low: string, high: string | undefined) => {
    const rest = left === 1 ? NOTHING : digitsFrom(low, high, left - 1);
    if (low === "") return rest === NOTHING ? "" : optional(rest);
    return rest;
  };
  const lows = low.slice(1), highs = high?.slice(1);
  if (first === last) return followed(first, more(lows, high === undefined ? undefined : highs));
  const any = more("", undefined);
  return choice(
    followed(first, more(lows, undefined)),
    digitsBetween(first, last, any),
    high === undefined ? sequence(last, any) : followed(last, more("", highs)),
  );
}

function followed(digit: string, rest: Expression): Expression {
  return rest === NOTHING ? NOTHING : sequence(digit, rest);
}
