/**
 * From text to typed value and back.
 *
 * `readValue` takes what a flag, a variable or a configuration supplied and returns the value or
 * throws `BadValue`, which says what the value must be; the caller knows where it came from.
 * Suffixes shift the decimal exponent rather than multiply, so `1.005k` is exactly 1005.
 */
import { type ConfigValue, type Flag, isList, type Range } from "./table.ts";

/** A value that does not fit its flag. */
export class BadValue extends Error {
  /** The value as it was given, and what `describeExpected` says of the flag. */
  constructor(readonly given: string, readonly expected: string) {
    super(`${given} is not ${expected}`);
  }
}

const NUMBER = /^([+-]?)(\d+\.?\d*|\.\d+)(?:[eE]([+-]?\d+))?([a-zA-Z]*)$/;
const COUNT_EXPONENTS: Readonly<Record<string, number>> = { "": 0, k: 3, M: 6, B: 9, T: 12 };
const BYTES: Readonly<Record<string, number>> = {
  TiB: 2 ** 40,
  TB: 1e12,
  GiB: 2 ** 30,
  GB: 1e9,
  MiB: 2 ** 20,
  MB: 1e6,
  KiB: 2 ** 10,
  kB: 1e3,
  KB: 1e3, // as Hugging Face writes it
  B: 1,
};
const SECONDS: Readonly<Record<string, number>> = { d: 86400, h: 3600, m: 60, s: 1, ms: 1e-3 };
const INT_RANGE = /^([^.]+)\.\.([^.*]+)(?:\*(.+))?$/;
/** A longer range is a slip of the finger, and would fill memory. */
const MAX_RANGE_LENGTH = 1_000_000;

/** Reads `512`, `1e-4`, `4k`, `1.5M`, `20B`, `3T`; undefined when the text is none of these. */
export function parseNumber(text: string): number | undefined {
  const [, sign, mantissa, exponent = "0", suffix = ""] = NUMBER.exec(text) ?? [];
  const shift = Object.hasOwn(COUNT_EXPONENTS, suffix) ? COUNT_EXPONENTS[suffix] : undefined;
  if (mantissa === undefined || shift === undefined) return undefined;
  const value = Number(`${sign}${mantissa}e${Number(exponent) + shift}`);
  return Number.isFinite(value) ? value : undefined;
}

function parseWithUnit(
  text: string,
  units: Readonly<Record<string, number>>,
  bare: string,
): number | undefined {
  const [, number, unit = ""] = /^([+-]?[\d.]+(?:[eE][+-]?\d+)?)([a-zA-Z]*)$/.exec(text) ?? [];
  const name = unit === "" ? bare : unit;
  const value = number === undefined ? undefined : parseNumber(number);
  return value === undefined || !Object.hasOwn(units, name) ? undefined : value * units[name]!;
}

/** Reads `8GiB`, `500MB`, `1024` into whole bytes. */
export function parseSize(text: string): number | undefined {
  const bytes = parseWithUnit(text, BYTES, "B");
  return bytes === undefined ? undefined : Math.round(bytes);
}

/** Reads `30s`, `5m`, `250ms`, `90` into seconds. */
export function parseDuration(text: string): number | undefined {
  return parseWithUnit(text, SECONDS, "s");
}

/** Reads `4`, `1..8` or, multiplying, `1..8*2` → 1, 2, 4, 8; undefined when it is none of these. */
export function parseIntRange(text: string): number[] | undefined {
  const match = INT_RANGE.exec(text);
  if (match === null) {
    const value = parseNumber(text);
    return value !== undefined && Number.isSafeInteger(value) ? [value] : undefined;
  }
  const [first, last, factor] = match.slice(1).map((part) =>
    part === undefined ? undefined : parseNumber(part)
  );
  const bounded = Number.isSafeInteger(first) && Number.isSafeInteger(last) && first! <= last!;
  const multiplies = match[3] !== undefined;
  if (!bounded || (multiplies && !(Number.isSafeInteger(factor) && factor! > 1 && first! > 0))) {
    return undefined;
  }
  const values: number[] = [];
  for (let value = first!; value <= last!; value = multiplies ? value * factor! : value + 1) {
    if (values.push(value) > MAX_RANGE_LENGTH) return undefined;
  }
  return values;
}

/** Reads `5%` or `0.05` into a fraction. */
function parseShare(text: string): number | undefined {
  const percent = text.endsWith("%");
  const value = parseNumber(percent ? text.slice(0, -1) : text);
  return value === undefined || !percent ? value : value / 100;
}

function formatSize(bytes: number): string {
  for (const unit of ["TiB", "GiB", "MiB", "KiB", "TB", "GB", "MB", "kB"]) {
    if (bytes >= BYTES[unit]! && bytes % BYTES[unit]! === 0) {
      return `${bytes / BYTES[unit]!}${unit}`;
    }
  }
  return `${bytes}B`;
}

/** The text a user would type for a value; inverse of `readValue`. */
export function formatValue(flag: Flag, value: ConfigValue): string {
  if (Array.isArray(value)) return value.map((item) => formatValue(flag, item)).join(",");
  if (flag.type === "size" && typeof value === "number") return formatSize(value);
  if (flag.type === "duration" && typeof value === "number") return `${value}s`;
  if (flag.type === "share" && typeof value === "number") {
    return `${Number((value * 100).toPrecision(15))}%`;
  }
  return String(value);
}

