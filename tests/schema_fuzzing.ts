/**
 * Random schemas, random documents of a schema, and random walks through the masks of its grammar, all of
 * which `ajv` checks.
 */
import { fileURLToPath } from "node:url";
import { Ajv2020 } from "npm:ajv@8.20.0/dist/2020.js";
import { DataError } from "../core/base/errors.ts";
import { exactEntries, parseExactJson } from "../core/base/exact_json.ts";
import { isObject } from "../core/base/files.ts";
import { RandomStream } from "../core/base/random.ts";
import { Matcher } from "../core/grammar/matcher.ts";
import { networkOf } from "../core/grammar/network.ts";
import { schemaGrammar } from "../core/grammar/schema.ts";
import { tokenBytes } from "../core/grammar/token_bytes.ts";
import { TokenTrie } from "../core/grammar/token_trie.ts";
import { openTokenizer } from "../core/tokenizer/tokenizer.ts";

const MODEL = fileURLToPath(new URL("../fixtures/models/tiny-qwen2", import.meta.url));

const tokenizer = await openTokenizer(MODEL);
const END = tokenizer.vocabSize;
const vocabulary = tokenBytes(tokenizer, END);
const trie = new TokenTrie([...vocabulary, new Uint8Array()], [END]);

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
const PATTERNS: readonly (readonly [string, readonly string[]])[] = [
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

const FORMATS: readonly (readonly [string, readonly string[]])[] = [
  ["date", ["2024-02-29", "1999-12-31"]],
  ["time", ["23:59:59Z", "00:00:00.5+01:00"]],
  ["date-time", ["2024-02-29T12:00:00Z"]],
  ["uuid", ["123e4567-e89b-12d3-a456-426614174000"]],
  ["ipv4", ["127.0.0.1", "255.255.255.255"]],
  ["email", ["a.b@example.org"]],
  ["uri", ["https://example.org/a?b", "any text"]],
];

type Schema = Record<string, unknown>;

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
  if (references.length > 0 && depth > 0 && dice.is(0.25)) return { $ref: dice.one(references) };
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
        () => ({ type: "integer", multipleOf: 3 }),
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
function jsonOf(dice: Dice, depth: number): unknown {
  const flat = [null, true, false, 0, -1, 1.5, 42, 1e21, 1e-7, ...TEXTS];
  if (depth > 2 || dice.is(0.6)) return dice.one(flat);
  const length = dice.below(3);
  if (dice.is(0.5)) return Array.from({ length }, () => jsonOf(dice, depth + 1));
  return Object.fromEntries(
    Array.from({ length }, () => [dice.one(NAMES), jsonOf(dice, depth + 1)]),
  );
}

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
  const others = rest ?? properties === undefined;
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

/** Counts of what was tried. */
export interface Tried {
  refused: number;
  samples: number;
  documents: number;
}

/** Tokens that bring a text to its end. */
const CLOSING = ['"', "}", "]", '"}', "e", "l", "0"].map((text) => tokenizer.encode(text)[0]!);

/**
 * Tries a schema: texts along its masks are valid, and valid documents are along its masks.
 * @throws an error that shows the schema and the text
 */
export function trySchema(
  schema: Schema,
  dice: Dice,
  { samples, documents }: { readonly samples: number; readonly documents: number },
): Tried {
  const text = JSON.stringify(schema), exact = parseExactJson(text);
  const tried = { refused: 0, samples: 0, documents: 0 };
  let matcher: Matcher;
  try {
    matcher = new Matcher(networkOf(schemaGrammar(exact)), vocabulary, trie);
  } catch (error) {
    if (!(error instanceof DataError)) throw error;
    return { ...tried, refused: 1 };
  }
  const ajv = new Ajv2020({ strict: false, validateFormats: false });
  const validate = ajv.compile(schema);
  for (let i = 0; i < samples; i++) {
    const answer = walk(matcher, i, dice);
    if (answer === undefined) continue;
    tried.samples++;
    if (!validate(JSON.parse(answer))) throw new Error(`${text} allowed ${answer}`);
  }
  for (let i = 0; i < documents; i++) {
    const document = randomDocument(exact, exact, dice);
    if (document === undefined || !validate(JSON.parse(document))) continue;
    tried.documents++;
    const tokens = tokenizer.encode(document);
    for (let length = 0; length <= tokens.length; length++) {
      const next = tokens[length] ?? END;
      const isAllowed = isSet(matcher.mask(samples + i, tokens.slice(0, length)), next);
      if (!isAllowed) throw new Error(`${text} did not allow ${document} at token ${length}`);
    }
  }
  return tried;
}

/** A text of random tokens, or undefined for one that does not come to an end. */
function walk(matcher: Matcher, number: number, dice: Dice): string | undefined {
  const tokens: number[] = [];
  while (tokens.length < 400) {
    const mask = matcher.mask(number, tokens);
    const allowed: number[] = [];
    for (let id = 0; id <= END; id++) if (isSet(mask, id)) allowed.push(id);
    if (allowed.length === 0) throw new Error(`no token after ${tokenizer.decode(tokens)}`);
    const last = allowed.includes(END) && dice.is(0.5);
    const closing = CLOSING.filter((id) => isSet(mask, id));
    if (last) return tokenizer.decode(tokens);
    const next = tokens.length > 20 && closing.length > 0 && dice.is(0.6)
      ? dice.one(closing)
      : dice.one(allowed);
    if (next === END) return tokenizer.decode(tokens);
    tokens.push(next);
  }
}

function isSet(mask: Int32Array, id: number): boolean {
  return (mask[id >> 5]! >> (id & 31) & 1) === 1;
}

/** Schemas in the manner of public programming interfaces, by name. */
export function apiSchemas(): readonly { readonly name: string; readonly schema: Schema }[] {
  const path = new URL("../fixtures/schemas/apis.jsonl", import.meta.url);
  return Deno.readTextFileSync(path).trim().split("\n").map((line) => JSON.parse(line));
}
