/** Filters of Jinja on one value: texts, numbers, and what makes text of them. */
import { capitalize, strip } from "../../base/python_text.ts";
import { toFloat, toInteger } from "./numbers.ts";
import { type Signature, signature } from "./signature.ts";
import { str } from "./text.ts";
import { join, LINE_END, optionalText, replace, textOf } from "./text_methods.ts";
import { toJson } from "./tojson.ts";
import {
  Dict,
  integer,
  isNumber,
  isText,
  iterate,
  lengthOf,
  Markup,
  numeric,
  PythonError,
  truth,
  Tuple,
  typeError,
  typeName,
  Undefined,
  type Value,
} from "./values.ts";

type Given = Value | undefined;

/** A filter on the text of a value. Escaped text stays escaped where Python's method keeps it. */
const onText = (run: (text: string) => string) =>
  signature(
    "",
    (value: Value) => value instanceof Markup ? new Markup(run(value.text)) : run(str(value)),
  );

/** The number that a conversion makes, or undefined where Python's filters take their default. */
function numberOr(convert: (value: Value) => Value, value: Value): Value | undefined {
  try {
    return convert(value);
  } catch (error) {
    const isRefused = error instanceof PythonError &&
      /^(Type|Value|Overflow)Error$/.test(error.name);
    if (isRefused) return undefined;
    throw error;
  }
}

function toIntegerOr(value: Value, initial: Value = 0n, base: Value = 10n): Value {
  if (base !== 10n) throw new Error("the filter 'int' with another base is not supported");
  return numberOr(toInteger, value) ?? numberOr((value) => toInteger(toFloat(value)), value) ??
    initial;
}

function toFloatOr(value: Value, initial: Value = 0): Value {
  if (value instanceof Undefined) value.fail();
  return numberOr(toFloat, value) ?? initial;
}

function magnitude(value: Value): Value {
  if (value instanceof Undefined) value.fail();
  if (!isNumber(value)) throw typeError(`bad operand type for abs(): '${typeName(value)}'`);
  const number = numeric(value);
  return typeof number === "bigint" ? (number < 0n ? -number : number) : Math.abs(number);
}

function indented(
  value: Value,
  width: Value = 4n,
  first: Value = false,
  blank: Value = false,
): Value {
  if (!isText(value)) throw typeError(`cannot indent '${typeName(value)}'`);
  const blanks = isText(width)
    ? str(width)
    : " ".repeat(Math.min(1 << 20, Math.max(0, integer(width))));
  const lines = `${str(value)}\n`.split(LINE_END);
  lines.pop();
  const later = truth(blank)
    ? lines.slice(1).map((line) => blanks + line)
    : lines.slice(1).map((line) => line === "" ? line : blanks + line);
  const [head = ""] = lines;
  return join("\n", [truth(first) ? blanks + head : head, ...later]);
}

function json(
  value: Value,
  ascii: Value = false,
  indent: Value = null,
  separators: Value = null,
  sortsKeys: Value = false,
): Value {
  const given = separators === null ? undefined : iterate(separators).map(textOf);
  if (given && given.length !== 2) throw new PythonError("ValueError", "separators are two texts");
  return toJson(value, {
    ascii: truth(ascii),
    indent: indent === null
      ? undefined
      : isText(indent)
      ? str(indent)
      : " ".repeat(Math.min(1 << 24, Math.max(0, integer(indent)))),
    separators: [given?.[0] ?? (indent === null ? ", " : ","), given?.[1] ?? ": "],
    sortsKeys: truth(sortsKeys),
  });
}

function itemPairs(value: Value): Value {
  if (value instanceof Undefined) return [];
  if (!(value instanceof Dict)) throw typeError("Can only get item pairs from a mapping.");
  return value.entries().map((entry) => new Tuple(entry));
}

const initial = signature(
  "default_value= boolean=",
  (value: Value, other: Value = "", isFalse: Value = false) =>
    value instanceof Undefined || truth(isFalse) && !truth(value) ? other : value,
);

const count = signature("", (value: Value) => BigInt(lengthOf(value)));

/** Filters by name. */
export const VALUE_FILTERS: Readonly<Record<string, Signature<Value>>> = {
  abs: signature("", magnitude),
  capitalize: onText(capitalize),
  count,
  d: initial,
  default: initial,
  float: signature("default=", toFloatOr),
  indent: signature("width= first= blank=", indented),
  int: signature("default= base=", toIntegerOr),
  items: signature("", itemPairs),
  length: count,
  lower: onText((text) => text.toLowerCase()),
  replace: signature(
    "old new count=",
    (value: Value, old: Value, by: Value, most: Given) =>
      replace(
        str(value),
        str(old),
        str(by),
        most === undefined || most === null ? -1 : integer(most),
      ),
  ),
  safe: signature("", (value: Value) => value instanceof Markup ? value : new Markup(str(value))),
  string: signature("", (value: Value) => value instanceof Markup ? value : str(value)),
  tojson: signature("ensure_ascii= indent= separators= sort_keys=", json),
  trim: signature("chars=", (value: Value, chars: Given) => strip(str(value), optionalText(chars))),
  upper: onText((text) => text.toUpperCase()),
};
