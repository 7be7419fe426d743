/**
 * Constraint of a text: JSON, a JSON Schema, or tool calls between other text.
 *
 * The library ignores keywords that it does not know, so that an answer could break them: such schemas
 * are refused here, as are those that are too large to be honest.
 */
import { DataError } from "../base/errors.ts";
import { isObject, jsonDepth, type JsonObject, show } from "../base/files.ts";

/** Constraint of a text. */
export type GrammarSource =
  | { readonly kind: "object" }
  | { readonly kind: "schema"; readonly schema: unknown }
  | { readonly kind: "tags"; readonly format: unknown };

/** Keywords that change which values are valid and that no grammar enforces. */
const UNSUPPORTED = new Set([
  ...["not", "if", "then", "else", "dependentRequired", "dependentSchemas", "dependencies"],
  ...["contains", "minContains", "maxContains", "uniqueItems", "multipleOf"],
  ...["propertyNames", "patternProperties", "$dynamicRef", "$recursiveRef"],
]);

/** Keywords whose value is not a schema: names in it are data. */
const DATA = new Set(["const", "enum", "default", "examples"]);

/** Keywords whose value holds schemas under names of the author's. */
const NAMED = new Set(["properties", "$defs", "definitions"]);

/** Keywords beside which the library reads no other, in the order in which it looks for them. */
const ALONE = ["$ref", "const", "enum", "anyOf", "oneOf", "allOf"];

const LENGTHS = ["minLength", "maxLength"];
const LOW = ["minimum", "exclusiveMinimum"], HIGH = ["maximum", "exclusiveMaximum"];

/** Keywords that change which values are valid and that a grammar enforces; others are annotations. */
const ASSERTIONS = new Set([
  ...[...ALONE, ...LENGTHS, ...LOW, ...HIGH, "type", "pattern", "properties", "required", "items"],
  ...["additionalProperties", "minProperties", "maxProperties", "unevaluatedProperties"],
  ...["prefixItems", "minItems", "maxItems", "unevaluatedItems"],
]);

/** Largest schema as JSON, and deepest. */
const MAX_BYTES = 64 << 10, MAX_DEPTH = 48;

/**
 * A schema as the library is to read it.
 * @throws {DataError} for a schema that a grammar cannot enforce
 */
export function supportedSchema(schema: unknown): unknown {
  const text = JSON.stringify(schema) ?? "";
  if (text.length > MAX_BYTES) {
    throw new DataError(`the schema has ${text.length} characters, at most ${MAX_BYTES} are taken`);
  }
  if (jsonDepth(text) > MAX_DEPTH) {
    throw new DataError(`the schema nests deeper than ${MAX_DEPTH} levels`);
  }
  if (!isObject(schema) && typeof schema !== "boolean") {
    throw new DataError("a schema is a JSON object");
  }
  return readPart(JSON.parse(text));
}

/** A part of a schema as the library is to read it. */
function readPart(part: unknown): unknown {
  if (Array.isArray(part)) return part.map(readPart);
  if (!isObject(part)) return part;
  const schema = withoutGaps(part);
  requireEnforced(schema);
  const read = Object.entries(schema).map(([keyword, value]): [string, unknown] => {
    if (UNSUPPORTED.has(keyword) && value !== false) {
      throw new DataError(`the schema keyword "${keyword}" is not supported`);
    }
    if (DATA.has(keyword)) return [keyword, value];
    if (!NAMED.has(keyword) || !isObject(value)) return [keyword, readPart(value)];
    // The library writes names as they are into a grammar.
    const wrong = Object.keys(value).find((name) => JSON.stringify(name) !== `"${name}"`);
    if (wrong !== undefined) throw new DataError(`the name ${show(wrong)} is not supported`);
    const parts = Object.entries(value).map(([name, one]) => [name, readPart(one)]);
    return [keyword, Object.fromEntries(parts)];
  });
  return Object.fromEntries(read);
}

/**
 * A schema that means the same, without what the library would misread: a `format`, by the standard an
 * annotation, for which it leaves out other keywords of strings, and integers with a bound on one side.
 */
function withoutGaps({ ...schema }: JsonObject): JsonObject {
  const has = (keywords: readonly string[]) => keywords.some((keyword) => keyword in schema);
  if (has(["pattern", ...LENGTHS])) delete schema.format;
  if ([schema.type].flat().includes("integer")) {
    if (has(LOW) && !has(HIGH)) schema.maximum = Number.MAX_SAFE_INTEGER;
    else if (has(HIGH) && !has(LOW)) schema.minimum = Number.MIN_SAFE_INTEGER;
  }
  return schema;
}

/** Refuses keywords that the library leaves out beside others, or for a type. */
function requireEnforced(schema: JsonObject): void {
  const keywords = Object.keys(schema).filter((keyword) => ASSERTIONS.has(keyword));
  const first = (names: readonly string[]) => names.find((name) => keywords.includes(name));
  const refuse = (keyword: string, where: string) => {
    throw new DataError(`the schema keyword "${keyword}" is not supported ${where}`);
  };
  const alone = first(ALONE);
  if (alone !== undefined) {
    const values = alone === "const" ? [schema.const] : alone === "enum" ? schema.enum : [];
    const isSaid = (keyword: string) =>
      keyword === "type" && isOfType(values, schema.type) ||
      keyword === "enum" && alone === "const" && isAmong(schema.const, schema.enum);
    const other = keywords.find((keyword) => keyword !== alone && !isSaid(keyword));
    if (other !== undefined) refuse(other, `beside "${alone}"`);
    const parts = schema.allOf;
    if (Array.isArray(parts) && parts.length > 1) refuse("allOf", "with several schemas");
  }
  const types = [schema.type].flat();
  const bound = first([...LOW, ...HIGH]);
  if (bound !== undefined && (types.includes("number") || !types.includes("integer"))) {
    refuse(bound, "for numbers that are not of type integer");
  }
  const length = first(LENGTHS), text = first(["pattern"]) ?? length;
  if (text !== undefined && !types.includes("string")) refuse(text, "without type string");
  if (length !== undefined && text !== length) refuse(length, 'beside "pattern"');
  const { required, properties = {} } = schema;
  if (!Array.isArray(required) || !isObject(properties)) return;
  const unknown = required.find((name) => !Object.hasOwn(properties, name));
  if (unknown !== undefined) refuse("required", `for ${show(unknown)}, which is no property`);
}

function isAmong(value: unknown, list: unknown): boolean {
  return Array.isArray(list) && list.some((one) => JSON.stringify(one) === JSON.stringify(value));
}

/** Returns whether all values are of one of the types. */
function isOfType(values: unknown, types: unknown): boolean {
  const names = [types].flat();
  const typeOf = (value: unknown) =>
    value === null ? "null" : Array.isArray(value) ? "array" : typeof value;
  return Array.isArray(values) && values.length > 0 &&
    values.every((value) =>
      names.includes(typeOf(value)) || (Number.isInteger(value) && names.includes("integer"))
    );
}
