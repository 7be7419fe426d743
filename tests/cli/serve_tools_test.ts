/** Tool calls by `parscale serve`, written by a model with random weights under a grammar. */
import { assert, assertEquals, assertMatch } from "@std/assert";
import OpenAI from "npm:openai@6.49.0";
import { CHAT_MODEL, TestServer } from "./serve_testing.ts";
import { withTools } from "./serve_tools_testing.ts";

const parameters = {
  type: "object",
  properties: {
    city: { enum: ["Paris", "Rome"] },
    days: { type: "integer", minimum: 1, maximum: 9 },
  },
  required: ["city", "days"],
};
const nothing = { type: "object", properties: {}, additionalProperties: false };
const tool = (name: string, more = {}) => ({ type: "function", function: { name, ...more } });
const tools = [
  tool("get_weather", { parameters, description: "Forecast" }),
  tool("list_cities", { parameters: nothing }),
];
const named = (name: string) => ({ type: "function", function: { name } });
const messages = [{ role: "user", content: "Is it sunny?" }];
const asked = { messages, tools, max_tokens: 250, temperature: 1, seed: 5 };

/** Arguments of a call, which must match the tool's schema. */
function assertWeather({ name, arguments: text }: { name: string; arguments: string }): void {
  assertEquals(name, "get_weather");
  const { city, days, ...others } = JSON.parse(text);
  assert(["Paris", "Rome"].includes(city) && days >= 1 && days <= 9, text);
  assertEquals(others, {});
}

Deno.test("a tool that must be called is called with arguments of its schema, whole and streamed", () =>
  withTools(async (server) => {
    const one = { ...asked, tool_choice: named("get_weather") };
    const { choices: [{ message, finish_reason }] } = await server.chat(one);
    assertEquals([message.content, message.tool_calls.length], [null, 1]);
    assertMatch(message.tool_calls[0].id, /^call_\w+$/);
    assertWeather(message.tool_calls[0].function);
    assertEquals(finish_reason, "tool_calls");
    const { usage } = await server.chat({ ...asked, tool_choice: "auto", max_tokens: 1 });
    const { count } = await server.json("/tokenize", { messages, tools });
    assertEquals(count, usage.prompt_tokens, "tools are part of the prompt");

    const frames = await server.frames("/v1/chat/completions", one);
    const pieces = frames.map(({ choices: [choice] }) => choice.delta.tool_calls ?? []);
    assert(pieces.every(({ length }) => length < 2), "a delta has one piece of a call");
    const deltas = pieces.flat();
    assertEquals(deltas[0].function.name, "get_weather");
    const text = deltas.map((delta) => delta.function.arguments).join("");
    assertEquals(text, message.tool_calls[0].function.arguments);
    assert(deltas.length > 2, "arguments come as they are written");
    assertEquals(frames.at(-1).choices[0].finish_reason, "tool_calls");
    assert(frames.every(({ choices: [choice] }) => !choice.delta.content));
  }));

Deno.test("required tools are called once where calls are not parallel; none and auto are free", () =>
  withTools(async (server) => {
    const required = { ...asked, tool_choice: "required", parallel_tool_calls: false };
    for (const seed of [1, 2, 3]) {
      const { choices: [{ message }] } = await server.chat({ ...required, seed });
      assertEquals(message.tool_calls.length, 1);
      assert(["get_weather", "list_cities"].includes(message.tool_calls[0].function.name));
      assertEquals(typeof JSON.parse(message.tool_calls[0].function.arguments), "object");
    }
    const free = { ...asked, max_tokens: 8 };
    const auto = await server.chat(free);
    const none = await server.chat({ ...free, tool_choice: "none" });
    assertEquals(auto.choices[0].finish_reason, "length");
    assert(
      none.usage.prompt_tokens < auto.usage.prompt_tokens,
      "unused tools are not in the prompt",
    );
  }));

Deno.test("the OpenAI client runs tools: their results go back through the template", () =>
  withTools(async (server) => {
    const client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: "none" });
    const { id: model } = (await client.models.list()).data[0]!;
    const calls: unknown[] = [];
    const runner = client.chat.completions.runTools({
      model,
      messages: [{ role: "user", content: "Is it sunny?" }],
      max_tokens: 250,
      temperature: 1,
      seed: 5,
      tool_choice: { type: "function", function: { name: "get_weather" } },
      tools: [{
        type: "function",
        function: {
          name: "get_weather",
          description: "Forecast",
          parameters,
          parse: JSON.parse,
          function: (given: unknown) => {
            calls.push(given);
            return "sunny";
          },
        },
      }],
    });
    await runner.done();
    assertEquals(calls.length, 1);
    assertWeather({ name: "get_weather", arguments: JSON.stringify(calls[0]) });
    assertEquals(runner.messages.at(-1), {
      role: "tool",
      tool_call_id: (runner.messages.at(-2) as { tool_calls: { id: string }[] }).tool_calls[0]!.id,
      content: "sunny",
    });
    const next = await server.chat({ messages: runner.messages, tools, max_tokens: 4 });
    assertEquals(next.choices[0].finish_reason, "length");
  }));

Deno.test("tools that are wrong, too many, or unknown to the template are refused by their field", () =>
  withTools(async (server) => {
    const cases: readonly [Record<string, unknown>, string][] = [
      [{ tools: [{ type: "function" }] }, "tools[0]"],
      [{ tools: [tool("a b")] }, "tools[0]"],
      [{ tools: Array(200).fill(tool("a")) }, "tools"],
      [{ tools: [tool("a", { description: "x".repeat(200_000) })] }, "tools"],
      [{ tools: [tool("a", { strict: true, parameters: { not: {} } })] }, "tools[0]"],
      [{ tool_choice: named("nothing") }, "tool_choice"],
      [{ tools: [], tool_choice: "required" }, "tool_choice"],
      [{ response_format: { type: "json_object" } }, "response_format"],
      [{ messages: [{ role: "assistant", tool_calls: [{ function: {} }] }] }, "messages[0]"],
    ];
    for (const [fields, param] of cases) {
      const { error } = await server.chat({ ...asked, ...fields });
      assertEquals([error?.param, error?.type], [param, "invalid_request_error"]);
    }
    await using plain = await TestServer.start(["--model", CHAT_MODEL]);
    const { error } = await plain.chat(asked);
    assertMatch(error.message, /^the chat template of this model has no tools: `serve --chat-t/);
  }));
