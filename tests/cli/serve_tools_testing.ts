/** A server whose model writes tool calls, for tests. */
import { withScratch } from "../scratch.ts";
import { CHAT_MODEL, TestServer } from "./serve_testing.ts";

/** Writes tools and calls as Hermes, Qwen2.5 and Qwen3 do. */
const TEMPLATE = String.raw`
{%- if tools %}<|im_start|>system
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}Calls stand in <tool_call></tool_call>.<|im_end|>
{% endif %}
{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}{% for call in message.tool_calls or [] %}<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}`;

/** Serves a model, by default one with random weights, under a template that knows tools. */
export async function withTools(
  body: (server: TestServer) => Promise<void>,
  model = CHAT_MODEL,
): Promise<void> {
  await withScratch(async (folder) => {
    const template = `${folder}/tools.jinja`;
    await Deno.writeTextFile(template, TEMPLATE.trimStart());
    await using server = await TestServer.start(`--model ${model} --chat-template ${template}`);
    await body(server);
  });
}
