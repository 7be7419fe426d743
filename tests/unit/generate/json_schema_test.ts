/** Structured output of a model with random weights. */
import { assert, assertEquals } from "@std/assert";
import { openModel } from "../../../mod.ts";
import { FIXTURES } from "../../fixtures.ts";

const MODEL = `${FIXTURES}models/tiny-qwen2`;

const object = (properties: Record<string, unknown>) => {
  const required = Object.keys(properties);
  return { type: "object", properties, required, additionalProperties: false };
};

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
