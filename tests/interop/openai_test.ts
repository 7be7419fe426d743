/** The `openai` packages of npm, versions 5 and 6, against `parscale serve`. */
import { assert, assertEquals, assertRejects } from "@std/assert";
import OpenAI5 from "npm:openai@5.23.2";
import OpenAI6 from "npm:openai@6.49.0";
import { CHAT_MODEL, makeAdapter, TestServer, until } from "../cli/serve_testing.ts";
import { withScratch } from "../scratch.ts";

// The two classes differ in types that this test does not use.
const CLIENTS = [["5.23.2", OpenAI5], ["6.49.0", OpenAI6 as unknown as typeof OpenAI5]] as const;
const messages = [{ role: "user" as const, content: "Tell me of the fox" }];

for (const [version, OpenAI] of CLIENTS) {
  Deno.test(`npm openai ${version}: create, stream, helper, abort, models and error classes`, async (t) => {
    await withScratch(async (folder) => {
      const adapter = await makeAdapter(CHAT_MODEL, 4, `${folder}/four`);
      await using server = await TestServer.start(
        ["--model", CHAT_MODEL, "--adapter", `p4=${adapter}`],
        { PARSCALE_API_KEY: "secret" },
      );
      const baseURL = `${server.url}/v1`;
      const client = new OpenAI({ baseURL, apiKey: "secret" });
      const chat = { model: "p4", messages, max_tokens: 12, temperature: 0 };
      let whole = "";

      await t.step("create", async () => {
        const { choices, usage } = await client.chat.completions.create(chat);
        whole = choices[0]!.message.content!;
        assert(whole.length > 0);
        assertEquals(usage!.total_tokens, usage!.prompt_tokens + usage!.completion_tokens);
        const { choices: [choice] } = await client.completions.create({
          model: "p4",
          prompt: "The fox",
          max_tokens: 3,
        });
        assertEquals(choice!.finish_reason, "length");
      });

      await t.step("stream, with the extension", async () => {
        const stream = await client.chat.completions.create({
          ...chat,
          stream: true,
          stream_options: { include_usage: true },
          ...{ parscale: { weights: true } },
        });
        let text = "", tokens = 0, usage;
        for await (const chunk of stream) {
          const [choice] = chunk.choices;
          text += choice?.delta.content ?? "";
          // deno-lint-ignore no-explicit-any -- a field that the client does not know
          tokens += (choice as any)?.parscale.tokens.length ?? 0;
          usage = chunk.usage ?? usage;
        }
        assertEquals([text, tokens], [whole, usage!.completion_tokens]);
      });

      await t.step("stream helper", async () => {
        const runner = client.chat.completions.stream(chat);
        const parts: string[] = [];
        runner.on("content", (delta: string) => parts.push(delta));
        assertEquals(await runner.finalContent(), whole);
        assertEquals(parts.join(""), whole);
      });

      await t.step("abort frees the row", async () => {
        const long = { ...chat, max_tokens: 5000, stream: true as const, ...{ ignore_eos: true } };
        const stream = await client.chat.completions.create(long);
        for await (const _ of stream) break;
        const controller = new AbortController();
        const pending = client.chat.completions.create(
          { ...chat, max_tokens: 5000, ...{ ignore_eos: true } },
          { signal: controller.signal },
        );
        setTimeout(() => controller.abort(), 50);
        await assertRejects(() => pending, OpenAI.APIUserAbortError);
        const headers = { authorization: "Bearer secret" };
        await until(async () => {
          const text = await (await server.get("/metrics", headers)).text();
          return /num_requests_running\{model="p4"\} 0/.test(text);
        }, "no row is left");
      });

      await t.step("models", async () => {
        const ids: string[] = [];
        for await (const { id } of client.models.list()) ids.push(id);
        assertEquals(ids, ["tiny-qwen2", "p4"]);
        assertEquals((await client.models.retrieve("p4")).owned_by, "parscale");
      });

      await t.step("error classes", async () => {
        const create = (changes: object) => client.chat.completions.create({ ...chat, ...changes });
        await assertRejects(() => create({ model: "none" }), OpenAI.NotFoundError);
        const error = await assertRejects(() => create({ top_p: 2 }), OpenAI.BadRequestError);
        assertEquals(error.param, "top_p");
        const unauthorized = new OpenAI({ baseURL, apiKey: "wrong" });
        await assertRejects(() => unauthorized.models.list(), OpenAI.AuthenticationError);
      });
    });
  });
}
