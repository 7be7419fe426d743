/** `text % values` of Python, the old way of formatting. */
import { formatFloat, formatInteger, type FormatSpec, pad } from "./number_format.ts";
import { repr, str } from "./text.ts";
import {
  Dict,
  integer,
  isNumber,
  isText,
  itemsOf,
  numeric,
  plain,
  PythonError,
  Tuple,
  typeError,
  typeName,
  Undefined,
  type Value,
} from "./values.ts";

const FIELD = /%(?:\(([^()]*)\))?([-+ #0]*)(\*|\d*)(?:\.(\*|\d*))?[hlL]?([^])?/g;

/** A text with its fields replaced by values. */
export function formatPercent(format: string, values: Value): string {
  const args = values instanceof Tuple ? values.items : [values];
  // Python lets what has items go unused, of which only tuples are arguments.
  const isUsed = values instanceof Tuple ||
    !(values instanceof Dict || values instanceof Undefined || itemsOf(values));
  let used = 0;
  const next = (): Value => {
    const value = args[used++];
    if (value === undefined) throw typeError("not enough arguments for format string");
    return value;
  };
  const text = format.replace(FIELD, (_, name, flags, width, precision, type = "") => {
    if (type === "%") return "%";
    const size = (given: string | undefined) =>
      given === undefined ? undefined : given === "*" ? integer(next()) : Number(given);
    const spec = specOf(flags, size(width) ?? 0, size(precision), type);
    return field(name === undefined ? next() : named(values, name), spec);
  });
  if (used < args.length && isUsed) {
    throw typeError("not all arguments converted during string formatting");
  }
  return text;
}

function named(values: Value, name: string): Value {
  if (!(values instanceof Dict)) throw typeError("format requires a mapping");
  const value = values.get(name);
  if (value === undefined) throw new PythonError("KeyError", repr(name));
  return value;
}

function specOf(
  flags: string,
  width: number,
  precision: number | undefined,
  type: string,
): FormatSpec {
  const isLeft = flags.includes("-") || width < 0;
  const isZero = flags.includes("0") && !isLeft && !/[sra]/.test(type);
  return {
    fill: isZero ? "0" : " ",
    align: isLeft ? "<" : isZero ? "=" : ">",
    sign: flags.includes("+") ? "+" : flags.includes(" ") ? " " : "-",
    isAlternate: flags.includes("#"),
    width: Math.abs(width),
    grouping: "",
    precision,
    type,
  };
}

function field(value: Value, spec: FormatSpec): string {
  const { type, precision } = spec;
  switch (type) {
    case "s":
      return padText(str(value), spec);
    case "r":
      return padText(repr(value), spec);
    case "c":
      return padText(character(value), { ...spec, precision: undefined });
    case "d":
    case "i":
    case "u":
    case "o":
    case "x":
    case "X": {
      const whole = wholeNumber(value, type);
      if (precision === undefined) return formatInteger(whole, spec);
      const digits = {
        ...spec,
        fill: "0",
        align: "=" as const,
        width: precision + Number(whole < 0n),
      };
      return pad(
        formatInteger(whole, digits),
        spec.fill === "0" ? { ...spec, fill: " " } : spec,
        ">",
      );
    }
    case "e":
    case "E":
    case "f":
    case "F":
    case "g":
    case "G":
      if (value instanceof Undefined) value.fail();
      if (!isNumber(value)) throw typeError(`must be real number, not ${typeName(value)}`);
      return formatFloat(Number(numeric(value)), spec);
  }
  if (type === "") throw new PythonError("ValueError", "incomplete format");
  throw new PythonError("ValueError", `unsupported format character '${type}'`);
}

function padText(text: string, spec: FormatSpec): string {
  const { precision } = spec;
  return pad(precision === undefined ? text : [...text].slice(0, precision).join(""), spec, "<");
}

function wholeNumber(value: Value, type: string): bigint {
  if (value instanceof Undefined) value.fail();
  if (typeof value === "number" && /[diu]/.test(type)) return BigInt(Math.trunc(value));
  if (typeof value === "bigint" || typeof value === "boolean") return BigInt(value);
  const wanted = /[diu]/.test(type) ? "a real number" : "an integer";
  throw typeError(`%${type} format: ${wanted} is required, not ${typeName(value)}`);
}

function character(value: Value): string {
  if (typeof value === "bigint" || typeof value === "boolean") {
    return String.fromCodePoint(Number(value));
  }
  if (isText(value) && [...plain(value)].length === 1) return plain(value);
  throw typeError("%c requires int or char");
}
