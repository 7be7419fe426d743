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
import { arrayOf, countsOf, MAX_STATES, objectOf } from "./containers.ts";
import { choice, type Expression, type Grammar, NOTHING, oneOfTexts, Rules } from "./expression.ts";
import { FORMATS } from "./formats.ts";
import { anyArray, anyNumber, anyObject, anyValue, constant, string } from "./json_text.ts";
import {
  ceil,
  compare,
  type Decimal,
  decimals,
  floor,
  INTEGER,
  integers,
  MAX_BOUND,
} from "./numbers.ts";
import { patternString } from "./pattern.ts";
import { areApart } from "./schema_apart.ts";
import {
  above,
  below,
  bound,
  count,
  type Fields,
  isOfType,
  list,
  merge,
  names,
  read,
  refuse,
  statedTypes,
  textOf,
  typesOf,
} from "./schema_fields.ts";
import { References } from "./schema_references.ts";

/** Largest schema as JSON, and deepest. */
const MAX_BYTES = 64 << 10, MAX_DEPTH = 48;

/** Most schemas that are joined or compared with others. */
const MAX_JOINED = 2000;

/**
 * The grammar of a schema.
 * @throws {DataError} for a schema that is not supported, which names the keyword
 */
export function schemaGrammar(schema: unknown): Grammar {
  const rules = new Rules();
  addSchema(schema, rules);
  return rules.grammar();
}

/** The values of a schema, among other rules. */
export function addSchema(schema: unknown, rules: Rules): Expression {
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
  return new Translator(schema, rules).root;
}

class Translator {
  readonly root: Expression;
  readonly #references: References;
  /** Schemas that were joined or compared so far. */
  #joined = 0;
  #depth = 0;

  constructor(schema: unknown, private readonly rules: Rules) {
    this.#references = new References(schema);
    this.root = this.#named(schema);
  }

  /** The rule of a schema that may be referred to. */
  #named(schema: unknown): Expression {
    return this.rules.named(schema, () => this.#value(schema));
  }

