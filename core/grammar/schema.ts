/**
 * JSON Schema (draft 2020-12) as a grammar: which JSON texts are values of a schema.
 *
 * Every keyword is enforced, known as an annotation, or refused by its name. What is allowed is narrower than
 * the standard in that values are written in one way: properties in the order of the schema, and none that it
 * does not name where it names any.
 */
import { DataError } from "../base/errors.ts";
import { exactEntries, exactJsonText } from "../base/exact_json.ts";
import { isObject, jsonDepth, show } from "../base/files.ts";
import { arrayOf, boundsOf, MAX_STATES, objectOf } from "./containers.ts";
import { choice, type Expression, type Grammar, NOTHING, Rules } from "./expression.ts";
import { FORMATS } from "./formats.ts";
import { anyArray, anyObject, anyValue, string } from "./json_text.ts";
import { areApart } from "./schema_apart.ts";
import {
  count,
  type Dropped,
  type Fields,
  list,
  merge,
  names,
  patternsOf,
  read,
  Refusal,
  refuse,
  statedTypes,
  typesOf,
} from "./schema_fields.ts";
import {
  constants,
  constantsOf,
  integerOf,
  listedIn,
  numberOf,
  textOfPatterns,
  uniqueList,
} from "./schema_values.ts";
import { References } from "./schema_references.ts";

/** Largest schema as JSON, and deepest. */
const MAX_BYTES = 64 << 10, MAX_DEPTH = 128;

/** Most schemas that are joined with others, and most pairs that are compared. */
const MAX_JOINED = 2000, MAX_COMPARED = 10_000;

/**
 * The grammar of a schema.
 * @throws {DataError} for a schema that is not supported, which names the keyword
 */
export function schemaGrammar(schema: unknown, options?: SchemaOptions): Grammar {
  const rules = new Rules();
  addSchema(schema, rules, options);
  return rules.grammar();
}

/** Parts of a schema that hold. */
export interface SchemaOptions {
  /** Keywords that are left out. */
  readonly dropped?: Dropped;
  /** True where values other than objects are left out. */
  readonly isObject?: boolean;
}

/** The values of a schema, among other rules. */
export function addSchema(schema: unknown, rules: Rules, options: SchemaOptions = {}): Expression {
  const text = exactJsonText(schema);
  if (text.length > MAX_BYTES) {
    throw new DataError(`the schema has ${text.length} characters, at most ${MAX_BYTES} are taken`);
  }
  if (jsonDepth(text) > MAX_DEPTH) {
    throw new DataError(`the schema nests deeper than ${MAX_DEPTH} levels`);
  }
  if (!isObject(schema) && typeof schema !== "boolean") {
    throw new DataError("a schema is a JSON object");
  }
  return new Translator(schema, rules, options).root;
}

const NO_FIELDS: Fields = new Map();
const OBJECT: Fields = new Map([["type", { value: "object", number: undefined }]]);

class Translator {
  readonly root: Expression;
  readonly #references: References;
  readonly #strings = new Map<string, Expression>();
  /** Schemas that were joined so far, and pairs that were compared. */
  #joined = 0;
  #compared = 0;
  #depth = 0;

