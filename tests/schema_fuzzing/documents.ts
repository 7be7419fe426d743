/** Random documents of a schema, as `JSON.stringify` writes them. */
import { exactEntries } from "../../core/base/exact_json.ts";
import { isObject } from "../../core/base/files.ts";
import { type Dice, FORMATS, jsonOf, PATTERNS, type Schema } from "./schemas.ts";

/** The JSON text of a random document of a schema, properties in its order; undefined where that fails. */
export function randomDocument(
  schema: unknown,
  root: unknown,
  dice: Dice,
  depth = 0,
): string | undefined {
  if (schema === true) return JSON.stringify(jsonOf(dice, depth));
  if (!isObject(schema) || depth > 12) return undefined;
  const again = (one: unknown) => randomDocument(one, root, dice, depth + 1);
  if (typeof schema.$ref === "string") return again(targetOf(schema.$ref, root));
  const { anyOf, oneOf, allOf, type, ...rest } = schema;
  for (const alternatives of [anyOf, oneOf]) {
    if (!Array.isArray(alternatives)) continue;
    const one = dice.one(alternatives);
    return again(
      Object.keys(rest).some((key) => key === "properties") ? { ...rest, type, ...one } : one,
    );
  }
  if (Array.isArray(allOf)) {
    const merged = Object.assign({}, ...allOf);
    const properties = Object.assign({}, ...allOf.map((part) => part.properties ?? {}));
    return again(
      allOf.length > 1 && allOf.some((part) => part.properties)
        ? { ...merged, properties }
        : merged,
    );
  }
  if ("const" in schema) return JSON.stringify(schema.const);
  if (Array.isArray(schema.enum)) return JSON.stringify(dice.one(schema.enum));
  const types = type === undefined ? ["properties" in schema ? "object" : "any"] : [type].flat();
  switch (dice.one(types)) {
    case "any":
      return JSON.stringify(jsonOf(dice, depth));
    case "null":
      return "null";
    case "boolean":
      return String(dice.is(0.5));
    case "integer":
    case "number":
      return numberDocument(schema, dice, types.includes("integer"));
    case "string":
      return stringDocument(schema, dice);
    case "array":
      return arrayDocument(schema, dice, again);
    default:
      return objectDocument(schema, dice, again);
  }
}

function numberDocument(schema: Schema, dice: Dice, isInteger: boolean): string {
  const bound = (names: string[]) =>
    names.map((name) => schema[name]).find((value) => value !== undefined) as number;
  const low = bound(["minimum", "exclusiveMinimum"]) ??
    (bound(["maximum", "exclusiveMaximum"]) ?? 100) - 1000;
  const high = bound(["maximum", "exclusiveMaximum"]) ?? low + 2000;
  const value = dice.is(0.2) ? dice.one([low, high]) : low + dice.next() * (high - low);
  if (Math.abs(value) >= 1e21) return String(BigInt(value)); // between bounds without an exponent
  return JSON.stringify(
    isInteger ? Math.round(value) : dice.is(0.5) ? Number(value.toFixed(2)) : value,
  );
}

function stringDocument(schema: Schema, dice: Dice): string {
  const known = [...PATTERNS, ...FORMATS].find(([name]) =>
    name === (schema.pattern ?? schema.format)
  );
  if (known) return JSON.stringify(dice.one(known[1]));
  const { minLength: min = 0, maxLength: max = 20 } = schema as Record<string, number>;
  const length = min + dice.below(max - min + 1);
  const letters = Array.from(
    { length },
    () => dice.one(["a", "b", " ", '"', "\\", "é", "🙂", "\n", "日"]),
  );
  return JSON.stringify(letters.join(""));
}

function arrayDocument(schema: Schema, dice: Dice, again: (one: unknown) => string | undefined) {
  const { prefixItems: prefix = [], items, minItems: min = 0, maxItems } = schema as {
    prefixItems?: unknown[];
    items?: unknown;
    minItems?: number;
    maxItems?: number;
  };
  const isClosed = items === false || items === undefined && prefix.length > 0;
  const most = Math.min(maxItems ?? min + 3, isClosed ? prefix.length : Infinity);
  const length = Math.min(most, min + dice.below(Math.max(1, most - min + 1)));
  const texts = Array.from({ length }, (_, i) => again(prefix[i] ?? items ?? true));
  return texts.includes(undefined) ? undefined : `[${texts.join(",")}]`;
}

function objectDocument(schema: Schema, dice: Dice, again: (one: unknown) => string | undefined) {
  const { properties, required = [], additionalProperties: rest } = schema as {
    properties?: Schema;
    required?: string[];
    additionalProperties?: unknown;
  };
  const members: string[] = [];
  for (const [name, value] of exactEntries(properties ?? {})) {
    if (!required.includes(name) && dice.is(0.4)) continue;
    const text = again(value);
    if (text === undefined && required.includes(name)) return undefined;
    if (text !== undefined) members.push(`${JSON.stringify(name)}:${text}`);
  }
  const others = rest ?? (properties === undefined && !("patternProperties" in schema));
  if (others !== false) {
    for (const name of ["other", "aa", "", "é2", 'q"'].filter(() => dice.is(0.3))) {
      const text = again(others);
      if (text !== undefined) members.push(`${JSON.stringify(name)}:${text}`);
    }
  }
  return `{${members.join(",")}}`;
}

function targetOf(reference: string, root: unknown): unknown {
  if (reference === "#anchor") return (root as { $defs: Schema }).$defs.named;
  return reference.split("/").slice(1).reduce<unknown>(
    (value, step) => (value as Schema)[step.replaceAll("~1", "/")],
    root,
  );
}
