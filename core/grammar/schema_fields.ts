/** The keywords of one schema: which are read, which are annotations, and which are refused. */
import { DataError } from "../base/errors.ts";
import { exactEntries, exactItems, exactJsonText } from "../base/exact_json.ts";
import { isObject, show } from "../base/files.ts";
import { FORMATS } from "./formats.ts";
import { canonicalNumber, type Decimal, decimalOf, MAX_BOUND, negated } from "./numbers.ts";

/** A value of a schema, and the digits of a number that `JSON.parse` would change. */
export interface Field {
  readonly value: unknown;
  readonly number: string | undefined;
}

/** Keywords that change which values are valid. */
export type Fields = ReadonlyMap<string, Field>;

/** Keywords that are enforced, by the type of values that they are for. */
const BY_TYPE: Readonly<Record<string, readonly string[]>> = {
  string: ["pattern", "minLength", "maxLength"],
  number: ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"],
  array: ["items", "prefixItems", "minItems", "maxItems", "unevaluatedItems"],
  object: [
    ...["properties", "required", "additionalProperties", "unevaluatedProperties"],
    ...["minProperties", "maxProperties"],
  ],
};

/** Keywords that are enforced for values of all types. */
const GENERAL = ["$ref", "allOf", "anyOf", "oneOf", "const", "enum", "type", "format"];

const ENFORCED = new Set([...GENERAL, ...Object.values(BY_TYPE).flat()]);

/** Keywords that change which values are valid and that are not enforced. */
const UNSUPPORTED = new Set([
  ...["not", "if", "then", "else", "dependentRequired", "dependentSchemas", "dependencies"],
  ...["contains", "minContains", "maxContains", "uniqueItems", "multipleOf", "additionalItems"],
  ...["propertyNames", "patternProperties", "$dynamicRef", "$recursiveRef", "extends", "disallow"],
]);

const TYPES = ["string", "number", "integer", "boolean", "null", "array", "object"];

/** @throws {DataError} that names a keyword */
export function refuse(keyword: string, where: string): never {
  const words = `the schema keyword ${JSON.stringify(keyword)} is not supported ${where}`;
  throw new DataError(words.trimEnd());
}

/** The keywords of a schema that is an object. */
export function read(schema: unknown, isRoot: boolean): Fields {
  if (!isObject(schema)) throw new DataError(`a schema is a JSON object, not ${show(schema)}`);
  const fields = new Map<string, Field>();
  for (const [keyword, value, number] of exactEntries(schema)) {
    // A reference inside would mean another document.
    if (keyword === "$id" && !isRoot) refuse(keyword, "inside a schema");
    if (UNSUPPORTED.has(keyword) && value !== false) refuse(keyword, "");
    if (ENFORCED.has(keyword)) fields.set(keyword, { value, number });
  }
  if (!FORMATS.has(String(fields.get("format")?.value))) fields.delete("format");
  return fields;
}

/**
 * Types of values; undefined for any. A schema that states none is for those types whose keywords it has,
 * which is what its author means, though the standard allows all others.
 */
export function typesOf(fields: Fields): readonly string[] | undefined {
  const stated = statedTypes(fields);
  if (stated) return stated;
  const types = Object.keys(BY_TYPE).filter((type) =>
    BY_TYPE[type]!.some((one) => fields.has(one))
  );
  return types.length > 0 ? types : undefined;
}

/** Types of values by `type`. */
export function statedTypes(fields: Fields): readonly string[] | undefined {
  const stated = fields.get("type")?.value;
  if (stated === undefined) return undefined;
  const types = [...new Set([stated].flat())];
  const wrong = types.find((type) => !TYPES.includes(type as string));
  if (wrong !== undefined || types.length === 0) refuse("type", `for ${show(wrong ?? stated)}`);
  return types as string[];
}

/** The entries of a keyword that is a list. */
export function list(keyword: string, value: unknown): [unknown, string | undefined][] {
  if (!Array.isArray(value) || value.length === 0) refuse(keyword, "unless it is a list of values");
  return exactItems(value as unknown[]);
}

