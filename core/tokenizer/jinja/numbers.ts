/** Conversions to numbers as Python has them. */
import { SPACE } from "../../base/python_text.ts";
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

/** A text without blanks around it. @throws {Error} for digits of other scripts */
function digitsOf(text: string): string {
  if (!/(?![0-9])\p{Nd}/u.test(text)) return text.replace(BLANKS, "");
  throw new Error("numbers in digits of other scripts are not supported");
}

/** Python's `float()`. @throws {PythonError} for a text that is not a number */
export function toFloat(value: Value): number {
  if (isNumber(value)) return Number(numeric(value));
  if (value instanceof Undefined) value.fail();
  if (!isText(value)) {
    throw typeError(`float() argument must be a string or a real number, not '${typeName(value)}'`);
  }
  const text = digitsOf(plain(value));
  if (FLOAT.test(text)) return Number(text.replaceAll("_", ""));
  const special = NOT_FINITE.exec(text);
  if (!special) throw new PythonError("ValueError", "could not convert string to float");
  const size = special[2]!.toLowerCase() === "nan" ? NaN : Infinity;
  return special[1] === "-" ? -size : size;
}

/** Python's `int()`. @throws {PythonError} for a text that is not a number */
export function toInteger(value: Value): bigint {
  if (isText(value)) return parseInteger(plain(value));
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

function parseInteger(given: string): bigint {
  const text = digitsOf(given);
  if (/^[-+]?\d+(_\d+)*$/.test(text) && text.length <= 4300) {
    return BigInt(text.replaceAll(/[_+]/g, ""));
  }
  throw new PythonError("ValueError", "invalid literal for int() with base 10");
}
