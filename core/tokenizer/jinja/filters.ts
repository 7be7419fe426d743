/** Filters of Jinja on one value: texts, numbers, and what makes text of them. */
import { SPACE } from "../../base/rstrip.ts";
import { escapeHtml } from "./html.ts";
import { capitalize } from "./letter_case.ts";
import { spend } from "./meter.ts";
import { ownAttribute } from "./methods.ts";
import { center } from "./number_format.ts";
import { round, toFloat, toInteger } from "./numbers.ts";
import { formatPercent } from "./percent_format.ts";
import { type Signature, signature } from "./signature.ts";
import { str } from "./text.ts";
import { join, LINE_END, optionalText, replace, strip, textOf } from "./text_methods.ts";
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

const WORD_BEGIN = new RegExp(`([\\-\\(\\{\\[<${SPACE}]+)`, "u");

/** Jinja's own title case: words begin after blanks, hyphens and opening brackets. */
function titleWords(text: string): string {
  return text.split(WORD_BEGIN)
    .map((word) => {
      const [first = ""] = word;
      return first.toUpperCase() + word.slice(first.length).toLowerCase();
    }).join("");
}

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
  const parsed = numberOr((value) => toInteger(value, integer(base)), value);
  return parsed ?? numberOr((value) => toInteger(toFloat(value)), value) ?? initial;
}

function toFloatOr(value: Value, initial: Value = 0): Value {
  if (value instanceof Undefined) value.fail();
  return numberOr(toFloat, value) ?? initial;
}

function rounded(value: Value, precision: Value = 0n, method: Value = "common"): Value {
  if (value instanceof Undefined) value.fail();
  if (!isNumber(value)) throw typeError(`type ${typeName(value)} doesn't define __round__ method`);
  const number = numeric(value), places = integer(precision);
  if (method === "common") return round(number, places);
  if (method !== "ceil" && method !== "floor") {
    throw new PythonError("FilterArgumentError", "method must be common, ceil or floor");
  }
  const scale = 10 ** places;
  return Math[method](Number(number) * scale) / scale;
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

function truncated(
  value: Value,
  length: Value = 255n,
  killsWords: Value = false,
  end: Value = "...",
  leeway: Value = 5n,
): Value {
  const most = integer(length), tail = textOf(end);
  if (lengthOf(value) <= most + (leeway === null ? 5 : integer(leeway))) return value;
  const head = (iterate(textOf(value)) as string[]).slice(0, most - lengthOf(tail)).join("");
  if (truth(killsWords)) return head + tail;
  const blank = head.lastIndexOf(" ");
  return (blank < 0 ? head : head.slice(0, blank)) + tail;
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

/** A text as a part of an address; pairs become a query. */
function urlEncoded(value: Value): Value {
  const isOne = isText(value) || isNumber(value) || value === null;
  if (isOne) return urlQuoted(value).replaceAll("%2F", "/");
  const pairs = value instanceof Dict ? value.entries() : iterate(value).map(iterate);
  const quoted = pairs.map((pair) => {
    if (pair.length !== 2) throw new PythonError("ValueError", "a query is of pairs");
    return pair.map((part) => urlQuoted(part!).replaceAll("%20", "+")).join("=");
  });
  return join("&", quoted);
}

function urlQuoted(value: Value): string {
  const text = encodeURIComponent(str(value));
  return text.replace(/[!'()*]/g, (mark) => `%${mark.charCodeAt(0).toString(16).toUpperCase()}`);
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

const escaped = onTextMarkup(escapeHtml);

function onTextMarkup(run: (text: string) => string) {
  return signature(
    "",
    (value: Value) => value instanceof Markup ? value : new Markup(run(str(value))),
  );
}

const count = signature("", (value: Value) => BigInt(lengthOf(value)));

/** Filters by name. */
export const VALUE_FILTERS: Readonly<Record<string, Signature<Value>>> = {
  abs: signature("", magnitude),
  attr: signature("name", (value: Value, name: Value) => ownAttribute(value, str(name))),
  capitalize: onText(capitalize),
  center: signature(
    "width=",
    (value: Value, width: Value = 80n) => center(str(value), integer(width), " "),
  ),
  count,
  d: initial,
  default: initial,
  e: escaped,
  escape: escaped,
  float: signature("default=", toFloatOr),
  forceescape: signature("", (value: Value) => new Markup(escapeHtml(str(value)))),
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
  round: signature("precision= method=", rounded),
  safe: onTextMarkup((text) => text),
  string: signature("", (value: Value) => value instanceof Markup ? value : str(value)),
  title: onText(titleWords),
  tojson: signature("ensure_ascii= indent= separators= sort_keys=", json),
  trim: signature(
    "chars=",
    (value: Value, chars: Given) => strip(str(value), optionalText(chars), "both"),
  ),
  truncate: signature("length= killwords= end= leeway=", truncated),
  upper: onText((text) => text.toUpperCase()),
  urlencode: signature("", urlEncoded),
  wordcount: signature("", (value: Value) => {
    const text = str(value);
    spend(text.length / 8);
    return BigInt(text.match(/[\p{L}\p{N}_]+/gu)?.length ?? 0);
  }),
};

/** The filter `format`, whose arguments are those of `%`. */
export function formatFilter(
  value: Value,
  args: readonly Value[],
  keywords: ReadonlyMap<string, Value>,
): Value {
  if (args.length > 0 && keywords.size > 0) {
    throw typeError("can't handle positional and keyword arguments");
  }
  return formatPercent(str(value), keywords.size > 0 ? new Dict(keywords) : new Tuple(args));
}