/** A keyword that counts. */
export function count(fields: Fields, keyword: string, otherwise: number): number {
  const value = fields.get(keyword)?.value ?? otherwise;
  if (value === Infinity && !fields.has(keyword)) return Infinity;
  if (Number.isSafeInteger(value) && value as number >= 0) return value as number;
  return refuse(keyword, `for ${show(value)}`);
}

/** A keyword that bounds numbers. */
export function bound(fields: Fields, keyword: string): Decimal | undefined {
  const field = fields.get(keyword);
  if (!field) return undefined;
  const { value, number = String(value) } = field;
  if (typeof value !== "number" || !Number.isFinite(value)) refuse(keyword, `for ${show(value)}`);
  return decimalOf(number) ?? refuse(keyword, `with more than ${MAX_BOUND} digits`);
}

/** The names of `required`. */
export function names(value: unknown): ReadonlySet<string> {
  const isList = Array.isArray(value) && value.every((name) => typeof name === "string");
  return isList ? new Set(value) : refuse("required", "unless it is a list of names");
}

/** Keywords of two schemas that both hold. */
export function merge(one: Fields, other: Fields, keyword: string): Fields {
  const merged = new Map(one);
  const closes = [
    "additionalProperties",
    "unevaluatedProperties",
    "unevaluatedItems",
    "prefixItems",
  ];
  const has = (fields: Fields, names: readonly string[]) => names.find((name) => fields.has(name));
  const closed = has(one, closes) ?? has(other, closes);
  const shapes = ["properties", "required", "items", ...closes];
  if (closed && has(one, shapes) && has(other, shapes)) {
    refuse(keyword, `with "${closed}" in a part`);
  }
  for (const [name, field] of other) {
    const own = one.get(name);
    merged.set(name, own ? both(name, own, field, keyword) : field);
  }
  return merged;
}

/** One keyword of two schemas that both hold. */
function both(name: string, one: Field, other: Field, keyword: string): Field {
  if (textOf(one) === textOf(other)) return one;
  const field = (value: unknown): Field => ({ value, number: undefined });
  if (name === "required") return field([...names(one.value).union(names(other.value))]);
  if (name === "type") {
    const [ones, others] = [one, other].map((field) => statedTypes(new Map([["type", field]]))!);
    const types = TYPES.filter((type) => hasType(ones!, type) && hasType(others!, type));
    if (types.length > 0) return field(types);
  }
  if (name === "properties" && isObject(one.value) && isObject(other.value)) {
    const entries = [...exactEntries(one.value), ...exactEntries(other.value)];
    if (new Set(entries.map(([key]) => key)).size === entries.length) {
      const merged = {};
      for (const [key, value] of entries) {
        Object.defineProperty(merged, key, { value, enumerable: true });
      }
      // JavaScript would move names that look like integers.
      if (Object.keys(merged).every((key, i) => key === entries[i]![0])) return field(merged);
    }
  }
  return refuse(keyword, `with "${name}" in several parts`);
}

function hasType(types: readonly string[], type: string): boolean {
  return types.includes(type) || type === "integer" && types.includes("number");
}

/** A value as JSON text that is the same for the same numbers. */
export function textOf({ value, number }: Field): string {
  return typeof value === "number"
    ? canonicalNumber(number ?? String(value))
    : exactJsonText(value);
}

/** Returns whether a value is of a type. */
export function isOfType(value: unknown, type: string): boolean {
  if (value === null) return type === "null";
  if (Array.isArray(value)) return type === "array";
  return typeof value === type || type === "integer" && Number.isInteger(value);
}

/** The smallest float64 above an exclusive lower bound. */
export function above(value: Decimal): Decimal | undefined {
  // JSON.stringify writes what is this small with an exponent.
  if (value.digits === 0n) return { digits: 1n, places: 20 };
  const float = Float64Array.of(Number(`${value.digits}e${-value.places}`));
  const bits = new BigInt64Array(float.buffer);
  bits[0]! += float[0]! > 0 ? 1n : -1n;
  return decimalOf(String(float[0]));
}

/** The greatest float64 below an exclusive upper bound. */
export function below(value: Decimal): Decimal | undefined {
  const opposite = above(negated(value));
  return opposite && negated(opposite);
}
