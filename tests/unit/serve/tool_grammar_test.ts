/** The grammar of answers with tool calls: texts that it allows, and others. */
import { assert, assertEquals, assertMatch, assertThrows } from "@std/assert";
import { ApiError } from "../../../core/serve/errors.ts";
import { Fields } from "../../../core/serve/fields.ts";
import { droppedNote, readTools, toolFormatOf, toolGrammar } from "../../../core/serve/tools.ts";
import { acceptorOf } from "../grammar/acceptor.ts";

const parameters = {
  type: "object",
  properties: { mood: { type: "string", pattern: "^happy$|^sad$" } },
  required: ["mood"],
};
const tools = [{ type: "function", function: { name: "say", parameters, strict: true } }];

function acceptor(template: string, fields: Record<string, unknown>): (text: string) => boolean {
  const request = readTools(new Fields({ tools, ...fields }))!;
  return acceptorOf(toolGrammar(request, toolFormatOf(template)!)!);
}

const HERMES = "tools <tool_call>", LLAMA3 = 'tools "parameters"';
const call = (mood: string) =>
  `<tool_call>\n{"name": "say", "arguments": {"mood": "${mood}"}}\n</tool_call>`;

Deno.test("a free answer is any text, in which each trigger begins a call of its schema", () => {
  const accepts = acceptor(HERMES, { tool_choice: "auto" });
  const texts = [
    "",
    "no call",
    "a < b <tool",
    `so: ${call("sad")}`,
    `${call("sad")}\n${call("happy")} é`,
  ];
  for (const text of [...texts, "<<<tool_calltool_cal", `<tool_<${call("sad")}`]) {
    assert(accepts(text), text);
  }
  for (
    const text of ["<tool_call>", "x <tool_call> y", call("glad"), `${call("sad")}<tool_call>`]
  ) {
    assert(!accepts(text), text);
  }
  const one = acceptor(HERMES, { tool_choice: "auto", parallel_tool_calls: false });
  assert(one(`a ${call("sad")}`) && !one(`a ${call("sad")} b`));
});

Deno.test("a call that is required is one of a tool, framed or bare, with its end", () => {
  const framed = acceptor(HERMES, { tool_choice: "required" });
  assert(framed(call("happy")) && framed(`${call("happy")}\n${call("sad")}`));
  for (const text of ["", "text", call("happy</tool_call>"), call("happy").replace('"}}', "}}")]) {
    assert(!framed(text), text);
  }
  const bare = acceptor(LLAMA3, { tool_choice: "required" });
  const text = '{"name": "say", "parameters": {"mood": "sad"}}';
  assert(bare(text) && bare(`${text}; ${text}`) && !bare(`${text}\n`));
});

/** A required call of a function with these parameters. */
function required(parameters: unknown, strict?: boolean) {
  const tools = [{ type: "function", function: { name: "f", parameters, strict } }];
  const request = readTools(new Fields({ tools, tool_choice: "required" }))!;
  const accepts = acceptorOf(toolGrammar(request, toolFormatOf(HERMES)!)!);
  const callOf = (text: string) => `<tool_call>\n{"name": "f", "arguments": ${text}}\n</tool_call>`;
  return { note: droppedNote(request), accepts: (text: string) => accepts(callOf(text)) };
}

Deno.test("an unsupported keyword of parameters is left out alone and named, or refused if strict", () => {
  const rows: readonly (readonly [keyword: string, property: object, other: string])[] = [
    ["multipleOf", { type: "number", multipleOf: 0.5 }, '"x"'],
    ["uniqueItems", { type: "array", items: { type: "string" }, uniqueItems: true }, '"x"'],
    ["contains", { type: "array", contains: false }, '"x"'],
    ["pattern", { type: "string", pattern: "^(?=a)" }, "1"],
    ["not", { type: "integer", not: { const: 1 } }, '"x"'],
    ["oneOf", { oneOf: [{ type: "integer" }, { type: "number" }] }, '"x"'],
  ];
  for (const [keyword, x, other] of rows) {
    const schema = { type: "object", properties: { x }, required: ["x"] };
    const { note, accepts } = required(schema);
    assertEquals(note, `not enforced in tools: f: ${keyword}`);
    assert(!accepts("{}") && !accepts(`{"x":${other}}`), keyword);
    assert(accepts('{"x":[]}') || accepts('{"x":2}') || accepts('{"x":"b"}'), keyword);
    const error = assertThrows(() => required(schema, true), ApiError);
    assertMatch(error.message, new RegExp(`keyword "${keyword}"`));
  }
  assertEquals(required({ properties: { x: { type: "integer", multipleOf: 5 } } }).note, undefined);
  assertThrows(
    () => required({ required: ["z"], additionalProperties: false }),
    ApiError,
    "required",
  );
});

Deno.test("arguments are an object, and parameters that allow none are refused", () => {
  for (const open of [{}, true, { title: "x" }, { type: ["object", "null"] }, undefined]) {
    const { accepts } = required(open);
    assert(accepts("{}") && !accepts("null") && !accepts("[]") && !accepts('"a"'));
  }
  const either = required({ anyOf: [{ type: "string" }, { properties: { a: { type: "null" } } }] });
  assert(either.accepts('{"a":null}') && !either.accepts('"a"'));
  const reference = { $ref: "#/$defs/p", $defs: { p: { properties: { a: {} }, required: ["a"] } } };
  assert(required(reference).accepts('{"a":1}'));
  for (const none of [{ type: "array" }, { enum: ["a"] }, { const: 1 }, false, { type: "strin" }]) {
    assertThrows(() => required(none), ApiError, "tools[0]");
  }
});
