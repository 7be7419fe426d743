/** JSON as Python's `json.dumps` writes it. */
import { spend, spendText } from "./meter.ts";
import { floatText } from "./text.ts";
import {
  Dict,
  itemsOf,
  less,
  Markup,
  PythonError,
  Range,
  typeError,
  typeName,
  type Value,
} from "./values.ts";

/** Layout of the text. */
export interface JsonLayout {
  /** Writes characters outside ASCII as escapes. */
  readonly ascii: boolean;
  /** Text of one level of indentation; undefined writes one line. */
  readonly indent: string | undefined;
  /** Text between items, and between key and value. */
  readonly separators: readonly [item: string, key: string];
  readonly sortsKeys: boolean;
}

/** A value as JSON. @throws {PythonError} for what JSON has no form of */
export function toJson(value: Value, layout: JsonLayout): string {
  return write(value, layout, "\n");
}

/** `line` is a line feed with the indentation of the level. */
function write(value: Value, layout: JsonLayout, line: string): string {
  spend(1);
  switch (typeof value) {
    case "string":
      return jsonText(value, layout.ascii);
    case "bigint":
    case "boolean":
      return String(value);
    case "number":
      return jsonFloat(value);
  }
  if (value === null) return "null";
  if (value instanceof Markup) return jsonText(value.text, layout.ascii);
  const inner = layout.indent === undefined ? line : line + layout.indent;
  if (value instanceof Dict) {
    const texts = entriesOf(value, layout).map(([key, item]) =>
      jsonText(keyText(key), layout.ascii) + layout.separators[1] + write(item, layout, inner)
    );
    return enclose("{", texts, "}", layout, line);
  }
  const items = value instanceof Range ? undefined : itemsOf(value); // a range has no JSON
  if (!items) throw typeError(`Object of type ${typeName(value)} is not JSON serializable`);
  return enclose("[", items.map((item) => write(item, layout, inner)), "]", layout, line);
}

function enclose(
  open: string,
  texts: readonly string[],
  close: string,
  { indent, separators: [comma] }: JsonLayout,
  line: string,
): string {
  if (texts.length === 0) return open + close;
  const [first, between, last] = indent === undefined
    ? ["", comma, ""]
    : [line + indent, comma + line + indent, line];
  const length = texts.reduce((sum, text) => sum + text.length + between.length, first.length);
  spendText(length);
  return open + first + texts.join(between) + last + close;
}

function entriesOf(dict: Dict, { sortsKeys }: JsonLayout) {
  const entries = dict.entries();
  if (!sortsKeys) return entries;
  return entries.toSorted(([a], [b]) =>
    less(a, b, false, "<") ? -1 : Number(less(b, a, false, "<"))
  );
}

function keyText(key: Value): string {
  switch (typeof key) {
    case "string":
      return key;
    case "bigint":
    case "boolean":
      return String(key);
    case "number":
      return jsonFloat(key);
  }
  if (key === null) return "null";
  if (key instanceof Markup) return key.text;
  throw new PythonError(
    "TypeError",
    `keys must be str, int, float, bool or None, not ${typeName(key)}`,
  );
}

function jsonFloat(value: number): string {
  if (Number.isFinite(value)) return floatText(value);
  return Number.isNaN(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity";
}

const SHORT: Readonly<Record<string, string>> = {
  '"': '\\"',
  "\\": "\\\\",
  "\n": "\\n",
  "\r": "\\r",
  "\t": "\\t",
  "\f": "\\f",
  "\b": "\\b",
};

// deno-lint-ignore no-control-regex
const CONTROL = /["\\\x00-\x1f]/g, OUTSIDE_ASCII = /["\\]|[^ -~]/g;

function jsonText(text: string, ascii: boolean): string {
  spendText(text.length);
  const escaped = text.replace(
    ascii ? OUTSIDE_ASCII : CONTROL,
    (unit) => SHORT[unit] ?? `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
  return `"${escaped}"`;
}
