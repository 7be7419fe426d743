/** Protects chat rendering: template sources, trimming, tools, and what is refused. */
import { assertEquals, assertStringIncludes } from "@std/assert";
import { type ChatMessage, openTokenizer, renderChat } from "../../../core/tokenizer/tokenizer.ts";
import { userError, withScratch } from "../checkpoint/testing.ts";
import { FIXTURE, fixtureJson, writeFiles } from "./testing.ts";

/** The features of Qwen2.5's template: default system text, tools, tool calls and their answers. */
const TEMPLATE = `{%- if messages[0].role == 'system' %}
    {%- set system = messages[0].content %}
{%- else %}
    {%- set system = 'Be helpful.' %}
{%- endif %}
{{- '<|im_start|>system\\n' + system }}
{%- if tools %}
    {{- '\\n<tools>' }}
    {%- for tool in tools %}
        {{- '\\n' }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- '\\n</tools>' }}
{%- endif %}
{{- '<|im_end|>\\n' }}
{%- for message in messages %}
    {%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
    {%- elif message.role == 'assistant' %}
        {{- '<|im_start|>assistant' }}
        {%- if message.content %}
            {{- '\\n' + message.content }}
        {%- endif %}
        {%- for call in message.tool_calls or [] %}
            {{- '\\n<tool_call>\\n' + (call | tojson) + '\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == 'tool' %}
        {{- '<|im_start|>user\\n<tool_response>\\n' + message.content + '\\n</tool_response><|im_end|>\\n' }}
    {%- elif message.role != 'system' %}
        {{- raise_exception('Unknown role ' + message.role) }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
`;

/** The small tokenizer with other chat settings. */
async function open(files: Record<string, unknown>) {
  let tokenizer: Awaited<ReturnType<typeof openTokenizer>> | undefined;
  await withScratch(async (folder) => {
    writeFiles(folder, { "tokenizer.json": fixtureJson(), ...files });
    tokenizer = await openTokenizer(folder);
  });
  return tokenizer!;
}

const USER: ChatMessage = { role: "user", content: "Hi" };

Deno.test("a chat becomes the text that Qwen2.5's template gives", async () => {
  const tokenizer = await open({ "chat_template.jinja": TEMPLATE });
  const system = "<|im_start|>system\nBe helpful.<|im_end|>\n";
  const user = "<|im_start|>user\nHi<|im_end|>\n";
  assertEquals(await renderChat(tokenizer, [USER]), `${system}${user}<|im_start|>assistant\n`);
  const options = { addGenerationPrompt: false };
  assertEquals(await renderChat(tokenizer, [USER], options), system + user);
  const own = [{ role: "system", content: "Be brief." }, USER];
  const brief = `<|im_start|>system\nBe brief.<|im_end|>\n${user}`;
  assertEquals(await renderChat(tokenizer, own, options), brief);
  const messages = [
    USER,
    { role: "assistant", content: null, tool_calls: [{ name: "now", arguments: {} }] },
    { role: "tool", content: "noon" },
  ];
  assertEquals(
    await renderChat(tokenizer, messages, { ...options, tools: [{ name: "now" }] }),
    `<|im_start|>system\nBe helpful.\n<tools>\n{"name": "now"}\n</tools><|im_end|>\n${user}` +
      `<|im_start|>assistant\n<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call><|im_end|>\n` +
      "<|im_start|>user\n<tool_response>\nnoon\n</tool_response><|im_end|>\n",
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

Deno.test("the template named default is taken; its file wins over the field", async () => {
  const named = [{ name: "rag", template: "a" }, { name: "default", template: "b" }];
  const files = { "tokenizer_config.json": { chat_template: named } };
  assertEquals((await open(files)).chatTemplate, "b");
  assertEquals((await open({ ...files, "chat_template.jinja": "c" })).chatTemplate, "c");
  const broken = { "tokenizer_config.json": { chat_template: 7 } };
  const { message } = await userError(() => open(broken));
  assertStringIncludes(message, 'must be text or a list with one named "default", not 7');
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
