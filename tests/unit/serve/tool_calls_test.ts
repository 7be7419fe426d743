import { assertEquals } from "@std/assert";
import { type ToolCallOptions, ToolCallParser } from "../../../core/serve/tool_calls.ts";
import { toolFormatOf } from "../../../core/serve/tools.ts";
import { readFixture } from "../../fixtures.ts";

const HERMES = toolFormatOf("{{ tools }} <tool_call>")!;
const LLAMA3 = toolFormatOf('{{ tools }} {"name": …, "parameters": …}')!;

/** Text and calls, as a name and arguments, of an answer that arrives in pieces of a size. */
function parse(format: typeof HERMES, answer: string, size: number, options: ToolCallOptions = {}) {
  const parser = new ToolCallParser(format, new Set(["f", "g", "w"]), options);
  const pieces = answer.match(new RegExp(`[^]{1,${size}}`, "g")) ?? [];
  const parts = [...pieces.map((piece) => parser.push(piece)), parser.end()];
  const calls: string[] = [];
  for (const { index, name, arguments: text } of parts.flatMap(({ calls }) => calls)) {
    if (name !== undefined) calls[index] = `${name} `;
    calls[index]! += text;
  }
  return [parts.map(({ text }) => text).join(""), ...calls];
}

const call = (body: string) => `<tool_call>\n${body}\n</tool_call>`;
const ONE = '{"name": "f", "arguments": {"a": 1}}', BARE = '{"name": "g", "arguments": {}}';
const BEFORE = '{"arguments": {"a": [1]}, "name": "f"}';
const SEVERAL = '{"name": "f", "parameters": {}}; {"name": "g", "parameters": {}}';
const MARKED = '{"a": "}</tool_call>\\"{["}';

/** Answers, with their text and calls; without these an answer is text as it stands. */
const CASES: Readonly<Record<string, [typeof HERMES, answer: string, ...string[]]>> = {
  "plain text": [HERMES, "It is <b>sunny</b>.\n"],
  "text before a call": [HERMES, `Let me see.\n${call(ONE)}`, "Let me see.", 'f {"a": 1}'],
  "two calls": [HERMES, `${call(ONE)}\n${call(BARE)}`, "", 'f {"a": 1}', "g {}"],
  "brackets and end marks in texts": [
    HERMES,
    call(`{"name": "f", "arguments": ${MARKED}}`),
    "",
    `f ${MARKED}`,
  ],
  "arguments before the name": [HERMES, call(BEFORE), "", 'f {"a": [1]}'],
  "a call without arguments": [HERMES, call('{"name": "f"}'), "", "f {}"],
  "a text that is not a call": [HERMES, call("hello")],
  "a name that is not JSON": [HERMES, call('{"name": "f\\_g", "arguments": {}}')],
  "a call that is cut": [HERMES, call(ONE).split("}")[0]!, "", 'f {"a": 1'],
  "a mark that is cut": [HERMES, "a <tool_ca"],
  "bare JSON": [LLAMA3, '{"name": "f", "parameters": {"a": {"b": 2}}}', "", 'f {"a": {"b": 2}}'],
  "several of bare JSON": [LLAMA3, SEVERAL, "", "f {}", "g {}"],
  "JSON that is not a call": [LLAMA3, '{"answer": 42}'],
  "text with JSON in it": [LLAMA3, 'See {"name": 1}'],
  "a call with its type": [
    LLAMA3,
    '{"type": "function", "name": "f", "parameters": {"a": 1}}',
    "",
    'f {"a": 1}',
  ],
  "bare JSON with other fields": [LLAMA3, '{"name": "f", "parameters": {}, "age": 3}'],
  "bare JSON of a tool that was not offered": [LLAMA3, ' {"name": "h", "parameters": {}}'],
  "a call whose marks were left out": [HERMES, `\n${ONE}\n`, "", 'f {"a": 1}'],
  "a call in a code block": [HERMES, "```json\n" + ONE + "\n```", "", 'f {"a": 1}'],
  "a call in a code block that is cut": [HERMES, "```\n" + ONE, "", 'f {"a": 1}'],
  "a code block before a text": [HERMES, "```json\n" + ONE + "\n``` is it"],
  "a code block that is not a call": [HERMES, '```json\n{"a": 1}\n```'],
  "a code block of another language": [HERMES, "```js\nf()\n```"],
  "a code block that is hardly begun": [HERMES, "``"],
  "JSON without marks before a text": [HERMES, `${ONE} is it`],
  "JSON without marks behind a text": [HERMES, `See ${ONE}`],
  "JSON without marks that is not a call": [HERMES, '{"name": "Bob"}'],
  "JSON without marks before a call": [HERMES, `{"a": 1} ${call(BARE)}`, '{"a": 1}', "g {}"],
  "JSON without marks that is cut": [HERMES, '{"name": "f", "argu'],
  "a call behind one whose brackets do not close": [
    HERMES,
    `${call('{"name": "f"')} ${call(ONE)}`,
    call('{"name": "f"'),
    'f {"a": 1}',
  ],
  "a mark that is mentioned before a call": [
    HERMES,
    `The tag is \`<tool_call>\` here.\n${call(ONE)}`,
    "The tag is `<tool_call>` here.",
    'f {"a": 1}',
  ],
  "both marks mentioned": [HERMES, "Use <tool_call> and </tool_call> around it."],
  "a bracket behind a mark, then a call": [
    HERMES,
    `As <tool_call>{name}</tool_call>:\n${call(ONE)}`,
    "As <tool_call>{name}</tool_call>:",
    'f {"a": 1}',
  ],
  "blanks around a mention": [HERMES, "a <tool_call> b"],
  "blanks before other text in marks": [HERMES, `a \n${call("x")} b`],
  "blanks before other JSON": [HERMES, `a \n${call('{"b": 1}')}`],
  "a mention at the end": [HERMES, "a <tool_call>"],
  "a bracket at the end": [HERMES, "a <tool_call>\n{"],
  "other text in marks between two calls": [
    HERMES,
    `${call(ONE)}\n${call("not json")}\n${call(BARE)}`,
    `\n${call("not json")}`,
    'f {"a": 1}',
    "g {}",
  ],
  "a call in a thought": [
    HERMES,
    `<think>\nI could write ${call(BARE)} now.\n</think>\n\n${call(ONE)}`,
    `<think>\nI could write ${call(BARE)} now.\n</think>`,
    'f {"a": 1}',
  ],
  "a thought that does not end": [HERMES, `<think>${call(BARE)}`],
  "the mark of a thought in a text": [
    HERMES,
    `It writes <think> first. ${call(ONE)}`,
    "It writes <think> first.",
    'f {"a": 1}',
  ],
  "arguments null": [HERMES, call('{"name": "f", "arguments": null}'), "", "f {}"],
  "parameters null": [LLAMA3, '{"name": "f", "parameters": null}', "", "f {}"],
  "arguments that are other text": [
    HERMES,
    call('{"name": "f", "arguments": "Paris \\"here\\""}'),
    "",
    'f Paris "here"',
  ],
};

