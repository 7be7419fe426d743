/** Structured output: answers of a model with random weights match their schema. */
import { assert, assertEquals, assertMatch, assertRejects } from "@std/assert";
import { fileURLToPath } from "node:url";
import { Ajv2020 } from "npm:ajv@8.20.0/dist/2020.js";
import { DataError, openModel } from "../../../mod.ts";

const MODEL = fileURLToPath(new URL("../../../fixtures/models/tiny-qwen2", import.meta.url));
const SEEDS = 3;

const text = { type: "string", maxLength: 12 };
const list = (items: unknown, maxItems = 3) => ({ type: "array", items, maxItems });
const object = (properties: Record<string, unknown>, required = Object.keys(properties)) => ({
  type: "object",
  properties,
  required,
  additionalProperties: false,
});
const node = { $ref: "#/$defs/node" };

const SCHEMAS: readonly object[] = [
  object({ a: text }),
  object({ a: text, b: text }, []),
  object({ a: { type: "integer" } }),
  object({ a: { type: "integer", minimum: 0, maximum: 120 } }),
  object({ a: { type: "integer", minimum: -5, maximum: 5 } }),
  object({ a: { type: "integer", exclusiveMinimum: 3, maximum: 400 } }),
  object({ a: { type: "boolean" }, b: { type: "null" } }),
  object({ a: { enum: ["red", "green", 3, null] } }),
  object({ a: { const: "fixed" } }),
  object({ a: { const: { x: [1, 2] } } }),
  object({ a: list(text) }),
  object({ a: list({ type: "integer", minimum: 0, maximum: 9 }, 5) }),
  object({ a: { ...list({ type: "boolean" }), minItems: 2 } }),
  object({ a: list(list({ type: "boolean" }, 2), 2) }),
  object({ a: object({ b: object({ c: object({ d: { type: "boolean" } }) }) }) }),
  object({ a: { anyOf: [{ type: "boolean" }, object({ b: { type: "null" } })] } }),
  object({ a: { type: ["boolean", "null"] } }),
  object({ a: { type: "string", pattern: "^[a-f]{3}$" } }),
  object({ a: { type: "string", pattern: "^(yes|no)$" } }),
  object({ a: { type: "string", minLength: 2, maxLength: 4 } }),
  object({ a: { type: "string", format: "email", pattern: "^[ab]+@[ab]+[.][ab]+$" } }),
  object({ a: { type: "string", format: "uuid" } }),
  object({ "a key, with spaces": { type: "boolean" } }),
  object({ "schlüssel": { enum: ["größer", "日本", "🙂"] } }),
  object({ a: { type: "boolean" }, b: { type: "boolean" }, c: { type: "boolean" } }, ["b"]),
  { ...object({ a: node }), $defs: { node: object({ b: { type: "boolean" } }) } },
  { ...object({ a: list(node, 2) }), $defs: { node: object({ b: { enum: [1, 2] } }) } },
  { ...node, $defs: { node: object({ v: { type: "boolean" }, next: { type: "null" } }) } },
  { type: "array", prefixItems: [{ type: "boolean" }, { enum: ["x"] }], items: false, minItems: 2 },
  list({ enum: ["a", "b"] }),
  { ...list({ type: "boolean" }), minItems: 1 },
  { enum: ["one", "two"] },
  { type: "boolean" },
  { const: 7 },
  { type: "integer", minimum: 10, maximum: 99 },
  { anyOf: [{ type: "boolean" }, { type: "null" }] },
  { oneOf: [{ const: "a" }, { const: "b" }] },
  object({ a: { description: "not a keyword that matters", type: "boolean" } }),
  object({ if: { type: "boolean" }, not: { type: "boolean" } }),
  object({ a: { type: "number" } }),
  object({ a: { type: "integer", minimum: 5 }, b: { type: "integer", maximum: -20 } }),
  { const: "a", enum: ["a"], type: "string", example: "a" },
  object({ a: { type: "string", format: "uri", minLength: 1, maxLength: 9 } }),
  { const: { pattern: "a", format: "b" } },
];