  /** The values of a schema. */
  #value(schema: unknown): Expression {
    if (schema === true) return anyValue(this.rules);
    if (schema === false) return NOTHING;
    return this.#ofFields(read(schema, this.#references.root === schema));
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
        return this.#number(fields);
      case "integer":
        return types.includes("number") ? NOTHING : this.#integer(fields);
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
    const other = [...fields.keys()].find((keyword) => keyword !== "$ref");
    if (other !== undefined && other !== "format") refuse(other, 'beside "$ref"');
    return this.#named(this.#references.target(fields.get("$ref")!.value));
  }

  /** A schema as fields; those of the one that it refers to, where it does. */
  #read(schema: unknown, steps = 0): Fields | boolean {
    if (typeof schema === "boolean") return schema;
    const fields = read(schema, schema === this.#references.root);
    if (!fields.has("$ref") || fields.size > 1) return fields;
    if (steps > MAX_DEPTH) refuse("$ref", "where it leads back to itself");
    return this.#read(this.#references.target(fields.get("$ref")!.value), steps + 1);
  }

  /** All schemas of `allOf`, and what stands beside it, as one. */
  #all(fields: Fields): Fields {
    const { given, others } = without(fields, "allOf");
    const parts = list("allOf", given).map(([part]) => part);
    // A lone reference keeps its rule, so that it may lead back here.
    if (parts.length === 1 && others.size === 0 && isObject(parts[0])) return read(parts[0], false);
    return parts.map((part) => this.#read(part)).reduce<Fields>((all, part) => {
      if (part === true) return all;
      if (part === false) return refuse("allOf", "with false");
      if (part.has("$ref")) return refuse("$ref", 'in "allOf" beside other keywords');
      return this.#merge(all, part, "allOf");
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

  #merge(one: Fields, other: Fields, keyword: string): Fields {
    this.#countJoined(keyword);
    return merge(one, other, keyword);
  }

  /** The values of schemas that were joined, which may be joined with others in turn. */
  #ofJoined(fields: Fields, keyword: string): Expression {
    if (++this.#depth > MAX_DEPTH) refuse(keyword, "where it leads back to itself");
    const values = this.#ofFields(fields);
    this.#depth--;
    return values;
  }

  /** A schema may join itself to others without end, or many with many. */
  #countJoined(keyword: string): void {
    if (this.#joined++ > MAX_JOINED) {
      refuse(keyword, `with more than ${MAX_JOINED} schemas to combine`);
    }
  }

  /** One alternative and no other, which only holds where no two have a value in common. */
  #one(fields: Fields): Expression {
    const parts = list("oneOf", fields.get("oneOf")!.value).map(([part]) => part)
      .filter((part) => part !== false).map((part) => this.#read(part));
    const resolve = (schema: unknown) => {
      this.#countJoined("oneOf");
      return this.#read(schema);
    };
    const overlaps = parts.some((one, i) =>
      parts.slice(i + 1).some((other) => {
        this.#countJoined("oneOf");
        return !areApart(one, other, resolve);
      })
    );
    if (overlaps) refuse("oneOf", "with alternatives that may have a value in common");
    return choice(...this.#alternatives(fields, "oneOf"));
  }

  #string(fields: Fields): Expression {
    const [min, max] = [count(fields, "minLength", 0), count(fields, "maxLength", Infinity)];
    const pattern = fields.get("pattern")?.value;
    const format = FORMATS.get(String(fields.get("format")?.value));
    const isBounded = fields.has("minLength") || fields.has("maxLength");
    if (pattern !== undefined) {
      if (typeof pattern !== "string") refuse("pattern", "unless it is a text");
      if (isBounded) {
        refuse(fields.has("minLength") ? "minLength" : "maxLength", 'beside "pattern"');
      }
      return this.rules.named(`pattern ${pattern}`, () => patternString(pattern as string));
    }
    if (format !== undefined && !isBounded) {
      return this.rules.named(`pattern ${format}`, () => patternString(format));
    }
    return isBounded ? string(min, max) : this.rules.named("any string", () => string());
  }

  #integer(fields: Fields): Expression {
    const high = least([
      mapped(bound(fields, "maximum"), floor),
      mapped(bound(fields, "exclusiveMaximum"), (value) => ceil(value) - 1n),
    ]);
    const low = least([
      mapped(bound(fields, "minimum"), (value) => -ceil(value)),
      mapped(bound(fields, "exclusiveMinimum"), (value) => -(floor(value) + 1n)),
    ]);
    if (low === undefined && high === undefined) return this.rules.named("integer", () => INTEGER);
    return integers(mapped(low, (value) => -value), high);
  }

  #number(fields: Fields): Expression {
    const next = (keyword: string, neighbour: typeof above) =>
      mapped(
        bound(fields, keyword),
        (value) => neighbour(value) ?? refuse(keyword, `with more than ${MAX_BOUND} digits`),
      );
    const low = stricter([bound(fields, "minimum"), next("exclusiveMinimum", above)], 1);
    const high = stricter([bound(fields, "maximum"), next("exclusiveMaximum", below)], -1);
    return low || high ? decimals(low, high) : anyNumber(this.rules);
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
    const isOpen = prefix.length === 0 && !fields.has("unevaluatedItems");
    const items = stated !== undefined
      ? this.#value(stated)
      : isOpen
      ? anyValue(this.rules)
      : NOTHING;
    if (min > max) refuse("minItems", 'above "maxItems"');
    if (isOpen && stated === undefined && min === 0 && max === Infinity) {
      return anyArray(this.rules);
    }
    return arrayOf({ prefix, items, min, max }, this.rules);
  }

  #object(fields: Fields): Expression {
    const properties = fields.get("properties")?.value ?? {};
    if (!isObject(properties)) return refuse("properties", "unless it is an object");
    const required = names(fields.get("required")?.value ?? []);
    const rest = this.#additional(fields);
    const others = [...required].filter((name) => !Object.hasOwn(properties, name));
    if (others.length > 0 && rest === false) {
      refuse("required", `for ${show(others[0])}, which is not a property`);
    }
    const declared = exactEntries(properties);
    const bounds = boundsOf(fields, declared.length + others.length, required.size, rest !== false);
    const isAny = declared.length + others.length === 0 && rest === true;
    if (isAny && bounds.min === 0 && bounds.max === Infinity) return anyObject(this.rules);
    const additional = this.#value(rest);
    const all = [
      ...declared.map(([name, schema]) => ({ name, value: this.#value(schema) })),
      ...others.map((name) => ({ name, value: additional })),
    ].map((property) => ({ ...property, isRequired: required.has(property.name) }));
    const long = all.find(({ name }) => name.length > 1000);
    if (long) refuse("properties", "with names of more than 1000 characters");
    return objectOf({ properties: all, additional, ...bounds }, this.rules);
  }

  /** The schema of properties without a name; false where there are none. */
  #additional(fields: Fields): unknown {
    const stated = fields.get("additionalProperties"), rest = fields.get("unevaluatedProperties");
    if (stated) return stated.value;
    if (rest && rest.value !== false) refuse("unevaluatedProperties", "unless it is false");
    return !rest && !fields.has("properties");
  }
}

