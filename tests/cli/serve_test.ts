/** `parscale serve` as its clients see it: documents, streams, errors, seeds, log-probabilities. */
import { assert, assertAlmostEquals, assertEquals, assertStringIncludes } from "@std/assert";
import { jsonLines, MODEL, rowsOf } from "./models.ts";
import { CHAT_MODEL, makeAdapter, TestServer } from "./serve_testing.ts";
import { withScratch } from "../scratch.ts";

const NAME = "qwen2-p2-tied-f32";

/** Text of named tokens, of which some are parts of characters. */
function textOf(tokens: readonly string[]): string {
  const bytes = tokens.flatMap((token) =>
    token.startsWith("bytes:")
      ? token.split("\\x").slice(1).map((digits) => parseInt(digits, 16))
      : [...new TextEncoder().encode(token)]
  );
  return new TextDecoder().decode(Uint8Array.from(bytes));
}

Deno.test("completions", async (t) => {
  await using server = await TestServer.start(`--model ${MODEL} --max-batch 4`);
  const greedy = { prompt: "The red fox", max_tokens: 12, temperature: 0 };

  await t.step("text, usage and finish reason are those of generate", async () => {
    const { choices, usage, object, model, id } = await server.complete(greedy);
    const generate = `generate --model ${MODEL} --prompt '${greedy.prompt}' --max-tokens 12`;
    const [row] = await rowsOf(generate);
    assertEquals(choices, [{ index: 0, text: row.text, logprobs: null, finish_reason: "length" }]);
    assertEquals([object, model], ["text_completion", NAME]);
    assert(/^cmpl-\w+$/.test(id));
    assertEquals(usage.completion_tokens, 12);
    assertEquals(usage.prompt_tokens, row.stats.prompt_tokens);
    assertEquals(usage.total_tokens, usage.prompt_tokens + 12);
  });

  await t.step("a stream has the whole text, by index, and its usage last", async () => {
    const body = { prompt: ["a", "The red fox"], max_tokens: 9, seed: 3, n: 2 };
    const whole = await server.complete(body);
    const options = { stream_options: { include_usage: true } };
    const frames = await server.frames("/v1/completions", { ...body, ...options });
    const last = frames.pop();
    assertEquals(last.choices, []);
    assertEquals(last.usage.completion_tokens, whole.usage.completion_tokens);
    assertEquals(last.usage.total_tokens, whole.usage.total_tokens);
    const texts = ["", "", "", ""], reasons: string[] = [];
    for (const { choices: [choice], usage } of frames) {
      assertEquals(usage, null);
      texts[choice.index] += choice.text;
      if (choice.finish_reason) reasons[choice.index] = choice.finish_reason;
    }
    // deno-lint-ignore no-explicit-any -- any field
    assertEquals(texts, whole.choices.map((choice: any) => choice.text));
    assertEquals(reasons, ["length", "length", "length", "length"]);
  });

  await t.step("equal seeds give equal texts in any batch; others differ", async () => {
    const body = { prompt: "The red fox", max_tokens: 16, seed: 11, n: 3, temperature: 1.3 };
    const alone = await server.complete(body);
    const others = [0, 1, 2, 3, 4, 5].map((i) =>
      server.complete({ prompt: "x".repeat(1 + 37 * i), max_tokens: 20, seed: i })
    );
    const [together] = await Promise.all([server.complete(body), ...others]);
    // deno-lint-ignore no-explicit-any -- any field
    const texts = ({ choices }: any) => choices.map((choice: any) => choice.text);
    assertEquals(texts(together), texts(alone));
    assertEquals(new Set(texts(alone)).size, 3, "every choice draws from a stream of its own");
    assertEquals(texts(await server.complete({ ...body, n: 1 })), texts(alone).slice(0, 1));
    assert(texts(await server.complete({ ...body, seed: 12 })).join() !== texts(alone).join());
    const same = await server.complete({ ...body, prompt: Array(3).fill(body.prompt), n: 1 });
    assertEquals(texts(same), texts(alone), "equal prompts are choices too");
  });

  await t.step("echo with log-probabilities: those of score, null first", async () => {
    const { tokens } = await server.json("/tokenize", { prompt: "The red fox jumps" });
    const [row] = await rowsOf(`score --model ${MODEL}`, { stdin: jsonLines({ tokens }) });
    for (const prompt of [tokens, "The red fox jumps"]) {
      const body = { prompt, max_tokens: 1, temperature: 0, logprobs: 1, echo: true, seed: 1234 };
      const { choices: [{ logprobs, text }] } = await server.complete(body);
      const length = tokens.length + 1;
      for (const list of Object.values(logprobs)) assertEquals((list as []).length, length);
      assertEquals([logprobs.token_logprobs[0], logprobs.top_logprobs[0]], [null, null]);
      assertEquals(text, textOf(logprobs.tokens));
      row.token_logprobs.forEach((value: number, i: number) => {
        assertAlmostEquals(logprobs.token_logprobs[i + 1], value, 1e-5);
      });
      for (let i = 1; i < length; i++) {
        const best = logprobs.top_logprobs[i];
        assert(best[logprobs.tokens[i]] >= logprobs.token_logprobs[i]);
        assert(Object.keys(best).length <= 2);
      }
      const without = await server.complete({ ...body, max_tokens: 0 });
      const own = without.choices[0].logprobs.token_logprobs;
      assertEquals(own, logprobs.token_logprobs.slice(0, -1));
    }
  });

  await t.step(
    "a prompt that fills the context has its entry; a longer one is refused",
    async () => {
      const prompt = new Array(2048).fill(7);
      const body = { prompt, max_tokens: 1, temperature: 0, logprobs: 1, echo: true };
      const { choices: [{ logprobs }] } = await server.complete(body);
      assertEquals(logprobs.token_logprobs.length, 2049);
      const { error } = await server.complete({ ...body, prompt: [...prompt, 7] });
      assertEquals([error.code, error.param], ["context_length_exceeded", "prompt"]);
      assertStringIncludes(error.message, "2049 tokens, the model's context is 2048");
    },
  );

  await t.step("log-probabilities of 0, 5 and 21", async () => {
    const of = (logprobs: number | null) => server.complete({ ...greedy, logprobs });
    assertEquals((await of(null)).choices[0].logprobs, null);
    for (const [asked, most] of [[0, 1], [5, 6]] as const) {
      const { top_logprobs, token_logprobs } = (await of(asked)).choices[0].logprobs;
      assertEquals(token_logprobs.length, 12);
      assert(top_logprobs.every((one: object) => Object.keys(one).length <= most));
    }
    assertEquals((await of(21)).error.param, "logprobs");
  });

  await t.step("parts of characters have an entry each, named by their bytes", async () => {
    const body = { prompt: "🦜🦜🦜🦜", max_tokens: 4, temperature: 0, logprobs: 3, echo: true };
    const { choices: [{ logprobs }] } = await server.complete(body);
    const named = logprobs.tokens.filter((token: string) => token.startsWith("bytes:"));
    assert(named.length > 1 && named.every((one: string) => /^bytes:(\\x[\da-f]{2})+$/.test(one)));
    for (const best of logprobs.top_logprobs.slice(1)) assert(Object.keys(best).length >= 3);
  });

  await t.step("seeds have 64 bits, and equal ones give equal texts", async () => {
    const of = (seed: number) =>
      server.complete({ prompt: "The red fox", max_tokens: 12, temperature: 1.3, seed });
    const [low, again, high] = await Promise.all([-(2 ** 63), -(2 ** 63), 2 ** 63].map(of));
    assertEquals(low.choices[0].text, again.choices[0].text);
    assertEquals(high.choices.length, 1);
    assertEquals((await of(1.5)).error.param, "seed");
  });

  await t.step("a top_p of 0 takes the most likely token at any temperature", async () => {
    const [{ text }] = (await server.complete(greedy)).choices;
    const { choices } = await server.complete({
      ...greedy,
      temperature: 2,
      top_p: 0,
      top_k: 5,
      n: 2,
    });
    // deno-lint-ignore no-explicit-any -- any field
    assertEquals(choices.map((choice: any) => choice.text), [text, text]);
    assertEquals((await server.complete({ ...greedy, top_p: -0.1 })).error.param, "top_p");
  });

  await t.step("a stop string ends the text before it and is not sent in a stream", async () => {
    const { choices: [{ text }] } = await server.complete(greedy);
    const stop = text.slice(5, 8);
    const stopped = await server.complete({ ...greedy, stop: [stop, "zzz", "q1", "q2", "q3"] });
    assertEquals(stopped.choices[0].text, text.slice(0, text.indexOf(stop)));
    assertEquals(stopped.choices[0].finish_reason, "stop");
    const frames = await server.frames("/v1/completions", { ...greedy, stop });
    const streamed = frames.map(({ choices: [choice] }) => choice.text).join("");
    assertEquals(streamed, stopped.choices[0].text);
    assertEquals((await server.complete({ ...greedy, stop: [] })).choices[0].text, text);
  });

  await t.step("weights per token on request, in whole and streamed responses", async () => {
    const body = { ...greedy, parscale: { weights: true } };
    const { choices: [{ parscale }] } = await server.complete(body);
    assertEquals([parscale.streams, parscale.tokens.length], [2, 12]);
    for (const { weights } of parscale.tokens) assertAlmostEquals(weights[0] + weights[1], 1, 2e-4);
    const frames = await server.frames("/v1/completions", body);
    const streamed = frames.flatMap(({ choices: [choice] }) => choice.parscale.tokens);
    assertEquals(streamed, parscale.tokens);
    const metrics = await server.metrics();
    const mean = metrics.get(`parscale_stream_weight_mean{model="${NAME}",stream="1"}`)!;
    assert(mean > 0 && mean < 1);
  });

  await t.step("fields that change results are refused unless neutral", async () => {
    const neutral = {
      presence_penalty: 0,
      frequency_penalty: 0,
      logit_bias: {},
      best_of: 1,
      suffix: null,
      user: "me",
    };
    const { choices: [{ text }] } = await server.complete(greedy);
    assertEquals((await server.complete({ ...greedy, ...neutral })).choices[0].text, text);
    for (
      const [name, value] of [["best_of", 2], ["suffix", "x"], ["made_up", 1], [
        "presence_penalty",
        3,
      ]]
    ) {
      const { error } = await server.complete({ ...greedy, [name as string]: value });
      assertEquals([error.param, error.type], [name, "invalid_request_error"]);
    }
  });

  await t.step("biases and penalties change the tokens as they say", async () => {
    const tokensOf = async (fields = {}): Promise<string[]> =>
      (await server.complete({ ...greedy, logprobs: 0, ...fields })).choices[0].logprobs.tokens;
    const [first] = await tokensOf();
    const body = { prompt: first, add_special_tokens: false };
    const { tokens: [id] } = await server.json("/tokenize", body);
    assert(!(await tokensOf({ logit_bias: { [id]: -100 } })).includes(first!));
    assertEquals(new Set(await tokensOf({ logit_bias: { [id]: 100 } })), new Set([first]));
    const rules = { logit_bias: { [id]: 3 }, frequency_penalty: 2, presence_penalty: 2 };
    assert(new Set(await tokensOf(rules)).size > 1);
    for (const logit_bias of [{ x: 1 }, { 1: 101 }, { 1: "1" }, { 99999: 1 }, [1]]) {
      const { error } = await server.complete({ ...greedy, logit_bias });
      assertEquals([error.param, error.type], ["logit_bias", "invalid_request_error"]);
    }
  });

  await t.step("response_format limits an answer to JSON, or to a schema", async () => {
    const schema = { type: "object", properties: { a: { type: "boolean" } }, required: ["a"] };
    const json_schema = { name: "answer", schema, strict: true };
    const response_format = { type: "json_schema", json_schema };
    const asked = { prompt: "a", max_tokens: 60, response_format };
    const { choices } = await server.complete({ ...asked, n: 2, temperature: 1 });
    for (const { text, finish_reason } of choices) {
      assertEquals([typeof JSON.parse(text).a, finish_reason], ["boolean", "stop"]);
    }
    const frames = await server.frames("/v1/completions", { ...asked, temperature: 0 });
    const streamed = frames.map(({ choices: [choice] }) => choice.text).join("");
    assertEquals(typeof JSON.parse(streamed).a, "boolean");
    const object = { max_tokens: 1, temperature: 0, response_format: { type: "json_object" } };
    const { choices: [cut] } = await server.complete({ ...asked, ...object });
    assertEquals([cut.text[0], cut.finish_reason], ["{", "length"]);
    const not = { type: "json_schema", json_schema: { schema: { not: schema } } };
    for (const response_format of [not, { type: "xml" }, { type: "json_schema" }, "json"]) {
      const { error } = await server.complete({ ...asked, response_format });
      assertEquals([error.param, error.type], ["response_format", "invalid_request_error"]);
    }
    const { error } = await server.complete({ ...asked, ignore_eos: true });
    assertEquals(error.param, "ignore_eos");
  });

  await t.step("bad requests: status, type and the field at fault", async () => {
    const cases: [path: string, status: number, body: unknown, param: string | null][] = [
      ...([
        ["{", null],
        ["[]", "body"],
        [{ prompt: "x", temperature: -1 }, "temperature"],
        [{ prompt: "x", temperature: 2.1 }, "temperature"],
        [{ prompt: "x", n: 0 }, "n"],
        [{ prompt: "x", stop: [1] }, "stop"],
        [{ prompt: [] }, "prompt"],
        [{ prompt: [512] }, "prompt"],
        [{ prompt: "" }, "prompt"],
        [{ prompt: "x", stream_options: {} }, "stream_options"],
        [{ prompt: "x", parscale: { streams: 3 } }, "parscale.streams"],
      ] as const).map(([body, param]): typeof cases[0] => ["completions", 400, body, param]),
      ["completions", 404, { prompt: "x", model: "gpt-4" }, "model"],
      ["chat/completions", 400, { messages: [] }, "messages"],
      ["chat/completions", 400, { messages: [{ role: "user", content: "x" }] }, null],
      ["embeddings", 404, {}, null],
      ["completions", 413, "x".repeat((8 << 20) + 1), null],
    ];
    for (const [path, status, body, param] of cases) {
      const response = await server.post(`/v1/${path}`, body);
      const { error } = await response.json();
      assertEquals([response.status, error.param], [status, param], JSON.stringify(error));
      assertEquals(error.type, "invalid_request_error");
      assert(response.headers.get("x-request-id"));
      const served = "/v1/chat/completions, /v1/completions, /v1/models";
      const unserved = `no such path: /v1/embeddings; served are ${served}`;
      if (path === "embeddings") assertEquals(error.message, unserved);
      const streams = "no model has P = 3: there is P = 2";
      if (param === "parscale.streams") assertEquals(error.message, streams);
    }
    const wrong = await server.get("/v1/completions");
    assertEquals([wrong.status, (await wrong.json()).error.type], [405, "invalid_request_error"]);
  });

  await t.step("tokenizer endpoints", async () => {
    const body = { prompt: "The red fox", add_special_tokens: false };
    const { tokens, count, max_model_len } = await server.json("/tokenize", body);
    assertEquals([count, max_model_len], [tokens.length, 2048]);
    assertEquals((await server.json("/detokenize", { tokens })).prompt, "The red fox");
    const { eos_token } = await server.json("/tokenizer_info");
    assertEquals(eos_token, "<|endoftext|>");
    assertEquals((await server.json("/tokenize", { prompt: eos_token })).tokens, [490]);
  });

  await t.step("Host, Origin and the metrics' names", async () => {
    const { port } = new URL(server.url);
    const foreign = await server.get("/health", { origin: "https://example.org" });
    assertEquals((await foreign.json()).error.type, "permission_error");
    const own = await server.get("/health", { origin: `http://127.0.0.1:${port}` });
    assertEquals(await own.json(), { status: "ok" });
    const connection = await Deno.connect({ port: Number(port) });
    const request = "GET /health HTTP/1.1\r\nHost: a.example\r\n\r\n";
    await connection.write(new TextEncoder().encode(request));
    const answer = new Uint8Array(64);
    await connection.read(answer);
    connection.close();
    assertStringIncludes(new TextDecoder().decode(answer), "403");
    const metrics = await server.metrics();
    const label = `{model="${NAME}"}`;
    const names = "num_requests_running num_requests_waiting kv_cache_usage_perc " +
      "prefix_cache_queries_total prefix_cache_hits_total prompt_tokens_total " +
      "generation_tokens_total time_to_first_token_seconds_count inter_token_latency_seconds_sum " +
      "e2e_request_latency_seconds_count request_queue_time_seconds_count";
    for (const name of names.split(" ")) assert(metrics.has(`parscale_${name}${label}`), name);
    assert(metrics.get(`parscale_request_failure_total{code="404"}`)! >= 2);
  });
});

