/** Attributes and items of values: methods of Python's types, keys of dicts, places of lists. */
import { spendText } from "./meter.ts";
import { bind, type Signature, signature } from "./signature.ts";
import { repr } from "./text.ts";
import { formatOf, REFUSED_TEXT_METHODS, TEXT_METHODS } from "./text_methods.ts";
import {
  Callable,
  Dict,
  equal,
  isText,
  itemsOf,
  iterate,
  lengthOf,
  Markup,
  Namespace,
  plain,
  PythonError,
  spendValue,
  Tuple,
  typeName,
  Undefined,
  type Value,
  View,
} from "./values.ts";

const DICT_METHODS: Readonly<Record<string, Signature<Dict>>> = {
  copy: signature("", (dict: Dict) => new Dict(dict.entries())),
  get: signature(
    "key default=",
    (dict: Dict, key: Value, initial: Value = null) => dict.has(key) ? dict.get(key)! : initial,
  ),
  items: signature(
    "",
    (dict: Dict) => new View("dict_items", dict.entries().map((entry) => new Tuple(entry))),
  ),
  keys: signature("", (dict: Dict) => new View("dict_keys", dict.keys())),
  values: signature("", (dict: Dict) => new View("dict_values", dict.values())),
};

const SEQUENCE_METHODS: Readonly<Record<string, Signature<Value>>> = {
  count: signature(
    "value",
    (self: Value, value: Value) =>
      BigInt(itemsOf(self)!.filter((item) => equal(item, value)).length),
  ),
};

const LIST_METHODS = { ...SEQUENCE_METHODS, copy: signature("", (self: Value) => self) };

/** Methods that change a value; the sandbox of Jinja lets no template call them. */
const UNSAFE: Readonly<Record<string, readonly string[]>> = {
  dict: ["clear", "pop", "popitem", "setdefault", "update"],
  list: ["append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"],
};

const INTEGER_PARTS = [
  ...["as_integer_ratio", "bit_count", "bit_length", "conjugate", "denominator", "from_bytes"],
  ...["imag", "numerator", "real", "to_bytes"],
];

/** Attributes that exist in Python and that are not here. */
const REFUSED: Readonly<Record<string, readonly string[]>> = {
  str: REFUSED_TEXT_METHODS,
  bool: INTEGER_PARTS,
  int: INTEGER_PARTS,
  float: ["as_integer_ratio", "conjugate", "fromhex", "hex", "imag", "is_integer", "real"],
  range: ["count", "index", "start", "step", "stop"],
  dict: ["fromkeys"],
  list: ["index"],
  tuple: ["index"],
};

/** An attribute that Python's type has, where there is one. */
function typeAttribute(value: Value, name: string): Value | undefined {
  const type = typeName(value);
  if (UNSAFE[type]?.includes(name)) {
    return new Undefined(
      `access to attribute '${name}' of '${type}' object is unsafe.`,
      "SecurityError",
    );
  }
  if (REFUSED[type]?.includes(name)) throw new Error(`'${name}' of ${type} is not supported`);
  if (isText(value)) return textMethod(value, name);
  if (value instanceof Dict) return method(DICT_METHODS, name, value);
  if (value instanceof Tuple) return method(SEQUENCE_METHODS, name, value);
  if (Array.isArray(value)) return method(LIST_METHODS, name, value);
  if (value instanceof Namespace) return value.fields.get(name);
  if (typeof value === "object" && value !== null && "isLoop" in value) {
    return value.attribute(name);
  }
  if (value instanceof Callable && name === "name") return value.name;
  return undefined;
}

function method<Self>(
  methods: Readonly<Record<string, Signature<Self>>>,
  name: string,
  self: Self,
): Callable | undefined {
  return Object.hasOwn(methods, name) ? bind(name, methods[name]!, self) : undefined;
}

function textMethod(value: string | Markup, name: string): Callable | undefined {
  const text = plain(value);
  spendText(text.length);
  const found = name === "format" ? formatOf(text) : method(TEXT_METHODS, name, text);
  if (found && value instanceof Markup) throw new Error(`'${name}' of safe text is not supported`);
  return found;
}

/** `value.name`: an attribute of the type, or else a key. */
export function attribute(value: Value, name: string): Value {
  if (value instanceof Undefined) value.fail();
  const ofType = typeAttribute(value, name);
  if (ofType !== undefined) return ofType;
  const found = value instanceof Dict ? value.get(name) : undefined;
  return found === undefined ? missing(value, name) : found;
}

/** `value[key]`: a place or key, or else an attribute. */
export function item(value: Value, key: Value): Value {
  if (value instanceof Undefined) value.fail();
  const found = element(value, key);
  if (found !== undefined) return found;
  const ofType = isText(key) ? typeAttribute(value, plain(key)) : undefined;
  return ofType === undefined ? missing(value, key) : ofType;
}

function element(value: Value, key: Value): Value | undefined {
  if (value instanceof Dict) {
    try {
      return value.get(key);
    } catch (error) {
      if (error instanceof PythonError && error.name === "TypeError") return undefined;
      throw error;
    }
  }
  if (typeof key !== "bigint" && typeof key !== "boolean") return undefined;
  if (!isText(value) && !itemsOf(value)) return undefined;
  const length = lengthOf(value), at = Number(key) < 0 ? Number(key) + length : Number(key);
  const items = itemsOf(value);
  if (items) return items[at];
  const text = plain(value as string | Markup);
  const found = text.length === length ? text[at] : iterate(text)[at];
  return found !== undefined && value instanceof Markup ? new Markup(found as string) : found;
}

function missing(value: Value, name: Value): Undefined {
  if (value === null) return new Undefined(`None has no attribute ${repr(name)}`);
  const object = `'${typeName(value)} object'`;
  return new Undefined(
    typeof name === "string"
      ? `${object} has no attribute ${repr(name)}`
      : `${object} has no element ${repr(name)}`,
  );
}

/** A function called by a template. */
export function call(
  callee: Value,
  args: readonly Value[],
  keywords: ReadonlyMap<string, Value>,
): Value {
  if (callee instanceof Undefined) callee.fail();
  const target = typeof callee === "object" && callee !== null && "isLoop" in callee
    ? callee.recurse
    : callee;
  if (!(target instanceof Callable)) {
    throw new PythonError("TypeError", `'${typeName(callee)}' object is not callable`);
  }
  const made = target.call(args, keywords);
  spendValue(made);
  return made;
}
