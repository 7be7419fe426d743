/**
 * Constraint of a text: JSON, a JSON Schema, or tool calls between other text.
 *
 * The library ignores keywords that it does not know, so that an answer could break them: such schemas
 * are refused here, as are those that are too large to be honest.
 */
import { DataError } from "../base/errors.ts";
import { isObject, jsonDepth, show } from "../base/files.ts";

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

/** Largest schema as JSON, and deepest. */
const MAX_BYTES = 64 << 10, MAX_DEPTH = 48;

/** @throws {DataError} for a schema that a grammar cannot enforce */
export function requireSupported(schema: unknown): void {
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
  requireKeywords(schema);
}

function requireKeywords(schema: unknown): void {
  if (Array.isArray(schema)) return schema.forEach(requireKeywords);
  if (!isObject(schema)) return;
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
