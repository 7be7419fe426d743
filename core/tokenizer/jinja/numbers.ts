/** Conversions to numbers, and rounding, as Python and the filters of Jinja have them. */
import { SPACE } from "../../base/rstrip.ts";
import { fixed, roundedQuotient } from "./digits.ts";
import {
  isNumber,
  isText,
  numeric,
  plain,
  PythonError,
  typeError,
  typeName,
  Undefined,
  type Value,
} from "./values.ts";

const BLANKS = new RegExp(`^[${SPACE}]+|[${SPACE}]+$`, "gu");

const FLOAT = /^[-+]?(\d+(_\d+)*\.?(\d+(_\d+)*)?|\.\d+(_\d+)*)(e[-+]?\d+(_\d+)*)?$/i;
const NOT_FINITE = /^([-+]?)(inf|infinity|nan)$/i;

/** Decimal digits of any script as ASCII. */
function asciiDigits(text: string): string {
  return text.replace(/(?![0-9])\p{Nd}/gu, (digit) => {
    // Every script has its ten digits in a row, from a zero whose code is found by going down.
    let zero = digit.codePointAt(0)!;
    while (/\p{Nd}/u.test(String.fromCodePoint(zero - 1)) && digit.codePointAt(0)! - zero < 9) {
      zero--;
    }
    return String(digit.codePointAt(0)! - zero);
  });
}

/** Python's `float()`. @throws {PythonError} for a text that is not a number */
export function toFloat(value: Value): number {
  if (isNumber(value)) return Number(numeric(value));
  if (value instanceof Undefined) value.fail();
  if (!isText(value)) {
    throw typeError(`float() argument must be a string or a real number, not '${typeName(value)}'`);
  }
  const text = asciiDigits(plain(value).replace(BLANKS, ""));
  if (FLOAT.test(text)) return Number(text.replaceAll("_", ""));
  const special = NOT_FINITE.exec(text);
  if (!special) throw new PythonError("ValueError", "could not convert string to float");
  const size = special[2]!.toLowerCase() === "nan" ? NaN : Infinity;
  return special[1] === "-" ? -size : size;
}

/** Python's `int()`. @throws {PythonError} for a text that is not a number */
export function toInteger(value: Value, base = 10): bigint {
  if (isText(value)) return parseInteger(plain(value), base);
  if (value instanceof Undefined) value.fail();
  if (!isNumber(value)) {
    throw typeError(`int() argument must be a number, not '${typeName(value)}'`);
  }
  const number = numeric(value);
  if (typeof number === "bigint") return number;
  if (Number.isFinite(number)) return BigInt(Math.trunc(number));
  const name = Number.isNaN(number) ? "ValueError" : "OverflowError";
  throw new PythonError(name, "cannot convert float to integer");
}

const PREFIXES: Readonly<Record<string, number>> = { "0x": 16, "0o": 8, "0b": 2 };

function parseInteger(given: string, base: number): bigint {
  const refused = new PythonError("ValueError", `invalid literal for int() with base ${base}`);
  const [, sign = "", body = ""] = /^([-+]?)([^]*)$/.exec(asciiDigits(given.replace(BLANKS, "")))!;
  const prefix = PREFIXES[body.slice(0, 2).toLowerCase()];
  const isPrefixed = prefix !== undefined && (base === prefix || base === 0);
  const radix = base === 0 ? prefix ?? 10 : base;
  const digits = isPrefixed ? body.slice(2).replace(/^_/, "") : body;
  if (!/^[\da-z]+(_[\da-z]+)*$/i.test(digits) || radix < 2 || radix > 36) throw refused;
  if (digits.length > 4300) throw refused;
  let value = 0n;
  for (const digit of digits.replaceAll("_", "")) {
    const place = parseInt(digit, 36);
    if (place >= radix) throw refused;
    value = value * BigInt(radix) + BigInt(place);
  }
  return sign === "-" ? -value : value;
}

/** Python's `round(value, places)`: half to even, an int for an int. */
export function round(value: bigint | number, places: number): bigint | number {
  if (typeof value === "number") {
    if (!Number.isFinite(value) || places > 323) return value;
    return Math.sign(value) * roundedSize(Math.abs(value), places) || (value < 0 ? -0 : 0);
  }
  if (places >= 0) return value;
  const unit = 10n ** BigInt(Math.min(-places, 4300)), size = value < 0n ? -value : value;
  const rounded = roundedQuotient(size, unit) * unit;
  return value < 0n ? -rounded : rounded;
}

function roundedSize(size: number, places: number): number {
  return places >= 0
    ? Number(fixed(size, places))
    : Number(round(BigInt(Math.trunc(size)), places));
}