/** Bounds of the number of properties, where they must be counted; `named` properties have a name. */
function boundsOf(
  fields: Fields,
  named: number,
  required: number,
  isOpen: boolean,
): { readonly min: number; readonly max: number } {
  let [min, max] = [count(fields, "minProperties", 0), count(fields, "maxProperties", Infinity)];
  if (min > max) refuse("minProperties", 'above "maxProperties"');
  if (min <= required) min = 0;
  if (!isOpen && max >= named) max = Infinity;
  // Of two properties under one name, one counts.
  if (min > 1 && isOpen) refuse("minProperties", "beside additional properties");
  if ((named + 1) * countsOf({ min, max }) > MAX_STATES) {
    const keyword = min > 1 ? "minProperties" : max < Infinity ? "maxProperties" : "properties";
    refuse(keyword, `for more properties than ${MAX_STATES} states count`);
  }
  return { min, max };
}

/** The values of `const` or `enum`, as far as a type beside them allows. */
function constants(fields: Fields): Expression {
  const keyword = fields.has("const") ? "const" : "enum";
  const other = [...fields.keys()].find((name) =>
    !["const", "enum", "type", "format"].includes(name)
  );
  if (other !== undefined) refuse(other, `beside "${keyword}"`);
  const fixed = fields.get("const"), listed = fields.get("enum");
  const all = listed
    ? list("enum", listed.value).map(([value, number]) => ({ value, number }))
    : [fixed!];
  const types = statedTypes(fields);
  const possible = all.filter((one) =>
    (!fixed || textOf(one) === textOf(fixed)) &&
    (!types || types.some((type) => isOfType(one.value, type)))
  );
  if (possible.length === 0) refuse(keyword, "where no value fits what is beside it");
  const expressions = possible.map((one) => {
    if (Math.abs(Number(one.value)) === Infinity) {
      refuse(keyword, "with a number that is not finite");
    }
    return constant(one.value, one.number);
  });
  const texts = expressions.filter((one) => typeof one === "string");
  return choice(oneOfTexts(texts), ...expressions.filter((one) => typeof one !== "string"));
}

/** Fields but for one, and that one. */
function without(fields: Fields, keyword: string): { given: unknown; others: Fields } {
  const others = new Map(fields);
  others.delete(keyword);
  return { given: fields.get(keyword)!.value, others };
}

function mapped<A, B>(value: A | undefined, to: (value: A) => B): B | undefined {
  return value === undefined ? undefined : to(value);
}

function least(values: readonly (bigint | undefined)[]): bigint | undefined {
  return values.reduce((a, b) => a === undefined || b !== undefined && b < a ? b : a);
}

/** The stricter of two bounds: the greater one by sign 1, the less by −1. */
function stricter(
  [a, b]: readonly [Decimal | undefined, Decimal | undefined],
  sign: number,
): Decimal | undefined {
  if (!a || !b) return a ?? b;
  return sign * compare(a, b) >= 0 ? a : b;
}
