/** Python's arithmetic, signs and slices. */
import { bounded, requireText, spendItems, spendText } from "./meter.ts";
import {
  integer,
  isNumber,
  isText,
  itemsOf,
  iterate,
  Markup,
  numeric,
  plain,
  PythonError,
  Range,
  Tuple,
  typeError,
  typeName,
  Undefined,
  type Value,
} from "./values.ts";
import { str } from "./text.ts";

/** Most bits of a power: its digits are counted before it is computed. */
const MAX_BITS = 14_300;

/** The value of a binary operator. @throws {PythonError} for types that it does not take */
export function binary(operator: string, left: Value, right: Value): Value {
  for (const side of [left, right]) if (side instanceof Undefined) side.fail();
  if (isNumber(left) && isNumber(right)) {
    const a = numeric(left), b = numeric(right);
    return typeof a === "bigint" && typeof b === "bigint"
      ? integers(operator, a, b)
      : floats(operator, Number(a), Number(b));
  }
  if (operator === "+") return add(left, right);
  if (operator === "*") return isNumber(left) ? repeat(right, left) : repeat(left, right);
  if (isText(left)) throw new Error(`'${operator}' of text is not supported`);
  throw unsupported(operator, left, right);
}

function unsupported(operator: string, left: Value, right: Value): PythonError {
  return typeError(
    `unsupported operand type(s) for ${operator}: '${typeName(left)}' and '${typeName(right)}'`,
  );
}

function integers(operator: string, a: bigint, b: bigint): Value {
  switch (operator) {
    case "+":
      return bounded(a + b);
    case "-":
      return bounded(a - b);
    case "*":
      return bounded(a * b);
    case "**":
      return power(a, b);
  }
  if (b === 0n) throw divisionByZero(operator);
  if (operator === "/") return Number(a) / Number(b);
  const rest = a % b, isLow = rest !== 0n && rest < 0n !== b < 0n;
  if (operator === "%") return isLow ? rest + b : rest;
  return isLow ? a / b - 1n : a / b;
}

function power(base: bigint, exponent: bigint): Value {
  if (exponent < 0n) throw new Error("a negative power is not supported");
  const bits = BigInt(base.toString(2).length - 1) * exponent;
  if (bits > MAX_BITS) throw new Error("a power of more than 4300 digits is too long");
  return bounded(base ** exponent);
}

function floats(operator: string, a: number, b: number): number {
  switch (operator) {
    case "+":
      return a + b;
    case "-":
      return a - b;
    case "*":
      return a * b;
    case "**":
      throw new Error("a power of floats is not supported");
  }
  if (b === 0) throw divisionByZero(operator);
  if (operator === "/") return a / b;
  let rest = a % b;
  if (rest !== 0 && rest < 0 !== b < 0) rest += b;
  else if (rest === 0) rest = b < 0 ? -0 : 0;
  if (operator === "%") return rest;
  const quotient = (a - rest) / b, floor = Math.floor(quotient);
  return quotient - floor > 0.5 ? floor + 1 : floor;
}

function divisionByZero(operator: string): PythonError {
  const what = operator === "/" ? "division by zero" : "integer division or modulo by zero";
  return new PythonError("ZeroDivisionError", what);
}

function add(left: Value, right: Value): Value {
  if (isText(left) && isText(right)) {
    // V8 joins texts without copying them: only the length matters.
    if (typeof left === "string" && typeof right === "string") return checked(left + right);
    return new Markup(checked(escaped(left) + escaped(right)));
  }
  if (isText(left)) {
    throw typeError(`can only concatenate str (not "${typeName(right)}") to str`);
  }
  const a = itemsOf(left), b = itemsOf(right);
  const isSame = typeName(left) === typeName(right) && !(left instanceof Range);
  if (!a || !b || !isSame) throw unsupported("+", left, right);
  spendItems(a.length + b.length);
  return like(left, [...a, ...b]);
}

function checked(text: string): string {
  requireText(text.length);
  return text;
}

const ENTITIES: Readonly<Record<string, string>> = {
  "&": "&amp;",
  "<": "&lt;",
  ">": "&gt;",
  '"': "&#34;",
  "'": "&#39;",
};

/** Text beside safe text, escaped as by markupsafe. */
function escaped(value: string | Markup): string {
  if (value instanceof Markup) return value.text;
  return value.replace(/[&<>"']/g, (character) => ENTITIES[character]!);
}

/** Items in the form that a list, tuple or text has. */
function like(form: Value, items: readonly Value[]): Value {
  if (form instanceof Markup) return new Markup(items.join(""));
  if (typeof form === "string") return items.join("");
  return Array.isArray(form) ? items : new Tuple(items);
}

function repeat(value: Value, times: Value): Value {
  const items = itemsOf(value);
  const isRepeated = isText(value) || items && !(value instanceof Range);
  if (!isRepeated || typeof times === "number" || !isNumber(times)) {
    throw unsupported("*", value, times);
  }
  const count = Math.max(0, integer(times));
  if (items) {
    spendItems(items.length * count);
    return like(value, Array.from({ length: count }, () => items).flat());
  }
  const text = plain(value as string | Markup);
  spendText(text.length * count);
  return typeof value === "string" ? text.repeat(count) : new Markup(text.repeat(count));
}

/** A value with a sign before it. */
export function signed(kind: "negative" | "positive", value: Value): Value {
  if (value instanceof Undefined) value.fail();
  if (!isNumber(value)) {
    throw typeError(
      `bad operand type for unary ${kind === "negative" ? "-" : "+"}: '${typeName(value)}'`,
    );
  }
  const number = numeric(value);
  return kind === "negative" ? -number : number;
}

/** `~`: values as text, one after the other. */
export function concat(values: readonly Value[]): string {
  const texts = values.map(str);
  spendText(texts.reduce((sum, { length }) => sum + length, 0));
  return texts.join("");
}

/** `value[start:stop:step]`. @throws {PythonError} for what has no slices */
export function slice(value: Value, bounds: readonly (Value | undefined)[]): Value {
  if (value instanceof Undefined) value.fail();
  if (value instanceof Range) throw new Error("a slice of a range is not supported");
  if (!isText(value) && !itemsOf(value)) {
    throw typeError(`'${typeName(value)}' object is not subscriptable`);
  }
  const [start = null, stop = null, step = null] = bounds;
  const stride = step === null ? 1 : integer(step);
  if (stride === 0) throw new PythonError("ValueError", "slice step cannot be zero");
  const items = isText(value) ? iterate(value) : itemsOf(value)!;
  const { length } = items;
  const clamp = (bound: Value, low: number, high: number) => {
    const at = integer(bound);
    return Math.min(high, Math.max(low, at < 0 ? at + length : at));
  };
  const [low, high] = stride > 0 ? [0, length] : [-1, length - 1];
  const from = start === null ? (stride > 0 ? low : high) : clamp(start, low, high);
  const to = stop === null ? (stride > 0 ? high : low) : clamp(stop, low, high);
  const taken: Value[] = [];
  for (let at = from; stride > 0 ? at < to : at > to; at += stride) taken.push(items[at]!);
  spendItems(isText(value) ? 0 : taken.length);
  return like(value, taken);
}
