/** `text.format(...)` of Python. */
import { formatFloat, formatInteger, type FormatSpec, pad } from "./number_format.ts";
import { repr, str } from "./text.ts";
import {
  isNumber,
  isText,
  type Keywords,
  numeric,
  plain,
  PythonError,
  typeError,
  typeName,
  type Value,
} from "./values.ts";

/** Reads an attribute or an item of a value. */
export interface Access {
  attribute(value: Value, name: string): Value;
  item(value: Value, key: Value): Value;
}

/** Arguments of one call, with how far the automatic numbering has come. */
interface Arguments {
  readonly args: readonly Value[];
  readonly keywords: Keywords;
  readonly access: Access;
  next: number;
}

/** A text with its fields replaced by arguments. */
export function formatBraces(
  format: string,
  args: readonly Value[],
  keywords: Keywords,
  access: Access,
): string {
  return replaceFields(format, { args, keywords, access, next: 0 }, 2);
}

function replaceFields(format: string, given: Arguments, depth: number): string {
  if (depth < 0) throw valueError("Max string recursion exceeded");
  let text = "", at = 0;
  while (at < format.length) {
    const character = format[at]!;
    if (character !== "{" && character !== "}") {
      text += character;
      at++;
    } else if (format[at + 1] === character) {
      text += character;
      at += 2;
    } else {
      if (character === "}") throw valueError("Single '}' encountered in format string");
      const end = fieldEnd(format, at);
      text += replaceField(format.slice(at + 1, end), given, depth);
      at = end + 1;
    }
  }
  return text;
}

function valueError(message: string): PythonError {
  return new PythonError("ValueError", message);
}

function fieldEnd(format: string, begin: number): number {
  let depth = 0;
  for (let at = begin; at < format.length; at++) {
    if (format[at] === "{") depth++;
    else if (format[at] === "}" && --depth === 0) return at;
  }
  throw valueError("expected '}' before end of string");
}

function replaceField(field: string, given: Arguments, depth: number): string {
  const [, name = "", conversion, spec = ""] = /^([^:!]*)(?:!([^:]*))?(?::([^]*))?$/.exec(field) ??
    [];
  const value = lookUp(name, given);
  const converted = convert(value, conversion);
  return formatValue(converted, replaceFields(spec, given, depth - 1));
}

function lookUp(name: string, given: Arguments): Value {
  const [, first = "", rest = ""] = /^([^.[]*)([^]*)$/.exec(name)!;
  let value = argument(first, given);
  for (const [, attribute, item] of rest.matchAll(/\.([^.[]+)|\[([^\]]+)\]/g)) {
    value = attribute !== undefined
      ? given.access.attribute(value, attribute)
      : given.access.item(value, /^\d+$/.test(item!) ? BigInt(item!) : item!);
  }
  return value;
}

function argument(name: string, given: Arguments): Value {
  const position = name === "" ? given.next++ : /^\d+$/.test(name) ? Number(name) : undefined;
  const value = position === undefined ? given.keywords.get(name) : given.args[position];
  if (value !== undefined) return value;
  if (position === undefined) throw new PythonError("KeyError", repr(name));
  throw new PythonError("IndexError", "Replacement index out of range for positional args tuple");
}

function convert(value: Value, conversion: string | undefined): Value {
  if (conversion === undefined) return value;
  if (conversion === "s") return str(value);
  if (conversion === "r") return repr(value);
  throw valueError(`the conversion '!${conversion}' is not supported`);
}

const SPEC = /^(?:([^]?)([<>=^]))?([-+ ])?(#)?(0)?(\d*)([,_])?(?:\.(\d+))?([a-zA-Z%])?$/u;

/** Python's `format(value, spec)`. */
function formatValue(value: Value, spec: string): string {
  if (spec === "") return str(value);
  if (!isText(value) && !isNumber(value)) {
    throw typeError(`unsupported format string passed to ${typeName(value)}.__format__`);
  }
  const match = SPEC.exec(spec);
  if (!match) throw valueError(`Invalid format specifier '${spec}'`);
  const [, fill, align, sign, alternate, zero, width, grouping, precision, type = ""] = match;
  const parsed: FormatSpec = {
    fill: fill || (zero ? "0" : " "),
    align: (align as FormatSpec["align"]) ?? (zero && !isText(value) ? "=" : undefined),
    sign: (sign as FormatSpec["sign"]) ?? "-",
    isAlternate: alternate !== undefined,
    width: Number(width),
    grouping: (grouping as FormatSpec["grouping"]) ?? "",
    precision: precision === undefined ? undefined : Number(precision),
    type,
  };
  if (isText(value) && sign) throw valueError("Sign not allowed in string format specifier");
  if (isText(value)) return formatText(plain(value), parsed);
  return formatNumber(numeric(value), parsed);
}

function formatText(text: string, spec: FormatSpec): string {
  if (!["", "s"].includes(spec.type) || spec.align === "=" || spec.grouping) {
    throw valueError(`Unknown format code '${spec.type}' for object of type 'str'`);
  }
  const { precision } = spec;
  return pad(precision === undefined ? text : [...text].slice(0, precision).join(""), spec, "<");
}

function formatNumber(value: bigint | number, spec: FormatSpec): string {
  const { type, precision } = spec;
  if (/^[eEfFgG%]$/.test(type)) return formatFloat(Number(value), spec);
  if (typeof value === "bigint") {
    if (precision !== undefined) {
      throw valueError("Precision not allowed in integer format specifier");
    }
    if (/^[bdoxX]?$/.test(type)) return formatInteger(value, spec);
    if (type === "c") return pad(String.fromCodePoint(Number(value)), spec, "<");
  } else if (type === "") return formatFloat(value, spec);
  throw valueError(`the format '${type}' of a number is not supported`);
}
