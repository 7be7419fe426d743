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

/** Keywords that say nothing about which values are valid. */
const ANNOTATIONS = new Set([
  ...["title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"],
  ...["$schema", "$id", "$anchor", "$comment", "$defs", "definitions", "discriminator"],
]);

/** Keywords beside which the library reads no other, in the order in which it looks for them. */
const ALONE = ["$ref", "const", "enum", "anyOf", "oneOf", "allOf"];

/** Keywords of strings, of which the library reads one group. */
const STRINGS = [["format"], ["pattern"], ["minLength", "maxLength"]];

const BOUNDS = ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"];

/** Largest schema as JSON, and deepest. */
const MAX_BYTES = 64 << 10, MAX_DEPTH = 48;

/**
 * A schema as the library is to read it: without a `format` beside a `pattern`, which it would leave out for
 * the format, an annotation by the standard.
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
  const read = JSON.parse(text, (_, value) => {
    if (typeof value?.pattern !== "string" || typeof value.format !== "string") return value;
    const { format: _format, ...rest } = value;
    return rest;
  });
  requireKeywords(read);
  return read;
}

function requireKeywords(schema: unknown): void {
  if (Array.isArray(schema)) return schema.forEach(requireKeywords);
  if (!isObject(schema)) return;
  requireEnforced(schema);
  for (const [keyword, value] of Object.entries(schema)) {
    if (UNSUPPORTED.has(keyword) && value !== false) {
      throw new DataError(`the schema keyword "${keyword}" is not supported`);
    }
    if (DATA.has(keyword)) continue;
    if (!NAMED.has(keyword) || !isObject(value)) requireKeywords(value);
    else {
      // The library writes names as they are into a grammar.
      const wrong = Object.keys(value).find((name) => JSON.stringify(name) !== `"${name}"`);
      if (wrong !== undefined) throw new DataError(`the name ${show(wrong)} is not supported`);
      Object.values(value).forEach(requireKeywords);
    }
  }
}

/** Refuses keywords that the library leaves out beside others, or for a type. */
function requireEnforced(schema: JsonObject): void {
  const keywords = Object.keys(schema).filter((keyword) => !ANNOTATIONS.has(keyword));
  const refuse = (keyword: string, where: string) => {
    throw new DataError(`the schema keyword "${keyword}" is not supported ${where}`);
  };
  const alone = ALONE.find((keyword) => keywords.includes(keyword));
  if (alone !== undefined) {
    const values = alone === "const" ? [schema.const] : alone === "enum" ? schema.enum : [];
    const isSaid = (keyword: string) => keyword === "type" && isOfType(values, schema.type);
    const other = keywords.find((keyword) => keyword !== alone && !isSaid(keyword));
    if (other !== undefined) refuse(other, `beside "${alone}"`);
    const parts = schema.allOf;
    if (Array.isArray(parts) && parts.length > 1) refuse("allOf", "with several schemas");
  }
  const types = [schema.type].flat();
  const bound = BOUNDS.find((keyword) => keywords.includes(keyword));
  if (bound !== undefined && (types.includes("number") || !types.includes("integer"))) {
    refuse(bound, "for numbers that are not of type integer");
  }
  const [, second] = STRINGS.map((group) => group.find((keyword) => keywords.includes(keyword)))
    .filter((keyword) => keyword !== undefined);
  if (second !== undefined) refuse(second, "beside another keyword of strings");
  const { required, properties = {} } = schema;
  if (!Array.isArray(required) || !isObject(properties)) return;
  const unknown = required.find((name) => !Object.hasOwn(properties, name));
  if (unknown !== undefined) refuse("required", `for ${show(unknown)}, which is no property`);
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
