/** Random schemas over the keywords that are supported, and some that are not. */
import { RandomStream } from "../../core/base/random.ts";

/** Random choices by a seed. */
export class Dice {
  readonly #random: RandomStream;

  constructor(seed: number) {
    this.#random = new RandomStream(seed, 0);
  }

  /** A number from 0 up to 1. */
  next(): number {
    return this.#random.uniform();
  }

  below(count: number): number {
    return Math.floor(this.next() * count);
  }

  is(probability: number): boolean {
    return this.next() < probability;
  }

  one<T>(options: readonly T[]): T {
    return options[this.below(options.length)]!;
  }
}

const NAMES = [
  "a",
  "b",
  "2",
  "1",
  "long name",
  'quo"te',
  "é",
  "🙂",
  "a/b",
  "ab",
  "back\\slash",
  "$ref",
];
const TEXTS = [
  "",
  "a",
  "yes",
  "x y",
  'say "hi"',
  "back\\slash",
  "line\nend",
  "tab\t",
  "é🙂",
  "\u0001\u007f",
  "日本",
];

/** Patterns with texts that match them. */
export const PATTERNS: readonly (readonly [string, readonly string[]])[] = [
  ["^yes$|^no$", ["yes", "no"]],
  ["^(yes|no)$", ["yes", "no"]],
  ["^[^,]+$", ["a", 'say "hi"\n', "é🙂\\"]],
  ["^[a-f]{3}$", ["abc", "fff"]],
  ["b", ["b", "abc", '"b"']],
  ["^.*$", ["", "a\\b", '"']],
  ["\\S", ["a", ' "', "\n\\"]],
  ["^\\d{3}-\\d{4}$", ["555-1234"]],
  ["^[A-Z][a-z]*( [A-Z][a-z]*){0,3}$", ["Ada Lovelace", "X"]],
  ["^\\w+@\\w+\\.com$", ["ab_1@example.com"]],
  ["^(a|bc)*?d?$", ["abcd", "", "bcbc"]],
  ["[\\u00e0-\\u00ff]$", ["é", "xyzé"]],
  ["^\\u{1F642}+$", ["🙂", "🙂🙂"]],
  ["^[\\s\\S]{2}$", ["a\n", '""', "🙂é"]],
  ["^(?:[0-9]|[1-9][0-9])$", ["7", "42"]],
  ['^["\\\\\\n]+$', ['"', "\\\\", '\n"']],
];

export const FORMATS: readonly (readonly [string, readonly string[]])[] = [
  ["date", ["2024-02-29", "1999-12-31"]],
  ["time", ["23:59:59Z", "00:00:00.5+01:00"]],
  ["date-time", ["2024-02-29T12:00:00Z"]],
  ["uuid", ["123e4567-e89b-12d3-a456-426614174000"]],
  ["ipv4", ["127.0.0.1", "255.255.255.255"]],
  ["email", ["a.b@example.org"]],
  ["uri", ["https://example.org/a?b", "any text"]],
];

export type Schema = Record<string, unknown>;

/** A random schema, which may be one that is refused. */
export function randomSchema(dice: Dice): Schema {
  const defs: Schema = {};
  if (dice.is(0.3)) {
    defs["a/b"] = schemaOf(dice, 1, []);
    defs.node = {
      type: "object",
      properties: {
        value: schemaOf(dice, 2, []),
        next: { anyOf: [{ type: "null" }, { $ref: "#/$defs/node" }] },
      },
      required: ["value"],
    };
    defs.named = { ...schemaOf(dice, 2, []), $anchor: "anchor" };
  }
  const references = Object.keys(defs).length > 0
    ? ["#/$defs/a~1b", "#/$defs/node", "#anchor"]
    : [];
  const schema = schemaOf(dice, 0, references);
  return references.length > 0 ? { ...schema, $defs: defs } : schema;
}

