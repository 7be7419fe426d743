/** Protects chat rendering: template sources, trimming, tools, and what is refused. */
import { assertEquals, assertStringIncludes } from "@std/assert";
import { renderPrompt } from "../../../core/tokenizer/chat.ts";
import { type ChatMessage, openTokenizer, renderChat } from "../../../core/tokenizer/tokenizer.ts";
import { userError } from "../checkpoint/testing.ts";
import { FIXTURE, fixtureJson, openFiles } from "./testing.ts";

/** Contents of messages, and a word against cats. */
const TEMPLATE = `{%- for m in messages %}
{{- m.role == 'cat' and raise_exception('Unknown role cat') or m.content }}
{%- endfor %}`;

/** The small tokenizer with other chat settings. */
const open = (files: Record<string, unknown>) =>
  openFiles({ "tokenizer.json": fixtureJson(), ...files });

const USER: ChatMessage = { role: "user", content: "Hi" };

Deno.test("a template reads the tools, which are written as Python writes JSON", async () => {
  const tokenizer = await open({ "chat_template.jinja": "{{ tools | tojson }}" });
  assertEquals(
    await renderChat(tokenizer, [USER], { tools: [{ name: "now" }] }),
    '[{"name": "now"}]',
  );
});

Deno.test("blocks on lines of their own leave no blanks or line feeds", async () => {
  const tokenizer = await open({
    "tokenizer_config.json": {
      chat_template: "{% for m in messages %}\n  {% if true %}\n{{ m.content }}\n  {% endif %}\n" +
        "{% endfor %}\n{{ eos_token }}{{ mood }}",
      eos_token: { content: "<|endoftext|>" },
    },
  });
  const options = { variables: { mood: "!" } };
  assertEquals(await renderChat(tokenizer, [USER, USER], options), "Hi\nHi\n<|endoftext|>!");
});

Deno.test("line ends of a template are line feeds, those of messages stay", async () => {
  const template =
    "{% for m in messages %}\r\n{{ m.content + 'a\r\nb' }}\r\n\rc\r\n{% endfor %}\r\n";
  const tokenizer = await open({ "chat_template.jinja": template });
  assertEquals(
    await renderChat(tokenizer, [{ role: "user", content: "1\r\n2" }]),
    "1\r\n2a\nb\n\nc\n",
  );
});

Deno.test("the prefix of an answer ends a prompt as it is, whatever the template trims and adds", async () => {
  const chat_template = "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}</>" +
    "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";
  const tokenizer = await open({ "tokenizer_config.json": { chat_template } });
  const begun = { role: "assistant", content: " Sure:\n```\n" };
  assertEquals(await renderPrompt(tokenizer, [USER, begun]), "<user>Hi</><assistant>Sure:\n```\n");
  assertEquals(
    await renderPrompt(tokenizer, [begun, USER]),
    "<assistant>Sure:\n```</><user>Hi</><assistant>",
  );
});

Deno.test("a template that leaves out the prefix of an answer is refused", async () => {
  const tokenizer = await open({ "chat_template.jinja": "{{ messages[0].content }}" });
  const begun = { role: "assistant", content: "Sure:" };
  const { message } = await userError(() => renderPrompt(tokenizer, [USER, begun]));
  assertStringIncludes(message, "leaves out the prefix of an answer");
});

Deno.test("the template named default is taken; its file wins over the field", async () => {
  const named = [{ name: "rag", template: "a" }, { name: "default", template: "b" }];
  const files = { "tokenizer_config.json": { chat_template: named } };
  assertEquals((await open(files)).chatTemplate, "b");
  assertEquals((await open({ ...files, "chat_template.jinja": "c" })).chatTemplate, "c");
  const byName = { "tokenizer_config.json": { chat_template: { default: "d", tool_use: "t" } } };
  const { chatTemplate, toolTemplate } = await open(byName);
  assertEquals([chatTemplate, toolTemplate], ["d", "t"]);
  for (const chat_template of [7, { tool_use: "t" }, { default: 7 }]) {
    const { message } = await userError(() => open({ "tokenizer_config.json": { chat_template } }));
    const words = 'must be text, or texts by name with one named "default", not ';
    assertStringIncludes(message, words + JSON.stringify(chat_template));
  }
});

Deno.test("with tools the template named tool_use is taken, as in transformers", async () => {
  const named = [
    { name: "default", template: "plain" },
    { name: "tool_use", template: "{{ tools | length }} tools" },
  ];
  const render = async (files: Record<string, unknown>, tools?: unknown[]) =>
    await renderChat(await open(files), [USER], { tools });
  const files = { "tokenizer_config.json": { chat_template: named } };
  assertEquals(await render(files), "plain");
  assertEquals(await render(files, [{}, {}]), "2 tools");
  assertEquals(await render({ ...files, "chat_template.jinja": "{{ tools }}" }, [{}]), "[{}]");
  const saved = {
    "chat_template.jinja": "plain",
    "additional_chat_templates/rag.jinja": "documents",
    "additional_chat_templates/tool_use.jinja": "TOOLS {{ tools | tojson }}",
  };
  assertEquals(await render(saved), "plain");
  assertEquals(await render(saved, [{}]), "TOOLS [{}]");
  assertEquals(await render({ ...files, ...saved }, [{}]), "TOOLS [{}]");
});

