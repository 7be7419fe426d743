/** Chat templates in commands: numbers and keys as written, roles, and variables of the template. */
import { assertEquals, assertStringIncludes } from "@std/assert";
import { withScratch } from "../scratch.ts";
import { jsonLines, rowsOf, succeed } from "./models.ts";
import { runParscale } from "./run.ts";
import { CHAT_MODEL, TestServer } from "./serve_testing.ts";
import { FIXTURES } from "../fixtures.ts";

/** One tool whose numbers and keys JavaScript would write otherwise. */
const TOOLS = '[{"type":"function","function":{"name":"f","parameters":{"type":"object",' +
  '"properties":{"z":{"type":"number","minimum":0.0,"maximum":1e-7},' +
  '"1":{"type":"integer","maximum":9223372036854775807}}}}}]';

const STRIP = "{%- for message in messages %}\n" +
  "{{- '<|' + message.role + '|>' + message.content.lstrip('\\n') + '|' }}\n{%- endfor %}\n";

const THINKING =
  "{{- messages[0].role }}{% if enable_thinking is defined and not enable_thinking %}" +
  "<off>{% endif %}{{ messages[-1].content }}{% if tools %}{{ tools|tojson }}{% endif %}" +
  "{% if add_generation_prompt %}<assistant>{% endif %}";

const user = { role: "user", content: "x" };

const DATA = `${FIXTURES}eval/data`;

Deno.test("generate: numbers, keys and blanks of a conversation reach the prompt as they are written", () =>
  withScratch(async (cwd) => {
    const count = async (template: string, row: string) => {
      await Deno.writeTextFile(`${cwd}/t.jinja`, template);
      const line = `generate --model ${CHAT_MODEL} --max-tokens 1 --chat-template t.jinja`;
      const [{ stats }] = await rowsOf(line, { stdin: `${row}\n`, cwd });
      return stats.prompt_tokens;
    };
    const withTools = `{"messages":[${JSON.stringify(user)}],"tools":${TOOLS}}`;
    assertEquals(await count("{{- tools | tojson }}\n", withTools), 136);
    const answer = { role: "assistant", content: "\n\n    indented = 1" };
    assertEquals(await count(STRIP, JSON.stringify({ messages: [user, answer] })), 23);
  }));

Deno.test("--template-var sets variables of the template", () =>
  withScratch(async (cwd) => {
    await Deno.writeTextFile(`${cwd}/t.jinja`, "{{ a }}|{{ b }}|{{ messages[0].content }}");
    const line = `generate --model ${CHAT_MODEL} --max-tokens 2 --chat-template t.jinja`;
    const options = { stdin: jsonLines({ messages: [user] }, { prompt: "1.0|yes|x" }), cwd };
    const [row, same] = await rowsOf(`${line} --template-var a=1.0 --template-var b=yes`, options);
    assertEquals(row.tokens, same.tokens);
  }));

Deno.test("every command that renders passes variables on, and refuses those without an effect", () =>
  withScratch(async (cwd) => {
    const rows = { stdin: jsonLines({ messages: [user] }), cwd };
    const chat = { messages: [user, { ...user, role: "assistant" }] };
    await Deno.writeTextFile(`${cwd}/chats.jsonl`, jsonLines(chat));
    await succeed(`convert --model ${CHAT_MODEL} --streams 2 --prefix-tokens 2 --out p2`, { cwd });
    const asked = `--chat --tasks gsm8k --limit 1 --data ${DATA}`;
    const lines = [
      `eval ${asked} --out evaluated`,
      `eval show gsm8k --chat --ids 0 --data ${DATA}`,
      `compare ${asked} --beams 2`,
      "train --data chats.jsonl --seq-len 64 --steps 1 --out run",
      "visualize --jsonl",
      "generate",
      "chat",
    ];
    // One stream has no weights to show.
    const modelOf = (line: string) => line.startsWith("visualize") ? "p2" : CHAT_MODEL;
    for (const line of lines) {
      const run = `${line} --model ${modelOf(line)} --template-var zz=1`;
      const { code, stderr, stdout } = await runParscale(run, rows);
      // The evaluations of compare are processes that write to its own stderr.
      const said = line.startsWith("compare") ? "--template-var zz=1 " : "no variable ";
      assertStringIncludes(stderr + stdout, said, line);
      assertEquals(code > 0, true, line);
    }
  }));

Deno.test("serve: fields of OpenAI, vLLM and transformers decide how messages become a prompt", () =>
  withScratch(async (cwd) => {
    const template = `${cwd}/t.jinja`;
    await Deno.writeTextFile(template, THINKING);
    await using server = await TestServer.start(
      `--model ${CHAT_MODEL} --chat-template ${template}`,
    );
    const prompt = async (body: Record<string, unknown> | string) => {
      const given = typeof body === "string" ? body : JSON.stringify({ messages: [user], ...body });
      const response = await fetch(`${server.url}/tokenize`, { method: "POST", body: given });
      const { tokens, error } = await response.json();
      if (error) return `${response.status} ${error.message}`;
      return (await server.json("/detokenize", { tokens })).prompt;
    };
    assertEquals(await prompt({}), "userx<assistant>");
    const developer = { messages: [{ ...user, role: "developer" }] };
    assertEquals(await prompt(developer), "systemx<assistant>");
    assertEquals(await prompt({ enable_thinking: false }), "user<off>x<assistant>");
    const off = { chat_template_kwargs: { enable_thinking: false } };
    assertEquals(await prompt(off), "user<off>x<assistant>");
    assertEquals(await prompt({ add_generation_prompt: false }), "userx");
    assertEquals(await prompt({ continue_final_message: true }), "userx");
    const tools = TOOLS.replaceAll(":", ": ").replaceAll(",", ", ").replace("1e-7", "1e-07");
    const given = `{"messages":[{"role":"user","content":"x"}],"tools":${TOOLS}}`;
    assertEquals(await prompt(given), `userx${tools}<assistant>`);
    for (
      const [body, words] of [
        [{ continue_final_message: true, add_generation_prompt: true }, "exclude each other"],
        [{ ...off, enable_thinking: true }, "exclude each other"],
        [{ chat_template_kwargs: { mood: "good" } }, 'has no variable \\"mood\\"'],
        [{ chat_template_kwargs: [] }, "`chat_template_kwargs` needs an object"],
        [{ chat_template_kwargs: { messages: [] } }, "`messages` cannot be set as a variable"],
      ] as const
    ) {
      const told = await prompt(body);
      assertEquals(told.slice(0, 3), "400", told);
      assertStringIncludes(told, words.replaceAll("\\", ""));
    }
    const { usage } = await server.chat({ messages: [user], ...off, max_tokens: 1 });
    const { count } = await server.json("/tokenize", { messages: [user], ...off });
    assertEquals(usage.prompt_tokens, count);
  }));