for (const [what, [format, answer, ...parts]] of Object.entries(CASES)) {
  const expected = parts.length > 0 ? parts : [answer];
  Deno.test(`tool calls are told from text, however they arrive: ${what}`, () => {
    for (const size of [1, 2, 3, 7, 1000]) {
      assertEquals(parse(format, answer, size), expected, `${size}`);
    }
  });
}

/** Texts of models and the calls that they mean, with arguments as values or as their text. */
const MEANT: readonly {
  readonly format: "hermes" | "llama3";
  readonly text: string;
  readonly calls: readonly { name: string; arguments?: unknown; arguments_text?: string }[];
}[] = readFixture("golden/tool_calls.json");

for (const { format, text, calls } of MEANT) {
  Deno.test(`a text means its calls: ${text}`, () => {
    const [rest, ...found] = parse(format === "hermes" ? HERMES : LLAMA3, text, 3);
    assertEquals(rest, calls.length > 0 ? "" : text);
    const values = found.map((call) => ({ name: call[0], arguments: JSON.parse(call.slice(2)) }));
    const expected = calls.map(({ name, arguments: value, arguments_text }) => ({
      name,
      arguments: value ?? JSON.parse(arguments_text!),
    }));
    assertEquals(values, expected);
    const texts = calls.flatMap(({ arguments_text }) => arguments_text ?? []);
    assertEquals(texts.every((each) => found.includes(`w ${each}`)), true, "digits and blanks");
  });
}

Deno.test("a prompt that ends inside a thought begins the answer there", () => {
  const answer = `I could ${call(BARE)}\n</think>\n\n${call(ONE)}`;
  for (const size of [1, 3, 1000]) {
    const [text, ...calls] = parse(HERMES, answer, size, { prompt: "<|assistant|>\n<think>\n" });
    assertEquals([text, calls], [`I could ${call(BARE)}\n</think>`, ['f {"a": 1}']]);
    const [, ...both] = parse(HERMES, answer, size, { prompt: "<think>\n\n</think>\n\n" });
    assertEquals(both, ["g {}", 'f {"a": 1}']);
  }
});

Deno.test("without parallel calls the first is the only one", () => {
  for (const size of [1, 3, 1000]) {
    const isParallel = false;
    assertEquals(parse(HERMES, `${call(ONE)}\n${call(BARE)}`, size, { isParallel }).slice(1), [
      'f {"a": 1}',
    ]);
    assertEquals(parse(LLAMA3, SEVERAL, size, { isParallel }), ["", "f {}"]);
  }
});

Deno.test("a template tells how its model calls tools", () => {
  assertEquals(toolFormatOf(undefined), undefined);
  assertEquals(toolFormatOf("{{ messages }}"), undefined);
  assertEquals([HERMES.trigger, LLAMA3.argumentsKey], ["<tool_call>", "parameters"]);
});
