/**
 * Python's values as a template sees them.
 *
 * int is a bigint, float a number, None null, a list an array; str, bool and the classes below are
 * what they say. Equality, truth and the order of values are Python's.
 */
import { spend, spendText } from "./meter.ts";

/** Any value of a template. */
export type Value =
  | string
  | bigint
  | number
  | boolean
  | null
  | readonly Value[]
  | Tuple
  | Dict
  | Undefined
  | Markup
  | Namespace
  | Callable
  | View
  | Generator
  | Range
  | Loop;

/** Arguments of a call by name. */
export type Keywords = ReadonlyMap<string, Value>;

/** An exception of Python, by the name of its class. */
export class PythonError extends Error {
  constructor(override readonly name: string, message: string) {
    super(message);
  }
}

/** Returns an exception for a value of the wrong type. */
export function typeError(message: string): PythonError {
  return new PythonError("TypeError", message);
}

/** A name, attribute or item that is not there: empty text, and an error wherever it is used. */
export class Undefined {
  constructor(readonly message: string, readonly kind = "UndefinedError") {}

  /** Raises the error of a use. */
  fail(): never {
    throw new PythonError(this.kind, this.message);
  }
}

/** Python's tuple. */
export class Tuple {
  constructor(readonly items: readonly Value[]) {}
}

/** Python's range with its items. */
export class Range {
  constructor(
    readonly items: readonly Value[],
    readonly start: number,
    readonly stop: number,
    readonly step: number,
  ) {}
}

/** Text that counts as escaped. */
export class Markup {
  constructor(readonly text: string) {}
}

/** `namespace()`, the only thing whose attributes a template sets. */
export class Namespace {
  constructor(readonly fields: Map<string, Value>) {}
}

/** Function, macro or bound method. */
export class Callable {
  constructor(
    readonly name: string,
    readonly call: (args: readonly Value[], keywords: Keywords) => Value,
  ) {}
}

/** Keys, values or items of a dict. */
export class View {
  constructor(readonly kind: string, readonly items: readonly Value[]) {}
}

/** Items that a filter yields one by one: iterated once, without a length. */
export class Generator {
  #items: readonly Value[];
  #next = 0;

  constructor(items: readonly Value[]) {
    this.#items = items;
  }

  /** The next item, or undefined after the last. */
  next(): Value | undefined {
    return this.#items[this.#next++];
  }

  /** All items that are left. */
  rest(): readonly Value[] {
    const rest = this.#items.slice(this.#next);
    this.#next = this.#items.length;
    return rest;
  }
}

/** Attributes of `loop`, and calls of it in a recursive one. */
export interface Loop {
  readonly isLoop: true;
  attribute(name: string): Value | undefined;
  readonly recurse: Callable | undefined;
}

/** Python's dict: keys in the order in which they were set, equal numbers being one key. */
export class Dict {
  #entries = new Map<unknown, readonly [key: Value, value: Value]>();

  constructor(entries: Iterable<readonly [Value, Value]> = []) {
    for (const [key, value] of entries) this.set(key, value);
  }

  get size(): number {
    return this.#entries.size;
  }

  get(key: Value): Value | undefined {
    return this.#entries.get(hashable(key))?.[1];
  }

  has(key: Value): boolean {
    return this.#entries.has(hashable(key));
  }

  /** A key that is there keeps its place and its form. */
  set(key: Value, value: Value): void {
    const hash = hashable(key);
    const known = this.#entries.get(hash);
    this.#entries.set(hash, [known ? known[0] : key, value]);
  }

