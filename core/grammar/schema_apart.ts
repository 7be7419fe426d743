/** Schemas that have no value in common, so that `oneOf` of them is `anyOf`. */
import { isObject } from "../base/files.ts";
import {
  type Fields,
  isOfType,
  list,
  names,
  statedTypes,
  textOf,
  typesOf,
} from "./schema_fields.ts";

/** Deepest property that tells objects apart. */
const MAX_DEPTH = 4;

/** Reads a part of a schema, and what it refers to. */
type Read = (schema: unknown) => Fields | boolean;

/** Returns whether two schemas are known to have no value in common. */
export function areApart(
  one: Fields | boolean,
  other: Fields | boolean,
  read: Read,
  depth = 0,
): boolean {
  if (typeof one === "boolean" || typeof other === "boolean") {
    return one === false || other === false;
  }
  const [values, others] = [valuesOf(one), valuesOf(other)];
  if (values && others) return values.every((value) => !others.includes(value));
  if (values) return isOfNone(values, other);
  if (others) return isOfNone(others, one);
  const [types, otherTypes] = [statedTypes(one), statedTypes(other)];
  if (types && otherTypes && types.every((type) => !overlaps(type, otherTypes))) return true;
  if (depth >= MAX_DEPTH || !isObjectOnly(one) || !isObjectOnly(other)) return false;
  const [mine, yours] = [requiredOf(one), requiredOf(other)];
  return [...mine].some(([name, schema]) =>
    yours.has(name) && areApart(read(schema), read(yours.get(name)), read, depth + 1)
  );
}

function overlaps(type: string, types: readonly string[]): boolean {
  const isNumber = (type: string) => type === "integer" || type === "number";
  return types.includes(type) || isNumber(type) && types.some(isNumber);
}

/** The values of `const` or `enum` other than objects and lists. */
function valuesOf(fields: Fields): string[] | undefined {
  const fixed = fields.get("const");
  const all = fixed
    ? [fixed]
    : fields.has("enum")
    ? list("enum", fields.get("enum")!.value).map(([value, number]) => ({ value, number }))
    : undefined;
  return all?.every(({ value }) => typeof value !== "object" || value === null)
    ? all.map(textOf)
    : undefined;
}

/** Returns whether no value is of the types of a schema. */
function isOfNone(values: readonly string[], fields: Fields): boolean {
  const types = statedTypes(fields);
  return types !== undefined &&
    values.every((text) => !types.some((type) => isOfType(JSON.parse(text), type)));
}

/** Returns whether all values of a schema, as they are written here, are objects. */
function isObjectOnly(fields: Fields): boolean {
  const types = typesOf(fields);
  return !["$ref", "allOf", "anyOf", "oneOf", "const", "enum"].some((name) => fields.has(name)) &&
    types?.length === 1 && types[0] === "object";
}

/** Schemas of properties that are always there. */
function requiredOf(fields: Fields): Map<string, unknown> {
  const properties = fields.get("properties")?.value;
  if (!isObject(properties)) return new Map();
  const required = names(fields.get("required")?.value ?? []);
  return new Map(Object.entries(properties).filter(([name]) => required.has(name)));
}