/** "at least 1", "from 1 to 8", "above 0 and at most 1"; empty when everything is allowed. */
export function describeRange(flag: Flag & Range): string {
  const show = (bound: number) => formatValue(flag, bound);
  const { min, above, below } = flag;
  const max = flag.max === Number.MAX_SAFE_INTEGER ? undefined : flag.max;
  if (min !== undefined && max !== undefined) return `from ${show(min)} to ${show(max)}`;
  const parts: string[] = [];
  if (min !== undefined) parts.push(`at least ${show(min)}`);
  if (above !== undefined) parts.push(`above ${show(above)}`);
  if (max !== undefined) parts.push(`at most ${show(max)}`);
  if (below !== undefined) parts.push(`below ${show(below)}`);
  return parts.join(" and ");
}

/** Returns what a flag accepts, as it follows "must be". */
export function describeExpected(flag: Flag): string {
  switch (flag.type) {
    case "string":
      return "text";
    case "path":
    case "output":
      return "a path";
    case "choice":
      return flag.choices.length === 1 ? flag.choices[0]! : `one of ${flag.choices.join(", ")}`;
    case "switch":
    case "shorthand":
      return "true or false";
    case "count":
      return `a count from 0 to ${flag.max}`;
    default: {
      const kind = {
        int: isList(flag) ? "integers or ranges such as 1..8" : "an integer",
        number: isList(flag) ? "numbers" : "a number",
        size: "a size such as 8GiB",
        duration: "a duration such as 30s or 5m",
        share: "a share such as 5%",
      }[flag.type];
      const range = describeRange(flag);
      if (range === "") return kind;
      return range.startsWith("at ") ? `${kind} of ${range}` : `${kind} ${range}`;
    }
  }
}

function inRange(value: number, { min, max, above, below }: Range): boolean {
  return !(value < (min ?? -Infinity)) && !(value > (max ?? Infinity)) &&
    !(value <= (above ?? -Infinity)) && !(value >= (below ?? Infinity));
}

/** Reads one text; several values come out of an `int` range. */
function readText(flag: Flag, text: string): (string | number | boolean)[] {
  switch (flag.type) {
    case "string":
    case "path":
    case "output":
      return text === "" ? [] : [text];
    case "choice":
      return flag.choices.includes(text) ? [text] : [];
    case "switch":
    case "shorthand":
      return /^(true|1)$/.test(text) ? [true] : /^(false|0)$/.test(text) ? [false] : [];
    case "count": {
      const count = text === "true" ? 1 : text === "false" ? 0 : parseNumber(text) ?? -1;
      return Number.isInteger(count) && count >= 0 && count <= flag.max ? [count] : [];
    }
    case "int": {
      const values = parseIntRange(text) ?? [];
      if (!isList(flag) && values.length > 1) return [];
      return values.every((value) => inRange(value, flag)) ? values : [];
    }
    default: {
      const parse =
        { number: parseNumber, size: parseSize, duration: parseDuration, share: parseShare }[
          flag.type
        ];
      const value = parse(text);
      return value !== undefined && inRange(value, flag) ? [value] : [];
    }
  }
}

/** Numbers of a configuration are taken as they are, so that `1e21` survives a round trip. */
function readItem(flag: Flag, item: unknown): (string | number | boolean)[] {
  if (typeof item === "string") {
    const texts = "list" in flag && flag.list === "comma" ? item.split(",") : [item];
    return texts.flatMap((text) => {
      const values = readText(flag, text);
      if (values.length === 0) throw new BadValue(JSON.stringify(text), describeExpected(flag));
      return values;
    });
  }
  const whole = flag.type === "int" || flag.type === "size";
  const numeric = whole || flag.type === "number" || flag.type === "duration" ||
    flag.type === "share";
  if (typeof item === "number" && numeric) {
    const isNumber = whole ? Number.isSafeInteger(item) : Number.isFinite(item);
    if (isNumber && inRange(item, flag)) return [item];
  } else if (typeof item === "number" && flag.type === "count") {
    const values = readText(flag, String(item));
    if (values.length > 0) return values;
  } else if (typeof item === "boolean" && (flag.type === "switch" || flag.type === "shorthand")) {
    return [item];
  }
  // JSON writes null for NaN and infinity, which YAML has.
  const shown = typeof item === "number" ? String(item) : JSON.stringify(item);
  throw new BadValue(shown, describeExpected(flag));
}

/** Reads what one source supplied for a flag: a text, a JSON value or, for lists, several. */
export function readValue(flag: Flag, raw: unknown): Exclude<ConfigValue, null> {
  if (!isList(flag)) {
    if (Array.isArray(raw)) throw new BadValue(JSON.stringify(raw), describeExpected(flag));
    return readItem(flag, raw)[0]!;
  }
  const values = (Array.isArray(raw) ? raw : [raw]).flatMap((item) => readItem(flag, item));
  return values as (string | number)[];
}
