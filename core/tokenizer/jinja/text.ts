/** Python's `str()` and `repr()` of values, and the digits of its numbers. */
import { spend, spendText } from "./meter.ts";
import {
  Callable,
  Dict,
  Generator,
  Markup,
  Namespace,
  PythonError,
  Range,
  Tuple,
  typeName,
  Undefined,
  type Value,
  View,
} from "./values.ts";

/** Python's `str()`, which is what a template prints. */
export function str(value: Value): string {
  if (typeof value === "string") return value;
  if (value instanceof Markup) return value.text;
  if (value instanceof Undefined) return "";
  return repr(value);
}

/** Python's `repr()`. @throws {PythonError} where it would have an address of memory */
export function repr(value: Value): string {
  spend(1);
  switch (typeof value) {
    case "string":
      return quoted(value);
    case "bigint":
      return String(value);
    case "number":
      return floatText(value);
    case "boolean":
      return value ? "True" : "False";
  }
  if (value === null) return "None";
  if (Array.isArray(value)) return `[${joined(value)}]`;
  if (value instanceof Range) {
    const { start, stop, step } = value;
    return `range(${start}, ${stop}${step === 1 ? "" : `, ${step}`})`;
  }
  if (value instanceof Tuple) {
    return `(${joined(value.items)}${value.items.length === 1 ? "," : ""})`;
  }
  if (value instanceof Dict) return dictText(value.entries());
  if (value instanceof Undefined) return "Undefined";
  if (value instanceof Markup) return `Markup(${quoted(value.text)})`;
  if (value instanceof Namespace) return `<Namespace ${dictText([...value.fields])}>`;
  if (value instanceof View) return `${value.kind}([${joined(value.items)}])`;
  const what = value instanceof Generator ? "generator" : typeName(value);
  const name = value instanceof Callable ? ` ${value.name}` : "";
  throw new PythonError("TypeError", `a ${what}${name} has no text that is the same every time`);
}

function joined(items: readonly Value[]): string {
  return lengthChecked(items.map(repr).join(", "));
}

function dictText(entries: readonly (readonly [Value, Value])[]): string {
  const texts = entries.map(([key, value]) => `${repr(key)}: ${repr(value)}`);
  return lengthChecked(`{${texts.join(", ")}}`);
}

function lengthChecked(text: string): string {
  spendText(text.length);
  return text;
}

const ESCAPES: Readonly<Record<string, string>> = {
  "\\": "\\\\",
  "\n": "\\n",
  "\r": "\\r",
  "\t": "\\t",
};

/** Characters that `repr` writes as escapes: all but the blank that are not printed, and backslashes. */
const UNPRINTED = /[\p{C}\p{Zl}\p{Zp}\\]|(?! )\p{Zs}/gu;

function quoted(text: string): string {
  spendText(text.length);
  const quote = text.includes("'") && !text.includes('"') ? '"' : "'";
  const escaped = text.replace(UNPRINTED, escape);
  return quote + (quote === "'" ? escaped.replaceAll("'", "\\'") : escaped) + quote;
}

function escape(character: string): string {
  const known = ESCAPES[character];
  if (known) return known;
  const code = character.codePointAt(0)!, digits = code.toString(16);
  if (code < 0x100) return `\\x${digits.padStart(2, "0")}`;
  return code < 0x10000 ? `\\u${digits.padStart(4, "0")}` : `\\U${digits.padStart(8, "0")}`;
}

/** The shortest digits that read back as the same number, as Python and JavaScript have them. */
export function floatText(value: number): string {
  if (Number.isNaN(value)) return "nan";
  if (!Number.isFinite(value)) return value > 0 ? "inf" : "-inf";
  if (value === 0) return Object.is(value, -0) ? "-0.0" : "0.0";
  const [digits = "", power = ""] = value.toExponential().split("e");
  const exponent = Number(power);
  if (exponent < -4 || exponent >= 16) {
    return `${digits}e${exponent < 0 ? "-" : "+"}${String(Math.abs(exponent)).padStart(2, "0")}`;
  }
  const text = String(value); // no exponent: −6 to 20 have none in JavaScript
  return text.includes(".") ? text : `${text}.0`;
}