Deno.test("chats, and adapters as model names over one backbone", (t) =>
  withScratch(async (folder) => {
    const two = await makeAdapter(CHAT_MODEL, 2, `${folder}/two`);
    const four = await makeAdapter(CHAT_MODEL, 4, `${folder}/four`);
    const adapters = `--adapter p2=${two} --adapter p4=${four}`;
    await using server = await TestServer.start(`--model ${CHAT_MODEL} ${adapters}`);
    const messages = [{ role: "user", content: "Tell me of the fox" }];
    const greedy = { messages, max_tokens: 10, temperature: 0 };

    await t.step("a chat is the completion of its template", async () => {
      const { choices: [choice], object, usage } = await server.chat(greedy);
      assertEquals(object, "chat.completion");
      assertEquals(choice.message.role, "assistant");
      const { tokens } = await server.json("/tokenize", { messages });
      const plain = await server.complete({ prompt: tokens, max_tokens: 10, temperature: 0 });
      assertEquals(choice.message.content, plain.choices[0].text);
      assertEquals(usage.prompt_tokens, tokens.length);
      const parts = [{ type: "text", text: "Tell me of the fox" }];
      assertEquals((await server.chat({ ...greedy, echo: true })).error.param, "echo");
      const again = await server.chat({ ...greedy, messages: [{ role: "user", content: parts }] });
      assertEquals(again.choices[0].message.content, choice.message.content);
      assertEquals(again.usage.prompt_tokens_details.cached_tokens, tokens.length - 1);
    });

    await t.step("a stream begins with the role and ends with the reason", async () => {
      const { choices: [{ message, finish_reason }] } = await server.chat(greedy);
      const frames = await server.frames("/v1/chat/completions", greedy);
      assertEquals(frames[0].choices[0].delta.role, "assistant");
      const text = frames.map(({ choices: [choice] }) => choice.delta.content ?? "").join("");
      assertEquals(text, message.content);
      assertEquals(frames.at(-1).choices[0].finish_reason, finish_reason);
    });

    await t.step("log-probabilities of a chat have bytes and alternatives", async () => {
      const body = { ...greedy, logprobs: true, top_logprobs: 2 };
      const { choices: [{ logprobs, message }] } = await server.chat(body);
      assertEquals(logprobs.refusal, null);
      const bytes = logprobs.content.flatMap((one: { bytes: number[] }) => one.bytes);
      const text = new TextDecoder().decode(Uint8Array.from(bytes));
      assert(text.startsWith(message.content));
      for (const { logprob, top_logprobs } of logprobs.content) {
        assertEquals(top_logprobs.length, 2);
        assertEquals(top_logprobs[0].logprob, logprob, "greedy takes the best");
      }
      const { error } = await server.chat({ ...greedy, top_logprobs: 2 });
      assertEquals(error.param, "top_logprobs");
    });

    await t.step("streams choose the adapter; models name their parent", async () => {
      const { data } = await server.json("/v1/models");
      assertEquals(
        // deno-lint-ignore no-explicit-any -- any field
        data.map(({ id, parent, parscale }: any) => [id, parent, parscale.streams]),
        [["tiny-qwen2", null, 1], ["p2", "tiny-qwen2", 2], ["p4", "tiny-qwen2", 4]],
      );
      const one = await server.json("/v1/models/p4");
      assertEquals(one.parscale.streams, 4);
      for (const streams of [1, 2, 4] as const) {
        const body = { ...greedy, model: "p2", parscale: { streams, weights: true } };
        const { choices: [{ parscale }], model } = await server.chat(body);
        assertEquals(model, streams === 1 ? "tiny-qwen2" : `p${streams}`);
        assertEquals([parscale.streams, parscale.tokens[0].weights.length], [streams, streams]);
        const adapter = { 1: "", 2: `--adapter ${two}`, 4: `--adapter ${four}` }[streams];
        const generate = `generate --model ${CHAT_MODEL} --chat --max-tokens 10 ${adapter}`;
        const [row] = await rowsOf(`${generate} --prompt 'Tell me of the fox'`);
        const named = await server.chat({ ...greedy, model });
        assertEquals(named.choices[0].message.content, row.text);
      }
    });
  }));
