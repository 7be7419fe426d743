/** Filters of Jinja on sequences: sorting, grouping, choosing and applying others. */
import { spend, spendItems } from "./meter.ts";
import { item } from "./methods.ts";
import { binary } from "./operators.ts";
import { invoke, type Signature, signature } from "./signature.ts";
import { str } from "./text.ts";
import { join } from "./text_methods.ts";
import { VALUE_FILTERS } from "./filters.ts";
import { runTest } from "./tests.ts";
import {
  Dict,
  Generator,
  isText,
  iterate,
  type Keywords,
  less,
  Markup,
  plain,
  PythonError,
  spendValue,
  truth,
  Tuple,
  typeError,
  typeName,
  Undefined,
  type Value,
} from "./values.ts";

type Given = Value | undefined;
type Key = (value: Value) => Value;

/** Reads `a.b.0` of a value; a number is a place, and without a path the value itself is read. */
function reader(path: Given, initial?: Given): Key {
  if (path === undefined || path === null) return (value) => value;
  const parts = isText(path)
    ? plain(path).split(".").map((part): Value => /^\d+$/.test(part) ? BigInt(part) : part)
    : [path];
  return (value) => {
    let found = value;
    for (const part of parts) {
      found = item(found, part);
      if (initial !== undefined && initial !== null && found instanceof Undefined) found = initial;
    }
    return found;
  };
}

/** Reads values as filters compare them: texts in lower case unless case matters. */
function foldedReader(path: Given, isCaseSensitive: boolean, initial?: Given): Key {
  const read = reader(path, initial);
  return (value) => {
    const found = read(value);
    return isText(found) && !isCaseSensitive ? plain(found).toLowerCase() : found;
  };
}

/** Keys of `sort`, whose path may be several with commas between; equal ones are not compared further. */
function sortKey(path: Given, isCaseSensitive: boolean): Key {
  const paths = path !== undefined && isText(path) ? plain(path).split(",") : [path];
  const reads = paths.map((one) => foldedReader(one, isCaseSensitive));
  return (value) => new Tuple(reads.map((read) => read(value)));
}

/** A stable order by keys; reversed, equal ones keep their order too. */
function sorted(values: readonly Value[], key: Key, isReversed: boolean): Value[] {
  spend(4 * values.length);
  const keyed = values.map((value) => [key(value), value] as const);
  const order = (a: Value, b: Value) =>
    less(a, b, false, "<") ? -1 : less(b, a, false, "<") ? 1 : 0;
  keyed.sort(([a], [b]) => isReversed ? order(b, a) : order(a, b));
  return keyed.map(([, value]) => value);
}

function sort(
  value: Value,
  reverse: Value = false,
  sensitive: Value = false,
  attribute?: Value,
): Value {
  return sorted(iterate(value), sortKey(attribute, truth(sensitive)), truth(reverse));
}

function dictSort(
  value: Value,
  sensitive: Value = false,
  by: Value = "key",
  reverse: Value = false,
): Value {
  if (!(value instanceof Dict)) {
    throw typeError(`'${typeName(value)}' object has no attribute 'items'`);
  }
  if (by !== "key" && by !== "value") {
    throw new PythonError("FilterArgumentError", 'You can only sort by either "key" or "value"');
  }
  const key = foldedReader(by === "key" ? 0n : 1n, truth(sensitive));
  return sorted(value.entries().map((entry) => new Tuple(entry)), key, truth(reverse));
}

function unique(value: Value, sensitive: Value = false, attribute?: Value): Value {
  const key = foldedReader(attribute, truth(sensitive)), seen = new Dict();
  return new Generator(
    iterate(value).filter((one) => {
      const found = key(one);
      if (seen.has(found)) return false;
      seen.set(found, true);
      return true;
    }),
  );
}

const extreme = (isBetter: (a: Value, b: Value) => boolean) =>
  signature(
    "case_sensitive= attribute=",
    (value: Value, sensitive: Value = false, attribute?: Value) => {
      const key = foldedReader(attribute, truth(sensitive)), items = iterate(value);
      if (items.length === 0) return new Undefined("No aggregated item, sequence was empty.");
      return items.reduce((best, one) => isBetter(key(one), key(best)) ? one : best);
    },
  );