  entries(): readonly (readonly [Value, Value])[] {
    return [...this.#entries.values()];
  }

  keys(): readonly Value[] {
    return this.entries().map(([key]) => key);
  }

  values(): readonly Value[] {
    return this.entries().map(([, value]) => value);
  }
}

/** A value that is the same for equal keys, and not for others. */
function hashable(key: Value): unknown {
  if (typeof key === "boolean") return BigInt(key);
  if (typeof key === "number") return Number.isInteger(key) ? BigInt(key) : key;
  if (key instanceof Markup) return key.text;
  if (key instanceof Undefined) return Undefined;
  if (key instanceof Tuple) {
    spend(key.items.length);
    return Symbol.for(JSON.stringify(key.items.map((item) => tagged(hashable(item)))));
  }
  if (Array.isArray(key) || key instanceof Dict || key instanceof Namespace) {
    throw typeError(`unhashable type: '${typeName(key)}'`);
  }
  return key;
}

function tagged(hash: unknown): string {
  if (typeof hash === "object" && hash !== null || typeof hash === "function") {
    throw typeError("unhashable value in a tuple");
  }
  return `${typeof hash}:${String(hash)}`;
}

/** Python's name of a type. */
export function typeName(value: Value): string {
  switch (typeof value) {
    case "string":
      return "str";
    case "bigint":
      return "int";
    case "number":
      return "float";
    case "boolean":
      return "bool";
  }
  if (value === null) return "NoneType";
  if (Array.isArray(value)) return "list";
  if (value instanceof View) return value.kind;
  if (value instanceof Callable) return "function";
  if ("isLoop" in value) return "LoopContext";
  return value.constructor.name.replace(
    /^(Tuple|Dict|Range|Generator)$/,
    (name) => name.toLowerCase(),
  );
}

/** Returns whether a value is text, escaped or not. */
export function isText(value: Value): value is string | Markup {
  return typeof value === "string" || value instanceof Markup;
}

/** bool, int or float. */
export function isNumber(value: Value): value is bigint | number | boolean {
  return typeof value === "bigint" || typeof value === "number" || typeof value === "boolean";
}

/** Items of a list, tuple or range. */
export function itemsOf(value: Value): readonly Value[] | undefined {
  if (Array.isArray(value)) return value;
  return value instanceof Tuple || value instanceof Range ? value.items : undefined;
}

/** Python's truth. */
export function truth(value: Value): boolean {
  switch (typeof value) {
    case "object":
      if (value === null || value instanceof Undefined) return false;
      if (value instanceof Dict) return value.size > 0;
      if (value instanceof Markup) return value.text !== "";
      if (value instanceof View) return value.items.length > 0;
      return (itemsOf(value)?.length ?? 1) > 0;
    case "bigint":
      return value !== 0n;
    default:
      return value !== 0 && value !== "" && value !== false;
  }
}

/** Python's `==`. */
export function equal(a: Value, b: Value): boolean {
  spend(1);
  if (a === b) return a === a;
  if (isNumber(a) && isNumber(b)) return numeric(a) == numeric(b); // exact between bigint and number
  if (isText(a) && isText(b)) return sameText(plain(a), plain(b));
  if (a instanceof Undefined) return b instanceof Undefined;
  if (a instanceof Dict && b instanceof Dict) {
    return a.size === b.size && a.entries().every(([key, value]) => {
      const other = b.get(key);
      return other !== undefined && equal(value, other);
    });
  }
  const left = itemsOf(a), right = itemsOf(b);
  return left !== undefined && right !== undefined && typeName(a) === typeName(b) &&
    left.length === right.length && left.every((item, i) => equal(item, right[i]!));
}

function sameText(a: string, b: string): boolean {
  if (a.length !== b.length) return false;
  spendText(a.length);
  return a === b;
}

/** Returns whether `a` comes before `b`, or is equal where `orEqual`; `sign` names the operator in errors. */
export function less(a: Value, b: Value, orEqual: boolean, sign: string): boolean {
  spend(1);
  if (isNumber(a) && isNumber(b)) {
    return orEqual ? numeric(a) <= numeric(b) : numeric(a) < numeric(b);
  }
  if (isText(a) && isText(b)) {
    const order = compareText(plain(a), plain(b));
    return orEqual ? order <= 0 : order < 0;
  }
  const left = itemsOf(a), right = itemsOf(b);
  if (left && right && typeName(a) === typeName(b) && !(a instanceof Range)) {
    const at = left.findIndex((item, i) => i < right.length && !equal(item, right[i]!));
    if (at >= 0) return less(left[at]!, right[at]!, orEqual, sign);
    return orEqual ? left.length <= right.length : left.length < right.length;
  }
  for (const side of [a, b]) if (side instanceof Undefined) side.fail();
  throw typeError(
    `'${sign}' not supported between instances of '${typeName(a)}' and '${typeName(b)}'`,
  );
}

/** Order by code points, negative where `a` is first; JavaScript compares halves of surrogate pairs. */
function compareText(a: string, b: string): number {
  const length = Math.min(a.length, b.length);
  let at = 0;
  while (at < length && a[at] === b[at]) at++;
  spendText(at);
  if (at === length) return a.length - b.length;
  // A surrogate stands for a code point above all others.
  const weight = (unit: number) => unit >= 0xd800 && unit < 0xe000 ? unit + 0x10000 : unit;
  return weight(a.charCodeAt(at)) - weight(b.charCodeAt(at));
}

/** The number that bool, int or float stand for. */
export function numeric(value: bigint | number | boolean): bigint | number {
  return typeof value === "boolean" ? BigInt(value) : value;
}

/** Text without its mark of being escaped. */
export function plain(value: string | Markup): string {
  return typeof value === "string" ? value : value.text;
}

/** An argument that must be an integer, as a number. */
export function integer(value: Value): number {
  if (typeof value === "bigint" || typeof value === "boolean") return Number(value);
  if (value instanceof Undefined) value.fail();
  throw typeError(`'${typeName(value)}' object cannot be interpreted as an integer`);
}

/** Python's iteration over a value. */
export function iterate(value: Value): readonly Value[] {
  if (typeof value === "string" || value instanceof Markup) {
    const text = plain(value);
    spendText(text.length * 8);
    return Array.from(text);
  }
  const items = value instanceof View ? value.items : itemsOf(value);
  if (items) return items;
  if (value instanceof Dict) return value.keys();
  if (value instanceof Generator) return value.rest();
  if (value instanceof Undefined) return [];
  throw typeError(`'${typeName(value)}' object is not iterable`);
}

/** Python's `len`. */
export function lengthOf(value: Value): number {
  if (typeof value === "string" || value instanceof Markup) return codePoints(plain(value));
  if (value instanceof Dict) return value.size;
  if (value instanceof Undefined) return 0;
  if (value instanceof View) return value.items.length;
  const items = itemsOf(value);
  if (items) return items.length;
  throw typeError(`object of type '${typeName(value)}' has no len()`);
}

/** Counts a value that a function takes or makes, by its size. */
export function spendValue(value: Value): void {
  if (isText(value)) spendText(plain(value).length);
  else spend(1 + (itemsOf(value)?.length ?? 0));
}

/** Number of code points of a text. */
export function codePoints(text: string): number {
  spendText(text.length);
  return text.length - (text.match(/[\ud800-\udbff][\udc00-\udfff]/g)?.length ?? 0);
}

/** Python's `in`. */
export function contains(container: Value, item: Value): boolean {
  if (isText(container)) {
    if (isText(item)) return indexOf(plain(container), plain(item)) >= 0;
    if (item instanceof Undefined) item.fail();
    throw typeError(`'in <string>' requires string as left operand, not ${typeName(item)}`);
  }
  if (container instanceof Dict) return container.has(item);
  if (container instanceof Generator) {
    for (let next; (next = container.next()) !== undefined;) if (equal(next, item)) return true;
    return false;
  }
  return iterate(container).some((one) => equal(one, item));
}

/** First place of a text in another, in UTF-16 units; the search may try every place at full length. */
export function indexOf(text: string, part: string, from = 0): number {
  spendText(text.length);
  spend(text.length * part.length / 4096);
  return text.indexOf(part, from);
}