Deno.test("arguments of calls are objects, given as text or not", async () => {
  const template = "{{ messages[0].tool_calls[0].function.arguments | tojson }}";
  const tokenizer = await open({ "chat_template.jinja": template });
  const render = (text: unknown) => {
    const call = { type: "function", function: { name: "now", arguments: text } };
    return renderChat(tokenizer, [{ role: "assistant", content: null, tool_calls: [call] }]);
  };
  const cases: [unknown, string][] = [
    ['{"a":1}', '{"a": 1}'],
    [{ a: 1 }, '{"a": 1}'],
    ["", "{}"],
    [undefined, "{}"],
    ["a", '"a"'],
  ];
  for (const [given, rendered] of cases) assertEquals(await render(given), rendered);
});

Deno.test("tools are refused where the template has none, and no tools are none", async () => {
  const tokenizer = await open({ "chat_template.jinja": TEMPLATE });
  const render = (tools: unknown[]) => renderChat(tokenizer, [USER], { tools });
  assertEquals(await render([]), "Hi");
  const { message } = await userError(() => render([{ name: "now" }]));
  assertStringIncludes(message, "has no tools");
});

Deno.test("no template, malformed messages and a refusing template are bad data", async () => {
  const cases: [template: string | undefined, messages: unknown, words: string][] = [
    [undefined, [USER], "has no chat template"],
    [TEMPLATE, [], "must be a list of at least one message, not []"],
    [TEMPLATE, "Hi", 'not "Hi"'],
    [TEMPLATE, [USER, { role: 7, content: "" }], "message 2"],
    [TEMPLATE, [{ role: "user", content: 7 }], "message 1"],
    [TEMPLATE, [{ role: "cat", content: "" }], "Unknown role cat"],
    ["{% if %}", [USER], "the chat template of "],
  ];
  for (const [template, messages, words] of cases) {
    const tokenizer = await open(template === undefined ? {} : { "chat_template.jinja": template });
    const error = await userError(() => renderChat(tokenizer, messages as ChatMessage[]));
    assertEquals(error.kind, "data");
    assertStringIncludes(error.message, words);
  }
  assertEquals((await openTokenizer(FIXTURE)).namedTokens.eos_token, "<|endoftext|>");
});

Deno.test("contents have the form that the template reads", async () => {
  const loop = "{% for m in messages %}{% for part in m.content %}({{ part.text }}){% endfor %}" +
    "{% endfor %}";
  const both = "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}" +
    "{% for part in m['content'] %}({{ part['text'] }}){% endfor %}{% endif %}{% endfor %}";
  const first = "{% for m in messages %}<{{ m.content[0].text }}>{% endfor %}";
  const text = "{% for m in messages %}{{ m.content }}{% endfor %}";
  const json = "{% for m in messages %}{{ m.content | tojson }}{% endfor %}";
  const strict = "{% for m in messages %}{% if m.content is not string %}" +
    "{{ raise_exception('text') }}{% endif %}{{ m.content }}{% endfor %}";
  const user = "{% for m in messages %}{% if m.role == 'user' %}{% for p in m.content %}" +
    "({{ p.text }}){% endfor %}{% else %}{{ m.content + eos_token }}{% endif %}{% endfor %}";
  const parts = (...texts: string[]) => texts.map((text) => ({ type: "text", text }));
  const two = parts("Say", "yes");
  const cases: [template: string, role: string, content: unknown, right: string][] = [
    [text, "user", two, "Say\nyes"],
    [strict, "user", two, "Say\nyes"],
    [json, "user", two, '"Say\\nyes"'],
    [loop, "user", two, "(Say)(yes)"],
    [loop, "user", "Say", "(Say)"],
    [both, "user", two, "(Say)(yes)"],
    [both, "user", "Say", "Say"],
    [first, "user", parts("Say"), "<Say>"],
    [first, "user", two, "<Say\nyes>"],
    [first, "user", "Say", "<Say>"],
    [user, "user", two, "(Say)(yes)"],
    [user, "assistant", two, "Say\nyes"],
    [user, "assistant", "Say", "Say"],
    [text, "user", ["Say", { type: "input_text", text: "yes" }], "Say\nyes"],
    [loop, "user", ["Say", { type: "output_text", text: "yes" }], "(Say)(yes)"],
    [text, "user", [], ""],
    [text, "assistant", null, "None"],
  ];
  for (const [chat_template, role, content, right] of cases) {
    const config = { "tokenizer_config.json": { chat_template, eos_token: "" } };
    const messages = [{ role, content }] as ChatMessage[];
    const rendering = { addGenerationPrompt: false };
    assertEquals(await renderChat(await open(config), messages, rendering), right, chat_template);
  }
  const image = [{ role: "user", content: [{ type: "image_url", image_url: {} }] }];
  const { message } = await userError(async () =>
    renderChat(await open({ "tokenizer_config.json": { chat_template: text } }), image)
  );
  assertStringIncludes(message, "message 1 must have role and content as text");
});

Deno.test("null or empty tool calls of an answer are dropped", async () => {
  const chat_template = "{% for m in messages %}{{ 'tool_calls' in m }}{% endfor %}";
  const tokenizer = await open({ "tokenizer_config.json": { chat_template } });
  for (const tool_calls of [null, []]) {
    const text = await renderChat(tokenizer, [{ role: "assistant", content: "Hi", tool_calls }]);
    assertEquals(text, "False");
  }
});