  constructor(
    schema: unknown,
    private readonly rules: Rules,
    private readonly options: SchemaOptions,
  ) {
    this.#references = new References(schema);
    this.root = options.isObject
      ? rules.named(options, () => this.#value(schema, OBJECT))
      : this.#named(schema);
  }

  /** The rule of a schema that may be referred to. */
  #named(schema: unknown): Expression {
    return this.rules.named(schema, () => this.#value(schema, NO_FIELDS));
  }

  /** The values of a schema, in its own rule where there are fields to join it with. */
  #value(schema: unknown, others?: Fields): Expression {
    if (schema === true) return others === OBJECT ? anyObject(this.rules) : anyValue(this.rules);
    if (schema === false) return NOTHING;
    // What is joined with a reference may lead back here.
    if (!others && isObject(schema) && "$ref" in schema) return this.#named(schema);
    return this.#noting(schema, () => {
      const fields = this.#fields(schema);
      return this.#ofFields(others ? merge(fields, others, "type") : fields);
    });
  }

  #fields(schema: unknown): Fields {
    const isRoot = this.#references.root === schema;
    return this.#noting(schema, () => read(schema, isRoot, this.options.dropped));
  }

  /** Notes the schema of a refusal. */
  #noting<T>(schema: unknown, work: () => T): T {
    try {
      return work();
    } catch (error) {
      if (error instanceof Refusal && isObject(schema)) error.schema ??= schema;
      throw error;
    }
  }

  #ofFields(fields: Fields): Expression {
    if (fields.has("$ref")) return this.#reference(fields);
    if (fields.has("allOf")) return this.#ofJoined(this.#all(fields), "allOf");
    if (fields.has("anyOf")) return choice(...this.#alternatives(fields, "anyOf"));
    if (fields.has("oneOf")) return this.#one(fields);
    if (fields.has("const") || fields.has("enum")) return constants(fields);
    const types = typesOf(fields);
    if (!types) return anyValue(this.rules);
    return choice(...types.map((type) => this.#ofType(type, fields, types)));
  }

  #ofType(type: string, fields: Fields, types: readonly string[]): Expression {
    switch (type) {
      case "string":
        return this.#string(fields);
      case "number":
        return numberOf(fields, this.rules);
      case "integer":
        return types.includes("number") ? NOTHING : integerOf(fields, this.rules);
      case "boolean":
        return choice("true", "false");
      case "null":
        return "null";
      case "array":
        return this.#array(fields);
      default:
        return this.#object(fields);
    }
  }

  #reference(fields: Fields): Expression {
    const { given, others } = without(fields, "$ref");
    if (others.size === 0) return this.#named(this.#references.target(given));
    const joined = this.#resolved(fields);
    return typeof joined === "boolean" ? this.#value(joined) : this.#ofJoined(joined, "$ref");
  }

  /** A schema as fields, joined with those of the one that it refers to. */
  #read(schema: unknown, steps = 0): Fields | boolean {
    return typeof schema === "boolean" ? schema : this.#resolved(this.#fields(schema), steps);
  }

  #resolved(fields: Fields, steps = 0): Fields | boolean {
    if (!fields.has("$ref")) return fields;
    if (steps > MAX_DEPTH) refuse("$ref", "where it leads back to itself");
    const { given, others } = without(fields, "$ref");
    const target = this.#read(this.#references.target(given), steps + 1);
    if (others.size === 0 || target === false) return target;
    return target === true ? others : this.#merge(target, others, "$ref");
  }

  /** All schemas of `allOf`, and what stands beside it, as one. */
  #all(fields: Fields): Fields {
    const { given, others } = without(fields, "allOf");
    const parts = list("allOf", given).map(([part]) => part);
    // A lone reference keeps its rule, so that it may lead back here.
    if (parts.length === 1 && others.size === 0 && isObject(parts[0])) {
      return this.#fields(parts[0]);
    }
    return parts.map((part) => this.#read(part)).reduce<Fields>((all, part) => {
      if (part === true) return all;
      if (part === false) return refuse("allOf", "with false");
      // Of an object alone, its own type says no more.
      return all.size === 0 ? part : this.#merge(all, part, "allOf");
    }, others);
  }

  /** The alternatives, each with what stands beside the keyword. */
  #alternatives(fields: Fields, keyword: "anyOf" | "oneOf"): Expression[] {
    const { given, others } = without(fields, keyword);
    return list(keyword, given).map(([part]) => {
      if (others.size === 0 || part === false) return this.#value(part);
      const one = this.#read(part);
      return typeof one === "boolean"
        ? this.#ofFields(others)
        : this.#ofJoined(this.#merge(others, one, keyword), keyword);
    });
  }

  /** A schema may join itself to others without end, or many with many. */
  #merge(one: Fields, other: Fields, keyword: string): Fields {
    if (this.#joined++ > MAX_JOINED) {
      refuse(keyword, `with more than ${MAX_JOINED} schemas to combine`);
    }
    return merge(one, other, keyword);
  }

  /** The values of schemas that were joined, which may be joined with others in turn. */
  #ofJoined(fields: Fields, keyword: string): Expression {
    if (++this.#depth > MAX_DEPTH) refuse(keyword, "where it leads back to itself");
    const values = this.#ofFields(fields);
    this.#depth--;
    return values;
  }

  /** One alternative and no other, which only holds where no two have a value in common. */
  #one(fields: Fields): Expression {
    const parts = list("oneOf", fields.get("oneOf")!.value).map(([part]) => part)
      .filter((part) => part !== false).map((part) => this.#read(part));
    const resolve = (schema: unknown) => {
      if (this.#compared++ > MAX_COMPARED) {
        refuse("oneOf", `with more than ${MAX_COMPARED} pairs to compare`);
      }
      return this.#read(schema);
    };
    const overlaps = parts.some((one, i) =>
      parts.slice(i + 1).some((other) => !areApart(one, resolve(true) && other, resolve))
    );
    if (overlaps) refuse("oneOf", "with alternatives that may have a value in common");
    return choice(...this.#alternatives(fields, "oneOf"));
  }

  #string(fields: Fields): Expression {
    const [min, max] = [count(fields, "minLength", 0), count(fields, "maxLength", Infinity)];
    const pattern = fields.get("pattern"), format = fields.get("format")?.value;
    const patterns = [
      ...pattern ? patternsOf(pattern) : [],
      ...format === undefined ? [] : [FORMATS.get(String(format))!],
    ];
    if (patterns.length === 0 && min === 0 && max === Infinity) {
      return this.rules.named("any string", () => string());
    }
    const key = JSON.stringify([patterns, min, max]);
    return this.#strings.getOrInsertComputed(key, () =>
      this.rules.shared(
        patterns.length === 0
          ? string(min, max)
          : textOfPatterns(patterns, { min, max }, this.rules),
      ));
  }

  #array(fields: Fields): Expression {
    const [min, max] = [count(fields, "minItems", 0), count(fields, "maxItems", Infinity)];
    const given = fields.get("prefixItems");
    const prefix = given ? list("prefixItems", given.value).map(([one]) => this.#value(one)) : [];
    if (prefix.length > MAX_STATES) refuse("prefixItems", `with more than ${MAX_STATES} items`);
    const stated = fields.get("items")?.value;
    if (Array.isArray(stated)) refuse("items", "as a list: prefixItems is");
    if (fields.has("unevaluatedItems") && fields.get("unevaluatedItems")!.value !== false) {
      refuse("unevaluatedItems", "unless it is false");
    }
    const isOpen = (prefix.length === 0 || min > prefix.length) && !fields.has("unevaluatedItems");
    const items = stated !== undefined
      ? this.#value(stated)
      : isOpen
      ? anyValue(this.rules)
      : NOTHING;
    if (min > max) refuse("minItems", 'above "maxItems"');
    if (fields.has("uniqueItems") && max > 1) {
      const values = prefix.length > 0 ? undefined : this.#valuesOf(stated);
      if (!values) refuse("uniqueItems", "unless items are an enum or at most one");
      return uniqueList(values!, { min, max }, this.rules);
    }
    if (isOpen && stated === undefined && min === 0 && max === Infinity) {
      return anyArray(this.rules);
    }
    return arrayOf({ prefix, items, min, max }, this.rules);
  }

  /** The values of an enum, as expressions; undefined for other schemas. */
  #valuesOf(schema: unknown): Expression[] | undefined {
    const fields = schema === undefined ? true : this.#read(schema);
    if (typeof fields === "boolean") return undefined;
    if (fields.has("const") || fields.has("enum")) return constantsOf(fields);
    const types = statedTypes(fields);
    if (!types?.every((type) => type === "boolean" || type === "null")) return undefined;
    return types.flatMap((type) => type === "null" ? ["null"] : ["true", "false"]);
  }

  #object(fields: Fields): Expression {
    const required = names(fields.get("required")?.value ?? []);
    const { properties, rest, key } = this.#names(fields);
    const others = [...required].filter((name) => !Object.hasOwn(properties, name));
    if (others.length > 0 && rest === false) {
      refuse("required", `for ${show(others[0])}, which is not a property`);
    }
    const declared = exactEntries(properties);
    const bounds = boundsOf(fields, declared.length + others.length, required.size, rest !== false);
    const isAny = declared.length + others.length === 0 && rest === true && !key;
    if (isAny && bounds.min === 0 && bounds.max === Infinity) return anyObject(this.rules);
    const additional = this.#value(rest);
    const all = [
      ...declared.map(([name, schema]) => ({ name, value: this.#value(schema) })),
      ...others.map((name) => ({ name, value: additional })),
    ].map((property) => ({ ...property, isRequired: required.has(property.name) }));
    const long = all.find(({ name }) => name.length > 1000);
    if (long) refuse("properties", "with names of more than 1000 characters");
    return objectOf({ properties: all, additional, key, ...bounds }, this.rules);
  }

  /** Properties by name, the schema of others, and the names of those, where they are not any. */
  #names(fields: Fields): {
    readonly properties: Record<string, unknown>;
    readonly rest: unknown;
    readonly key?: Expression;
  } {
    const given = fields.get("properties")?.value ?? {};
    if (!isObject(given)) return refuse("properties", "unless it is an object");
    const rest = this.#additional(fields);
    const patterns = fields.get("patternProperties")?.value;
    const allowed = fields.get("propertyNames")?.value;
    if (patterns !== undefined) {
      const [entry, ...more] = isObject(patterns) ? exactEntries(patterns) : [];
      const isAlone = more.length === 0 && !fields.has("properties") && allowed === undefined;
      if (
        !entry || !isAlone || fields.has("required") ||
        rest === true && fields.has("additionalProperties")
      ) {
        return refuse("patternProperties", "but for one pattern alone");
      }
      const key = this.#string(new Map([["pattern", { value: entry[0], number: undefined }]]));
      return { properties: {}, rest: entry[1], key };
    }
    const names = allowed === undefined ? true : this.#read(allowed);
    if (names === true) return { properties: given, rest };
    if (names === false || names.size > 0 && statedTypes(names)?.includes("string") === false) {
      return { properties: {}, rest: false };
    }
    if (names.has("const") || names.has("enum")) {
      const listed = listedIn(names).map(({ value }) => value)
        .filter((name) => typeof name === "string")
        .map((name) => [name, Object.hasOwn(given, name) ? given[name] : rest] as const);
      return { properties: Object.fromEntries(listed), rest: false };
    }
    const others = [...names.keys()].filter((one) => one !== "type");
    if (others.length === 0) return { properties: given, rest };
    if (!others.every((one) => ["pattern", "format", "minLength", "maxLength"].includes(one))) {
      refuse("propertyNames", "but for strings");
    }
    if (Object.keys(given).length > 0 || fields.has("required")) {
      refuse("propertyNames", 'with a pattern or length beside "properties" or "required"');
    }
    return { properties: {}, rest, key: this.#string(names) };
  }

  /** The schema of properties without a name; false where there are none. */
  #additional(fields: Fields): unknown {
    const stated = fields.get("additionalProperties"), rest = fields.get("unevaluatedProperties");
    if (stated) return stated.value;
    if (rest && rest.value !== false) refuse("unevaluatedProperties", "unless it is false");
    return !rest && !fields.has("properties");
  }
}

/** Fields but for one, and that one. */
function without(fields: Fields, keyword: string): { given: unknown; others: Fields } {
  const others = new Map(fields);
  others.delete(keyword);
  return { given: fields.get(keyword)!.value, others };
}
