/** The keywords of one schema: which are read, which are annotations, and which are refused. */
import { DataError } from "../base/errors.ts";
import { exactEntries, exactItems, exactJsonText } from "../base/exact_json.ts";
import { isObject, show } from "../base/files.ts";
import { FORMATS } from "./formats.ts";
import {
  canonicalNumber,
  compare,
  type Decimal,
  decimalOf,
  MAX_BOUND,
  negated,
} from "./numbers.ts";

/** A value of a schema, and the digits of a number that `JSON.parse` would change. */
export interface Field {
  readonly value: unknown;
  readonly number: string | undefined;
}

/** Keywords that change which values are valid. */
export type Fields = ReadonlyMap<string, Field>;

/** Keywords that are enforced, by the type of values that they are for. */
const BY_TYPE: Readonly<Record<string, readonly string[]>> = {
  string: ["pattern", "format", "minLength", "maxLength"],
  number: ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"],
  array: ["items", "prefixItems", "minItems", "maxItems", "unevaluatedItems", "uniqueItems"],
  object: [
    ...["properties", "required", "additionalProperties", "unevaluatedProperties"],
    ...["minProperties", "maxProperties", "propertyNames", "patternProperties"],
  ],
};

/** Keywords that are enforced for values of all types. */
const GENERAL = ["$ref", "allOf", "anyOf", "oneOf", "const", "enum", "type"];

const ENFORCED = new Set([...GENERAL, ...Object.values(BY_TYPE).flat()]);

/** Keywords that change which values are valid and that are not enforced. */
const UNSUPPORTED = new Set([
  ...["not", "if", "then", "else", "dependentRequired", "dependentSchemas", "dependencies"],
  ...["contains", "minContains", "maxContains", "$dynamicRef", "$recursiveRef", "extends"],
  "disallow",
]);

/** Values with which a keyword allows everything: where it is for schemas, `false` is one of them. */
const NEUTRAL: Readonly<Record<string, (value: unknown) => boolean>> = {
  not: (value) => value === false,
  uniqueItems: (value) => value === false,
  propertyNames: (value) => value === true,
  patternProperties: (value) => isObject(value) && Object.keys(value).length === 0,
};

/** Keywords without which a schema still says what its values are. */
const CAN_DROP = new Set([
  ...UNSUPPORTED,
  ...["pattern", "format", "minLength", "maxLength", "multipleOf", "uniqueItems", "oneOf"],
  ...["minProperties", "maxProperties", "propertyNames", "patternProperties"],
]);

const TYPES = ["string", "number", "integer", "boolean", "null", "array", "object"];

/** A keyword that is not supported. */
export class Refusal extends DataError {
  /** The schema that is read. */
  schema: object | undefined;

  constructor(readonly keyword: string, where: string) {
    super(`the schema keyword ${JSON.stringify(keyword)} is not supported ${where}`.trimEnd());
  }

  /** Leaves the keyword out from now on; false where that cannot be. */
  drop(dropped: Dropped): boolean {
    const { keyword, schema } = this;
    const others = schema && dropped.get(schema);
    if (!schema || !CAN_DROP.has(keyword) || !Object.hasOwn(schema, keyword)) return false;
    if (others?.has(keyword)) return false;
    dropped.set(schema, new Set([...others ?? [], keyword]));
    return true;
  }
}

/** Keywords that are left out, by their schema. */
export type Dropped = Map<object, ReadonlySet<string>>;

/** @throws {Refusal} that names a keyword */
export function refuse(keyword: string, where: string): never {
  throw new Refusal(keyword, where);
}

/** The keywords of a schema that is an object. */
export function read(schema: unknown, isRoot: boolean, dropped?: Dropped): Fields {
  if (!isObject(schema)) throw new DataError(`a schema is a JSON object, not ${show(schema)}`);
  const fields = new Map<string, Field>();
  for (const [keyword, value, number] of exactEntries(schema)) {
    // A reference inside would mean another document.
    if (keyword === "$id" && !isRoot) refuse(keyword, "inside a schema");
    if (NEUTRAL[keyword]?.(value)) continue;
    if (dropped?.get(schema)?.has(keyword)) {
      // Of alternatives that are not told apart, one at least still holds.
      if (keyword === "oneOf" && !Object.hasOwn(schema, "anyOf")) {
        fields.set("anyOf", { value, number });
      }
      continue;
    }
    if (UNSUPPORTED.has(keyword)) refuse(keyword, "");
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

/** Types of joined schemas that have none in common. */
const NO_TYPES: readonly string[] = [];

/** Types of values by `type`. */
export function statedTypes(fields: Fields): readonly string[] | undefined {
  const stated = fields.get("type")?.value;
  if (stated === undefined) return undefined;
  if (stated === NO_TYPES) return NO_TYPES;
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

/** The expressions of `pattern`, of which joined schemas have several. */
export function patternsOf({ value }: Field): readonly string[] {
  const all = value instanceof Set ? [...value] : [value];
  if (!all.every((one) => typeof one === "string")) refuse("pattern", "unless it is a text");
  return all;
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
    ...["additionalProperties", "unevaluatedProperties", "unevaluatedItems", "prefixItems"],
    ...["propertyNames", "patternProperties"],
  ];
  const has = (fields: Fields, names: readonly string[]) => names.find((name) => fields.has(name));
  const closed = has(one, closes) ?? has(other, closes);
  const shapes = ["properties", "items", ...closes];
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
    return field(types.length > 0 ? types : NO_TYPES);
  }
  if (/^(exclusive)?m(in|ax)/i.test(name)) {
    const [a, b] = [one, other].map((field) => bound(new Map([[name, field]]), name)!);
    return (compare(a!, b!) > 0) === /m(in)/i.test(name) ? one : other;
  }
  if (name === "pattern") return field(new Set([one, other].flatMap(patternsOf)));
  if (name === "items") return field({ allOf: [one.value, other.value] });
  if (name === "properties" && isObject(one.value) && isObject(other.value)) {
    const entries = exactEntries(one.value).map(([key, value]) => [key, value] as const);
    const all = new Map(entries);
    for (const [key, value] of exactEntries(other.value)) {
      all.set(key, all.has(key) ? { allOf: [all.get(key), value] } : value);
    }
    const merged = {};
    for (const [key, value] of all) Object.defineProperty(merged, key, { value, enumerable: true });
    // JavaScript would move names that look like integers.
    if (Object.keys(merged).join() === [...all.keys()].join()) return field(merged);
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
