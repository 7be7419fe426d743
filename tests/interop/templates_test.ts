/**
 * Chat templates that models are published with, rendered here and by transformers.
 *
 *   PARSCALE_HF_PYTHON   a Python with transformers
 *   PARSCALE_TEMPLATES   a folder of .jinja files, such as `vendor/llama.cpp/models/templates` in the source
 *                        distribution of llama-cpp-python 0.3.36 on PyPI
 */
import { fileURLToPath } from "node:url";
import { assert, assertEquals } from "@std/assert";
import { DataError } from "../../core/base/errors.ts";
import { parseExactJson } from "../../core/base/exact_json.ts";
import { type ChatMessage, renderChat } from "../../core/tokenizer/chat.ts";
import { withReadContent } from "../../core/tokenizer/content.ts";
import { renderTemplate } from "../../core/tokenizer/template_renderer.ts";

const python = Deno.env.get("PARSCALE_HF_PYTHON");
const folder = Deno.env.get("PARSCALE_TEMPLATES");
const SCRIPT = fileURLToPath(new URL("templates.py", import.meta.url));

const TOOL = {
  type: "function",
  function: {
    name: "weather",
    description: "Weather in a city",
    parameters: {
      type: "object",
      properties: { city: { type: "string", description: "Its name" }, days: { type: "integer" } },
      required: ["city"],
    },
  },
};

const CALL = {
  id: "call00001",
  type: "function",
  function: { name: "weather", arguments: { city: "Köln <b>", days: 2, exact: [0.5, null, true] } },
};

const SYSTEM = { role: "system", content: "Be brief.\n" };
const USER = { role: "user", content: "  2 + 2? 'a' \"b\" " };
const ANSWER = { role: "assistant", content: "<think>\nsum\n</think>\n\n4\n" };
const MORE = { role: "user", content: "And\n\n3 + 3?" };
const CALLS = { role: "assistant", content: null, tool_calls: [CALL] };
const RESULT = {
  role: "tool",
  name: "weather",
  tool_call_id: "call00001",
  content: '{"sky": "blue"}',
};
const THOUGHT = { role: "assistant", content: "4", reasoning_content: "It is\n  four." };

/** The same message with its content in parts. */
function inParts(message: ChatMessage): ChatMessage {
  const texts = [String(message.content ?? ""), "second part"];
  return { ...message, content: texts.map((text) => ({ type: "text", text })) };
}

const PLAIN: ChatMessage[][] = [
  [USER],
  [SYSTEM, USER],
  [USER, ANSWER, MORE],
  [SYSTEM, USER, THOUGHT, MORE],
  [SYSTEM, USER, ANSWER],
  [USER, CALLS, RESULT],
  [SYSTEM, USER, { ...CALLS, content: "Let me look." }, RESULT, ANSWER, MORE],
  [USER, { ...CALLS, tool_calls: [CALL, CALL] }, RESULT, RESULT],
];
const IN_PARTS: ChatMessage[][] = [
  [inParts(USER)],
  [inParts(SYSTEM), inParts(USER)],
  [USER, inParts(ANSWER), inParts(MORE)],
  [USER, CALLS, inParts(RESULT)],
];

/** Every conversation with and without tools, a start of the answer, and thinking turned off. */
const CONVERSATIONS = [...PLAIN, ...IN_PARTS].flatMap((messages) =>
  [undefined, [TOOL]].flatMap((tools) =>
    [[true, {}], [false, {}], [true, { enable_thinking: false }]].map(([begins, variables]) => ({
      ...{ messages, tools, addGenerationPrompt: begins as boolean },
      variables: variables as Record<string, unknown>,
    }))
  )
);

const NAMED_TOKENS = { bos_token: "<s>", eos_token: "</s>" };

/** Texts of transformers for templates and variables. */
async function reference(requests: readonly object[]): Promise<(string | null)[]> {
  const child = new Deno.Command(python!, { args: [SCRIPT], stdin: "piped", stdout: "piped" })
    .spawn();
  const lines = requests.map((request) => JSON.stringify(request) + "\n");
  const writing = new Blob(lines).stream().pipeTo(child.stdin);
  const { stdout } = await child.output();
  await writing;
  const text = new TextDecoder().decode(stdout).trim();
  return text.split("\n").map((line) => parseExactJson(line) as string | null);
}

Deno.test({
  name: "published templates give the texts of transformers, contents in parts too",
  ignore: !python || !folder,
  async fn() {
    const names = [...Deno.readDirSync(folder!)].map(({ name }) => name)
      .filter((name) => name.endsWith(".jinja")).sort();
    const cases = names.flatMap((name) => CONVERSATIONS.map((one) => ({ name, ...one })));
    const requests: object[] = [], texts: (string | null)[] = [];
    for (const { name, messages, tools, addGenerationPrompt, variables } of cases) {
      const chatTemplate = Deno.readTextFileSync(`${folder}/${name}`);
      const tokenizer = { directory: name, chatTemplate, namedTokens: NAMED_TOKENS };
      const isRead = Object.keys(variables).every((name) => chatTemplate.includes(name));
      const given = isRead ? variables : {};
      const hasTools = chatTemplate.includes("tools") && tools;
      const options = { ...(hasTools && { tools }), variables: given, addGenerationPrompt };
      try {
        texts.push(await renderChat(tokenizer, messages, options));
      } catch (error) {
        if (!(error instanceof DataError)) throw error;
        texts.push(null);
      }
      const read = messages.map((message) =>
        withReadContent(message, chatTemplate, renderTemplate)
      );
      const all = { ...NAMED_TOKENS, ...given, tools: hasTools || null };
      const thinking = read.map((message) => {
        const { reasoning_content: thought } = message;
        return thought === undefined ? message : { thinking: thought, ...message };
      });
      requests.push({
        template: chatTemplate,
        variables: { ...all, messages: thinking, add_generation_prompt: addGenerationPrompt },
      });
    }
    const right = await reference(requests);
    const wrong = cases.flatMap(({ name, messages, tools }, i) => {
      if (texts[i] === right[i]) return [];
      return [{ name, messages, tools, ours: texts[i], right: right[i] }];
    });
    const rendered = right.filter((text) => text !== null).length;
    console.log(`${names.length} templates, ${cases.length} conversations, ${rendered} rendered`);
    assertEquals(wrong.slice(0, 2), [], `${wrong.length} differ`);
    assert(rendered > 0);
  },
});