function schemaOf(dice: Dice, depth: number, references: readonly string[]): Schema {
  const inner = () => schemaOf(dice, depth + 1, references);
  const flat = [
    "string",
    "length",
    "pattern",
    "format",
    "integer",
    "number",
    "boolean",
    "null",
    "enum",
    "const",
  ];
  const nested = [
    "object",
    "object",
    "object",
    "array",
    "array",
    "anyOf",
    "oneOf",
    "allOf",
    "list",
    "odd",
  ];
  const kind = dice.one(depth < 3 && dice.is(depth === 0 ? 0.85 : 0.5) ? nested : flat);
  if (references.length > 0 && depth > 0 && dice.is(0.25)) {
    const beside = dice.one<Schema>([{}, {}, { title: "x" }, { type: "object" }, {
      format: "date",
    }]);
    return { $ref: dice.one(references), ...beside };
  }
  switch (kind) {
    case "length": {
      const min = dice.below(5), max = min + dice.below(12);
      return dice.one([
        { type: "string", maxLength: max },
        { type: "string", minLength: min },
        { type: "string", minLength: min, maxLength: max },
      ]);
    }
    case "pattern":
      return { type: "string", pattern: dice.one(PATTERNS)[0] };
    case "format":
      return { type: "string", format: dice.one(FORMATS)[0] };
    case "integer":
      return { type: "integer", ...boundsOf(dice, () => dice.one([9, 100, 500, 5000, 1e6])) };
    case "number":
      return { type: "number", ...boundsOf(dice, () => dice.one([1, 10, 2000]), 3) };
    case "enum":
      return { enum: Array.from({ length: 1 + dice.below(4) }, () => jsonOf(dice, 1)) };
    case "const":
      return { const: jsonOf(dice, 0) };
    case "object":
      return objectSchema(dice, inner);
    case "array":
      return arraySchema(dice, inner);
    case "anyOf":
      return { anyOf: Array.from({ length: 1 + dice.below(3) }, inner) };
    case "oneOf":
      return {
        oneOf: dice.is(0.5)
          ? [{ type: "string" }, { type: "integer" }, { type: "boolean" }].slice(dice.below(2))
          : ["x", "y"].map((kind) => ({
            type: "object",
            properties: { kind: { const: kind }, [`of ${kind}`]: inner() },
            required: ["kind"],
          })),
      };
    case "allOf":
      return dice.one<() => Schema>([
        () => ({ allOf: [inner()], description: "one" }),
        () => ({ allOf: [{ type: "integer" }, { minimum: -5, maximum: 77 }] }),
        () => ({
          allOf: [
            { type: "object", properties: { a: inner() } },
            { type: "object", properties: { b: inner() }, required: ["b"] },
          ],
        }),
      ])();
    case "list":
      return { type: ["string", "null", "integer"].slice(dice.below(2)) };
    case "odd":
      return dice.one<() => Schema>([
        () => ({}),
        () => ({ type: "object" }),
        () => ({ type: "array" }),
        () => ({ not: inner() }),
        () => ({ type: "array", uniqueItems: true }),
        () => ({ type: "array", uniqueItems: true, items: { enum: ["a", "b", 1] }, maxItems: 3 }),
        () => ({ type: "integer", multipleOf: dice.one([2, 3, 10]), minimum: -40, maximum: 500 }),
        () => ({ type: "string", pattern: "^[a-f]+$", minLength: 2, maxLength: 3 }),
        () => ({ type: "string", format: "date", maxLength: dice.one([9, 10]) }),
        () => ({
          type: "object",
          propertyNames: { type: "string" },
          additionalProperties: inner(),
        }),
        () => ({
          type: "object",
          propertyNames: { enum: ["other", "aa"] },
          additionalProperties: inner(),
        }),
        () => ({
          type: "object",
          propertyNames: { minLength: 1, maxLength: 4 },
          additionalProperties: inner(),
        }),
        () => ({
          type: "object",
          properties: { a: inner(), b: inner() },
          additionalProperties: false,
          anyOf: [{ required: ["a"] }, { required: ["b"] }],
        }),
        () => ({ oneOf: Array.from({ length: 64 }, (_, i) => ({ const: `c${i}` })) }),
        () => ({ allOf: [{ type: "integer", minimum: 3 }, { minimum: 5, maximum: 70 }] }),
        ...["contains", "propertyNames", "if", "else", "not", "items", "additionalProperties"].map(
          (keyword) => () => ({
            type: dice.one(["array", "object"]),
            maxItems: 2,
            [keyword]: false,
          }),
        ),
        () => ({ type: "boolean", if: false, else: false }),
        () => ({ type: "string", pattern: "^(?=a)a$" }),
        () => ({ type: "string", pattern: "^a+$", maxLength: 3 }),
        () => ({ if: inner(), then: inner() }),
        () => ({ type: "object", patternProperties: { "^a": inner() } }),
      ])();
    default:
      return { type: kind };
  }
}

function boundsOf(dice: Dice, width: () => number, digits = 0): Schema {
  const round = (value: number) => Number(value.toFixed(digits));
  const low = round((dice.next() - 0.5) * width()), high = round(low + 1 + dice.next() * width());
  return dice.one<Schema>([
    {},
    { minimum: low },
    { maximum: high },
    { minimum: low, maximum: high },
    { exclusiveMinimum: low, exclusiveMaximum: high + 1 },
    { minimum: low, maximum: low + 0.25 > 0 && digits > 0 ? round(low + 0.25) : high },
  ]);
}

function objectSchema(dice: Dice, inner: () => Schema): Schema {
  const names = NAMES.filter(() => dice.is(0.3));
  // Integers come in the order of the text, which only the exact reader keeps.
  const properties = Object.fromEntries(names.map((name) => [name, inner()]));
  const required = names.filter(() => dice.is(0.5));
  const more = dice.one<() => Schema>([
    () => ({}),
    () => ({ additionalProperties: false }),
    () => ({ additionalProperties: true }),
    () => ({ additionalProperties: inner() }),
  ])();
  const counts = dice.one<() => Schema>([
    () => ({}),
    () => ({}),
    () => ({ minProperties: dice.below(4) }),
    () => ({ maxProperties: required.length + dice.below(3) }),
  ])();
  return { type: "object", properties, required, ...more, ...counts };
}

function arraySchema(dice: Dice, inner: () => Schema): Schema {
  const min = dice.below(3), max = min + dice.below(4);
  return dice.one<() => Schema>([
    () => ({ type: "array", items: inner() }),
    () => ({ type: "array", items: inner(), minItems: min, maxItems: max }),
    () => ({ type: "array", prefixItems: [inner(), inner()], minItems: min }),
    () => ({ type: "array", prefixItems: [inner()], items: inner(), minItems: min, maxItems: max }),
    () => ({ type: "array", prefixItems: [inner(), inner()], items: false, minItems: 2 }),
  ])();
}

/** A random JSON value. */
export function jsonOf(dice: Dice, depth: number): unknown {
  const flat = [null, true, false, 0, -1, 1.5, 42, 1e21, 1e-7, ...TEXTS];
  if (depth > 2 || dice.is(0.6)) return dice.one(flat);
  const length = dice.below(3);
  if (dice.is(0.5)) return Array.from({ length }, () => jsonOf(dice, depth + 1));
  return Object.fromEntries(
    Array.from({ length }, () => [dice.one(NAMES), jsonOf(dice, depth + 1)]),
  );
}