Deno.test("every finished answer to 44 schemas is valid by another validator", async () => {
  using model = await openModel(MODEL, { device: "cpu" });
  const finished = new Set<number>();
  for (const [at, jsonSchema] of SCHEMAS.entries()) {
    const validate = new Ajv2020({ strict: false, validateFormats: false }).compile(jsonSchema);
    const options = { jsonSchema, temperature: 1, maxTokens: 160, seed: at };
    const prompts = Array.from({ length: SEEDS }, (_, i) => `${i}:`);
    for (const { text, finishReason } of await model.completeAll(prompts, options)) {
      if (finishReason === "length") continue;
      finished.add(at);
      assert(validate(JSON.parse(text)), `${JSON.stringify(jsonSchema)} allowed ${text}`);
    }
  }
  assertEquals(SCHEMAS.length, 44);
  assert(finished.size >= 40, `of ${finished.size} schemas an answer was finished`);
});

Deno.test("calls at the same time give what they give one after the other", async () => {
  using model = await openModel(MODEL, { device: "cpu" });
  const jsonSchema = object({ a: { type: "string", maxLength: 8 }, b: { type: "integer" } });
  const common = { jsonSchema, maxTokens: 16 }, prompts = ["1:", "2:", "3:"];
  const ways: ((prompt: string) => Promise<unknown>)[] = [
    (prompt) => model.complete(prompt, { ...common, temperature: 1, seed: 3 }),
    (prompt) => model.beamSearch(prompt, { ...common, numBeams: 2 }),
  ];
  for (const ask of ways) {
    const alone: unknown[] = [];
    for (const prompt of prompts) alone.push(await ask(prompt));
    assertEquals(await Promise.all(prompts.map(ask)), alone);
  }
});

Deno.test("beams, greedy tokens and any JSON object keep to their grammar", async () => {
  using model = await openModel(MODEL, { device: "cpu" });
  const jsonSchema = object({ a: { enum: ["red", "green"] }, b: { type: "boolean" } });
  const greedy = await model.complete("a", { jsonSchema, maxTokens: 80 });
  assert(["red", "green"].includes(JSON.parse(greedy.text).a));
  const beams = await model.beamSearch("a", { jsonSchema, maxTokens: 80, numBeams: 3 });
  assertEquals(beams.length, 3);
  for (const { text } of beams) assertEquals(typeof JSON.parse(text!).b, "boolean");
  const { text, finishReason } = await model.complete("a", { jsonSchema: true, maxTokens: 40 });
  assert(text.startsWith("{"));
  if (finishReason === "eos") JSON.parse(text);
});

Deno.test("a schema that cannot be enforced is refused by its keyword, and harms no other", async () => {
  using model = await openModel(MODEL, { device: "cpu" });
  let deep: object = { type: "null" };
  for (let level = 0; level < 130; level++) deep = { items: deep };
  const refused: readonly [object, RegExp][] = [
    [{ not: { type: "string" } }, /keyword "not"/],
    [object({ a: { type: "array", uniqueItems: true } }), /keyword "uniqueItems"/],
    [{ type: "number", multipleOf: 0.1 }, /keyword "multipleOf"/],
    [
      { ...object({}), anyOf: [object({ a: {} })] },
      /keyword "anyOf" .* "additionalProperties"/,
    ],
    [{ enum: [1, 2, 3], maximum: 2 }, /keyword "maximum" .* beside "enum"/],
    [{ type: "string", const: 5 }, /keyword "const" .* no value fits/],
    [object({ a: { type: "null" } }, ["z"]), /keyword "required" .* for "z"/],
    [{ type: "strin" }, /keyword "type" .* for "strin"/],
    [{ type: "string", pattern: "(" }, /keyword "pattern" .* Unterminated group/],
    [{ type: "array", minItems: 3, maxItems: 2 }, /keyword "minItems" .* above "maxItems"/],
    [{ $ref: "#/nowhere" }, /keyword "\$ref" .* "#\/nowhere", which does not hold a schema/],
    [{ description: "x".repeat(70_000) }, /at most 65536/],
    [deep, /deeper than 128 levels/],
  ];
  const jsonSchema = object({ a: { type: "boolean" } });
  const running = model.completeAll(["a", "b"], { jsonSchema, maxTokens: 60 });
  for (const [schema, message] of refused) {
    const asked = model.complete("a", { jsonSchema: schema, maxTokens: 4 });
    assertMatch((await assertRejects(() => asked, DataError)).message, message);
  }
  for (const { text } of await running) assertEquals(typeof JSON.parse(text).a, "boolean");
});
