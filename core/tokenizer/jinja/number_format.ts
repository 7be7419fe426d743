/** Numbers in the formats of Python's `%` and `format`. */
import { exponentText, fixed, generalText, pointedText } from "./digits.ts";
import { spendText } from "./meter.ts";
import { floatText } from "./text.ts";
import { codePoints } from "./values.ts";

/** Layout of a number or text. */
export interface FormatSpec {
  readonly fill: string;
  /** Undefined: on the left for texts, on the right for numbers. */
  readonly align: "<" | ">" | "^" | "=" | undefined;
  readonly sign: "-" | "+" | " ";
  readonly isAlternate: boolean;
  readonly width: number;
  readonly grouping: "" | "," | "_";
  readonly precision: number | undefined;
  /** Letter of the format; empty where none is given. */
  readonly type: string;
}

/** An integer by a format such as `d` or `x`. */
export function formatInteger(value: bigint, spec: FormatSpec): string {
  const radix = ({ b: 2, o: 8, x: 16, X: 16 } as Record<string, number>)[spec.type] ?? 10;
  const digits = (value < 0n ? -value : value).toString(radix);
  const prefix = spec.isAlternate && radix !== 10 ? `0${spec.type}` : "";
  const body = grouped(
    spec.type === "X" ? digits.toUpperCase() : digits,
    spec,
    radix === 10 ? 3 : 4,
  );
  return padNumber(signOf(value < 0n, spec) + prefix, body, spec);
}

/** A float by a format such as `f` or `g`. */
export function formatFloat(value: number, spec: FormatSpec): string {
  const sign = signOf(value < 0 || Object.is(value, -0), spec);
  const body = floatBody(value, spec);
  const isUpper = /[EFG]/.test(spec.type);
  return padNumber(sign, isUpper ? body.toUpperCase() : body, spec);
}

function floatBody(value: number, spec: FormatSpec): string {
  const { type, precision = 6, isAlternate } = spec;
  const end = type === "%" ? "%" : "";
  if (Number.isNaN(value)) return `nan${end}`;
  if (!Number.isFinite(value)) return `inf${end}`;
  switch (type.toLowerCase()) {
    case "":
      return groupedFloat(
        spec.precision === undefined
          ? floatText(Math.abs(value))
          : pointedText(value, spec.precision),
        spec,
      );
    case "e":
      return exponentText(value, precision, isAlternate);
    case "g":
      return groupedFloat(generalText(value, precision, isAlternate), spec);
  }
  const text = fixed(type === "%" ? value * 100 : value, precision);
  return groupedFloat(isAlternate && precision === 0 ? `${text}.` : text, spec) + end;
}

function groupedFloat(text: string, spec: FormatSpec): string {
  const end = text.search(/[.e]|$/);
  return grouped(text.slice(0, end), spec, 3) + text.slice(end);
}

function grouped(digits: string, { grouping }: FormatSpec, size: number): string {
  if (!grouping) return digits;
  const first = digits.length % size || size, groups = [digits.slice(0, first)];
  for (let at = first; at < digits.length; at += size) groups.push(digits.slice(at, at + size));
  return groups.join(grouping);
}

function signOf(isNegative: boolean, { sign }: FormatSpec): string {
  return isNegative ? "-" : sign === "-" ? "" : sign;
}

function padNumber(sign: string, body: string, spec: FormatSpec): string {
  if (spec.align !== "=") return pad(sign + body, spec, ">");
  if (spec.grouping && spec.fill === "0" && sign.length + body.length < spec.width) {
    throw new Error("a format with zeros and groups of digits is not supported");
  }
  return sign + pad(body, { ...spec, width: spec.width - sign.length, align: ">" }, ">");
}

/** A text in a field of a width, in code points. */
export function pad(
  text: string,
  { fill, align, width }: Pick<FormatSpec, "fill" | "align" | "width">,
  usual: "<" | ">",
): string {
  const missing = width - codePoints(text);
  if (missing <= 0) return text;
  spendText(width * fill.length);
  const side = align ?? usual;
  const before = side === ">" ? missing : side === "^" ? Math.floor(missing / 2) : 0;
  return fill.repeat(before) + text + fill.repeat(missing - before);
}

/** Python's `str.center`, which puts the odd character to the left where the width is odd. */
export function center(text: string, width: number, fill: string): string {
  const missing = width - codePoints(text);
  if (missing <= 0) return text;
  spendText(width * fill.length);
  const before = Math.floor(missing / 2) + (missing & width & 1);
  return fill.repeat(before) + text + fill.repeat(missing - before);
}