function reversed(value: Value): Value {
  if (isText(value)) {
    const text = [...plain(value)].reverse().join("");
    return typeof value === "string" ? text : new Markup(text);
  }
  return new Generator(iterate(value).toReversed());
}

function first(value: Value): Value {
  const found = value instanceof Generator ? value.next() : iterate(value)[0];
  return found === undefined ? new Undefined("No first item, sequence was empty.") : found;
}

function last(value: Value): Value {
  if (value instanceof Generator) throw typeError("'generator' object is not reversible");
  const found = iterate(value).at(-1);
  return found === undefined ? new Undefined("No last item, sequence was empty.") : found;
}

function joined(value: Value, separator: Value = "", attribute?: Value): Value {
  const read = reader(attribute);
  return join(str(separator), iterate(value).map((one) => str(read(one))));
}

function sum(value: Value, attribute: Given, start: Value = 0n): Value {
  if (isText(start)) throw typeError("sum() can't sum strings");
  const read = reader(attribute);
  return iterate(value).reduce((total, one) => binary("+", total, read(one)), start);
}

const FILTERS: Readonly<Record<string, Signature<Value>>> = {
  ...VALUE_FILTERS,
  dictsort: signature("case_sensitive= by= reverse=", dictSort),
  first: signature("", first),
  join: signature("d= attribute=", joined),
  last: signature("", last),
  list: signature("", (value: Value) => {
    const items = iterate(value);
    spendItems(items.length);
    return [...items];
  }),
  max: extreme((a, b) => less(b, a, false, ">")),
  min: extreme((a, b) => less(a, b, false, "<")),
  reverse: signature("", reversed),
  sort: signature("reverse= case_sensitive= attribute=", sort),
  sum: signature("attribute= start=", sum),
  unique: signature("case_sensitive= attribute=", unique),
};

/** Filters that choose items: whether those that pass are kept, and whether an attribute is tested. */
const CHOOSING: Readonly<Record<string, readonly [keeps: boolean, ofAttribute: boolean]>> = {
  select: [true, false],
  reject: [false, false],
  selectattr: [true, true],
  rejectattr: [false, true],
};

function choose(name: string, value: Value, args: readonly Value[], keywords: Keywords): Value {
  if (!truth(value)) return new Generator([]);
  const [keeps, ofAttribute] = CHOOSING[name]!;
  if (ofAttribute && args.length === 0) throw typeError("Missing parameter for attribute name");
  const read = ofAttribute ? reader(args[0]) : reader(undefined);
  const [test, ...rest] = ofAttribute ? args.slice(1) : args;
  return new Generator(
    iterate(value).filter((one) => {
      const tested = read(one);
      const passes = test === undefined
        ? truth(tested)
        : runTest(str(test), tested, rest, keywords);
      return passes === keeps;
    }),
  );
}

function map(value: Value, args: readonly Value[], keywords: Keywords): Value {
  if (!truth(value)) return new Generator([]);
  if (args.length === 0 && keywords.has("attribute")) {
    const read = reader(keywords.get("attribute"), keywords.get("default"));
    return new Generator(iterate(value).map(read));
  }
  const [name, ...rest] = args;
  if (name === undefined) throw typeError("map requires a filter argument");
  return new Generator(iterate(value).map((one) => runFilter(str(name), one, rest, keywords)));
}

/** Filters of Jinja that no known template uses. */
const REFUSED =
  ("attr batch center e escape filesizeformat forceescape format groupby pprint random round slice " +
    "striptags title truncate urlencode urlize wordcount wordwrap xmlattr").split(" ");

/** The value of a filter. @throws {Error} for an unknown one */
export function runFilter(
  name: string,
  value: Value,
  args: readonly Value[],
  keywords: Keywords,
): Value {
  spendValue(value);
  const made = applyFilter(name, value, args, keywords);
  spendValue(made);
  return made;
}

function applyFilter(
  name: string,
  value: Value,
  args: readonly Value[],
  keywords: Keywords,
): Value {
  if (name === "map") return map(value, args, keywords);
  if (Object.hasOwn(CHOOSING, name)) return choose(name, value, args, keywords);
  if (Object.hasOwn(FILTERS, name)) return invoke(name, FILTERS[name]!, value, args, keywords);
  if (REFUSED.includes(name)) throw new Error(`the filter '${name}' is not supported`);
  throw new Error(`No filter named '${name}'`);
}
