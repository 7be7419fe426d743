/** The grammar of answers with tool calls: texts that it allows, and others. */
import { assert } from "@std/assert";
import { Fields } from "../../../core/serve/fields.ts";
import { readTools, toolFormatOf, toolGrammar } from "../../../core/serve/tools.ts";
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
