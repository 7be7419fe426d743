/**
 * Python values outside Python: reads what `values.py` wrote and compares as Python would.
 *
 * Each value has a key in which numbers of different types but equal value look alike and sets and
 * dictionaries are sorted; equal values are those of equal keys. NaN and objects of unknown types get a
 * key of their own. Texts may come from a hostile program: what the encoder does not write is refused
 * before it costs time.
 */

import { jsonDepth } from "../../../base/files.ts";

/** Deepest nesting that is read, in brackets. */
const DEEPEST = 500;
/** Decimal digits of an integer; the encoder writes longer ones in hexadecimal. */
const DIGITS = 20;

/** A Python value; `type` is the name of its own type, `kind` what its data is. */
export type Value = { readonly type: string } & Data;

type Data =
  | { readonly kind: "none" }
  | { readonly kind: "bool"; readonly value: boolean }
  | { readonly kind: "int"; readonly value: bigint }
  | { readonly kind: "float"; readonly value: number }
  | { readonly kind: "complex"; readonly value: readonly [number, number] }
  | { readonly kind: "str" | "bytes"; readonly value: string }
  | { readonly kind: "list" | "tuple" | "set" | "frozenset"; readonly items: readonly Value[] }
  | { readonly kind: "dict"; readonly entries: readonly (readonly [Value, Value])[] }
  /** Equal only to its like: ranges, iterators. */
  | { readonly kind: "named"; readonly value: Value }
  /** Too long to be told: the hash of its text. */
  | { readonly kind: "digest"; readonly value: string }
  | { readonly kind: "opaque" };

type Tree = null | boolean | number | bigint | string | Tree[] | { [tag: string]: Tree };

/**
 * Reads a value; plain JSON is a value too. Numbers keep their digits and their type.
 * @throws {RangeError} for nesting or integers that the encoder does not write
 * @throws {SyntaxError} for any other text
 */
export function parseValue(text: string): Value {
  if (jsonDepth(text) > DEEPEST) throw new RangeError("a value nested too deeply");
  return fromTree(JSON.parse(text, keepDigits));
}

function keepDigits(_key: string, value: unknown, context?: { source?: string }): unknown {
  if (typeof value !== "number") return value;
  const source = context?.source ?? "";
  if (!/^-?\d+$/.test(source)) return value;
  if (source.length > DIGITS) throw new RangeError("an integer of too many digits");
  return BigInt(source);
}

function fromTree(tree: Tree): Value {
  if (tree === null) return { type: "NoneType", kind: "none" };
  if (typeof tree === "boolean") return { type: "bool", kind: "bool", value: tree };
  if (typeof tree === "bigint") return { type: "int", kind: "int", value: tree };
  if (typeof tree === "number") return { type: "float", kind: "float", value: tree };
  if (typeof tree === "string") return { type: "str", kind: "str", value: tree };
  if (Array.isArray(tree)) return { type: "list", kind: "list", items: tree.map(fromTree) };
  const [tag, body] = Object.entries(tree)[0]!;
  return fromTag(tag, body);
}

const SEQUENCES = { t: "tuple", s: "set", z: "frozenset" } as const;

// deno-lint-ignore no-explicit-any
function fromTag(tag: string, body: any): Value {
  switch (tag) {
    case "x": {
      const value = body.startsWith("-") ? -BigInt(`0x${body.slice(1)}`) : BigInt(`0x${body}`);
      return { type: "int", kind: "int", value };
    }
    case "f": {
      const value = body === "nan" ? NaN : body === "-inf" ? -Infinity : Infinity;
      return { type: "float", kind: "float", value };
    }
    case "c": {
      const [real, imaginary] = body.map((part: Tree) => toNumber(fromTree(part)));
      return { type: "complex", kind: "complex", value: [real, imaginary] };
    }
    case "b":
      return { type: "bytes", kind: "bytes", value: body };
    case "d":
      return {
        type: "dict",
        kind: "dict",
        entries: body.map((pair: Tree[]) => [fromTree(pair[0]!), fromTree(pair[1]!)]),
      };
    case "k":
      return { ...fromTree(body[1]), type: body[0] };
    case "h":
      return { type: body[0], kind: "digest", value: body[1] };
    case "n":
      return { type: body[0], kind: "named", value: fromTree(body[1]) };
    case "t":
    case "s":
    case "z": {
      const kind = SEQUENCES[tag];
      return { type: kind, kind, items: body.map(fromTree) };
    }
    default:
      return { type: String(body), kind: "opaque" };
  }
}

/** A real number as a float; undefined for any other value. */
export function toNumber(value: Value): number | undefined {
  if (value.kind === "bool" || value.kind === "int" || value.kind === "float") {
    return Number(value.value);
  }
  return undefined;
}

/** Returns whether Python's `==` holds. */
export function equal(a: Value, b: Value): boolean {
  return keyOf(a) === keyOf(b);
}

let uniqueKeys = 0;

/** A text that equal values share. */
export function keyOf(value: Value): string {
  switch (value.kind) {
    case "none":
      return "N";
    case "bool":
      return numberKey(Number(value.value));
    case "int":
      return `n${value.value.toString(16)}`;
    case "float":
      return numberKey(value.value);
    case "complex": {
      const [real, imaginary] = value.value;
      return imaginary === 0 ? numberKey(real) : `c${numberKey(real)},${numberKey(imaginary)}`;
    }
    case "str":
      return JSON.stringify(value.value);
    case "bytes":
      return `b${value.value}`;
    case "list":
      return `[${value.items.map(keyOf)}]`;
    case "tuple":
      return `(${value.items.map(keyOf)})`;
    case "set":
    case "frozenset":
      return `{${[...new Set(value.items.map(keyOf))].sort()}}`;
    case "dict":
      return `<${value.entries.map(([key, item]) => `${keyOf(key)}:${keyOf(item)}`).sort()}>`;
    case "named":
      return `@${value.type} ${keyOf(value.value)}`;
    case "digest":
      return `h${value.value}`;
    case "opaque":
      return `?${uniqueKeys++}`;
  }
}

function numberKey(value: number): string {
  if (Number.isNaN(value)) return `?${uniqueKeys++}`;
  return Number.isInteger(value) ? `n${BigInt(value).toString(16)}` : `f${value}`;
}
