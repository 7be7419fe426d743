/** Running `parscale serve`: memory, keys, back-pressure, disconnects, shutdown and the log. */
import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { assertRefused, MODEL, rowsOf, succeed } from "./models.ts";
import { parscale, runParscale } from "./run.ts";
import { withScratch } from "../scratch.ts";
import { CHAT_MODEL, makeAdapter, TestServer, until } from "./serve_testing.ts";
import { FIXTURES } from "../fixtures.ts";

/** A backbone of another width. */
const OTHER_MODEL = `${FIXTURES}models/word-problems`;

const NAME = "qwen2-p2-tied-f32";
const LONG = { prompt: "The red fox", max_tokens: 1900, temperature: 0, ignore_eos: true };

const running = async (server: TestServer, name = NAME) => {
  const metrics = await server.metrics();
  const label = `{model="${name}"}`;
  return metrics.get(`parscale_num_requests_running${label}`)! +
    metrics.get(`parscale_num_requests_waiting${label}`)!;
};

Deno.test("sizes over the memory limit end with exit code 4 and the largest batch that fits", async () => {
  const line =
    `--model ${MODEL} --prefix-cache 1MiB --memory-limit 100MiB --max-model-len 2048 --max-batch`;
  const refused = (batch: number) => runParscale(`serve --port 0 ${line} ${batch}`);
  const { code, stderr } = await refused(64);
  assertEquals(code, 4);
  const [, batch, length] = /--max-batch (\d+)` or `--max-model-len (\d+)`, the largest/
    .exec(stderr)!.map(Number) as [number, number, number];
  assertEquals(length % 128, 0);
  assert(batch >= 1 && batch < 64, stderr);
  await using server = await TestServer.start(`${line} ${batch}`);
  const asked = Array.from({ length: 12 }, () => server.complete({ ...LONG, max_tokens: 400 }));
  for (const { choices } of await Promise.all(asked)) assertEquals(choices.length, 1);
  assertEquals((await refused(batch + 1)).code, 4);
});

Deno.test("a default length that does not fit is lowered, in one line, to the largest that fits", async () => {
  const line = `--model ${MODEL} --prefix-cache 1MiB --memory-limit 100MiB --max-batch 64`;
  await using server = await TestServer.start(line);
  const { data } = await (await server.get("/v1/models")).json();
  const { max_model_len: length } = data[0];
  const { stderr } = await server.stop();
  assertEquals(
    stderr,
    `lowering \`--max-model-len\` from 2048 to ${length}, with which 64 sequences fit in 105 MB; ` +
      "a smaller --max-batch leaves room for longer ones\n",
  );
  const asked = (length: number) => runParscale(`serve --port 0 ${line} --max-model-len ${length}`);
  assertEquals((await asked(length + 1)).code, 4);
});

Deno.test("without a limit, sizes over the free memory are warned about", async () => {
  await using server = await TestServer.start(`--model ${MODEL} --prefix-cache 1000TB`);
  const { code, stderr } = await server.stop();
  assertEquals(code, 0);
  assertMatch(stderr, /^warning: 8 sequences of 2048 tokens need \S+ TB, \S+ \S+ are free\n/);
});

Deno.test("errors call the model by its served name, in short requests and long ones", async () => {
  await using server = await TestServer.start(`--model ${MODEL}`);
  for (const length of [1, 100_000]) {
    const messages = [{ role: "user", content: "a".repeat(length) }];
    const response = await fetch(`${server.url}/v1/chat/completions`, {
      method: "POST",
      body: JSON.stringify({ messages }),
    });
    const { error } = await response.json();
    assertMatch(error.message, new RegExp(`^"${NAME}" has no chat template for messages; `));
  }
});

Deno.test("a port in use is exit code 4", async () => {
  using listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  const { port } = listener.addr;
  const result = await runParscale(`serve --model ${MODEL} --port ${port}`);
  assertRefused(result, 4, `port ${port} of 127.0.0.1 is in use`);
});

Deno.test("the API key guards all but the page and /health; foreign pages need --cors", async () => {
  const origin = "https://chat.example.org", line = `--model ${MODEL} --cors ${origin}`;
  await using server = await TestServer.start(line, { PARSCALE_API_KEY: "secret" });
  const key = { authorization: "Bearer secret" };
  for (
    const [path, status, headers] of [
      ["/health", 200, {}],
      ["/", 200, {}],
      ["/v1/models", 401, {}],
      ["/metrics", 401, { authorization: "Bearer other" }],
      ["/v1/models", 200, key],
      ["/v1/models", 403, { ...key, origin: "https://other.example.org" }],
    ] as const
  ) assertEquals(await server.status(path, headers), status, path);
  const allowed = await server.get("/v1/models", { ...key, origin });
  await allowed.body?.cancel();
  assertEquals(allowed.headers.get("access-control-allow-origin"), origin);
  const preflight = await fetch(`${server.url}/v1/completions`, {
    method: "OPTIONS",
    headers: { origin, "access-control-request-headers": "authorization" },
  });
  assertEquals(preflight.status, 204);
  assertEquals(preflight.headers.get("access-control-allow-headers"), "authorization");
});

Deno.test("a client that goes leaves no row: 200 cancels, whole and streamed", async () => {
  await using server = await TestServer.start(`--model ${MODEL} --max-batch 4`);
  await Promise.all(Array.from({ length: 200 }, async (_, i) => {
    const controller = new AbortController();
    const body = { ...LONG, stream: i % 2 === 0 };
    const request = server.post("/v1/completions", body, { signal: controller.signal });
    setTimeout(() => controller.abort(), 20 + i % 7 * 30);
    await request.then((response) => response.text()).catch(() => {});
  }));
  await until(async () => await running(server) === 0, "rows are free");
  const { choices } = await server.complete({ ...LONG, max_tokens: 4 });
  assertEquals(choices[0].finish_reason, "length");
  assertEquals(await server.stop(), { code: 0, stderr: "" });
});

Deno.test("a client that goes is noticed even when its request came in two packets", async () => {
  await using server = await TestServer.start(`--model ${MODEL} --max-model-len 2048`);
  const body = JSON.stringify({ ...LONG, n: 32 });
  const { port } = new URL(server.url);
  const connection = await Deno.connect({ port: Number(port) });
  const send = (text: string) => connection.write(new TextEncoder().encode(text));
  await send(
    `POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: ${body.length}\r\n\r\n`,
  );
  await new Promise((resolve) => setTimeout(resolve, 30));
  await send(body);
  await until(async () => await running(server) > 0, "it runs");
  connection.close();
  await until(async () => await running(server) === 0, "rows are free");
  // No counter: it had gone before the first token.
  const counter = `parscale_generation_tokens_total{model="${NAME}"}`;
  const tokens = (await server.metrics()).get(counter) ?? 0;
  assert(tokens < 32 * 1900, `${tokens} tokens for a client that has gone`);
});

Deno.test("a full queue answers 429 with Retry-After; a choice too many is refused", async () => {
  await using server = await TestServer.start(`--model ${MODEL} --max-batch 1 --max-queue 2`);
  const controller = new AbortController();
  const { signal } = controller;
  const open = [1, 2, 3].map(() =>
    server.post("/v1/completions", LONG, { signal }).catch(() => undefined)
  );
  await until(async () => await running(server) === 3, "three are accepted");
  const response = await server.post("/v1/completions", LONG);
  assertEquals((await response.json()).error.type, "overloaded");
  assertEquals([response.status, response.headers.get("retry-after")], [429, "1"]);
  controller.abort();
  await Promise.all(open);
  await until(async () => await running(server) === 0, "rows are free");
  assertEquals((await server.complete({ ...LONG, n: 4 })).error.param, "n");
  assertEquals((await server.complete({ ...LONG, max_tokens: 2, n: 3 })).choices.length, 3);
});

Deno.test("a signal while the model loads ends the program at once", () =>
  withScratch(async (cwd) => {
    using hub = Deno.listen({ hostname: "127.0.0.1", port: 0 });
    const env = { HF_ENDPOINT: `http://127.0.0.1:${hub.addr.port}`, HF_HOME: cwd };
    const pipes = { stdin: "null", stdout: "null", stderr: "null" } as const;
    const child = parscale("serve --model owner/model --port 0", { cwd, env, ...pipes }).spawn();
    using _asked = await hub.accept(); // and never answered
    child.kill("SIGINT");
    const { code, signal } = await child.status;
    assertEquals([code, signal], [130, "SIGINT"]);
  }));

Deno.test("SIGTERM: running requests finish, new ones get 503, the exit code is 0", async () => {
  await using server = await TestServer.start(`--model ${MODEL}`);
  const open = server.complete({ ...LONG, max_tokens: 600 });
  await until(async () => await running(server) === 1, "it runs");
  server.process.kill("SIGTERM");
  await until(async () => await server.status("/health") === 503, "it drains");
  const refused = await server.post("/v1/completions", LONG);
  assertEquals([refused.status, refused.headers.get("retry-after")], [503, "10"]);
  await refused.body?.cancel();
  assertEquals((await open).usage.completion_tokens, 600);
  const { code, stderr } = await server.ended;
  assertEquals([code, stderr], [0, "finishing 1 choices\n"]);
});

Deno.test("SIGTERM: what is not finished in time ends with an error frame, and code 143", async () => {
  await using server = await TestServer.start(`--model ${MODEL} --drain-timeout 0.2s`);
  const body = { ...LONG, n: 8, stream: true };
  const response = await server.post("/v1/completions", body);
  server.process.kill("SIGTERM");
  const frames = (await response.text()).trim().split("\n\n");
  assertStringIncludes(frames.at(-1)!, '"type":"unavailable_error"');
  assertEquals((await server.ended).code, 143);
});

Deno.test("HEAD answers as GET does, without a body", async () => {
  await using server = await TestServer.start(`--model ${MODEL}`);
  for (const path of ["/health", "/v1/models", `/v1/models/${NAME}`, "/metrics"]) {
    const [head, get] = await Promise.all(
      ["HEAD", "GET"].map((method) => fetch(`${server.url}${path}`, { method })),
    );
    assertEquals([head!.status, await head!.text()], [200, ""], path);
    assertEquals(head!.headers.get("content-type"), get!.headers.get("content-type"), path);
    await get!.body!.cancel();
  }
  const posted = await fetch(`${server.url}/v1/completions`, { method: "HEAD" });
  assertEquals(posted.status, 405);
});

Deno.test("/health answers while a long prompt is prefilled", async () => {
  await using server = await TestServer.start(`--model ${CHAT_MODEL}`);
  const { data } = await server.json("/v1/models");
  const length = data[0].max_model_len - 2;
  const prompt = new Array(Math.min(length, 6000)).fill(9);
  let isRead = false, answers = 0;
  const long = server.complete({ prompt, max_tokens: 1 }).finally(() => isRead = true);
  for (; !isRead; answers++) await server.status("/health");
  assertEquals((await long).usage.prompt_tokens, prompt.length);
  // Two dozen chunks: a server that only answers between them would come to about as many.
  assert(answers > 100, `${answers} answers before the prompt was read`);
});

Deno.test("a ParScale model serves beside adapters of its backbone, not of another", () =>
  withScratch(async (cwd) => {
    const four = await makeAdapter(CHAT_MODEL, 4, `${cwd}/four`);
    await succeed(`convert --model ${CHAT_MODEL} --streams 2 --out p2`, { cwd });
    const line = `--model ${cwd}/p2 --adapter p4=${four}`;
    await using server = await TestServer.start(line);
    const asked = { prompt: "The red fox", max_tokens: 8, temperature: 0 };
    for (const [model, from] of [["p2", "p2"], ["p4", `${CHAT_MODEL} --adapter four`]] as const) {
      const { choices: [{ text }] } = await server.complete({ ...asked, model });
      const generate = `generate --model ${from} --prompt '${asked.prompt}' --max-tokens 8`;
      assertEquals(text, (await rowsOf(generate, { cwd }))[0].text);
    }
    const other = await makeAdapter(OTHER_MODEL, 2, `${cwd}/other`);
    const refused = await runParscale(`serve --port 0 --model ${MODEL} --adapter p2=${other}`);
    assertEquals(refused.code, 3);
  }));

Deno.test("every request is one line of the log: what was asked for, tokens, times and status", async () => {
  await using server = await TestServer.start(`--model ${MODEL}`);
  const short = { prompt: "hi", max_tokens: 5, ignore_eos: true };
  const { usage: { prompt_tokens } } = await server.complete(short);
  const two = { ...short, prompt: ["hi", "ho"], max_tokens: 3 };
  await server.frames("/v1/completions", two);
  await server.status("/v1/nowhere");
  await server.status("/health");
  const controller = new AbortController();
  const stream = { ...LONG, stream: true };
  const left = await server.post("/v1/completions", stream, { signal: controller.signal });
  await left.body!.getReader().read();
  controller.abort();
  await until(async () => await running(server) === 0, "no row is left");
  assertEquals(await server.stop(), { code: 0, stderr: "" });
  const lines = server.log.map((line) =>
    ["status", "method", "path", "model", "streams", "prompt_tokens", "completion_tokens"]
      .map((key) => line[key]).join(" ")
  );
  assertEquals(lines.slice(0, 3), [
    `200 POST /v1/completions ${NAME} 2 ${prompt_tokens} 5`,
    `200 POST /v1/completions ${NAME} 2 ${2 * prompt_tokens} 6`,
    "404 GET /v1/nowhere   0 0",
  ]);
  assertMatch(server.log[2]!.error, /^no such path: \/v1\/nowhere; served are /);
  assertEquals(lines.length, 4, "the answer of /health is not logged");
  assertMatch(lines[3]!, /^499 POST /);
  for (const { first_token_s, total_s } of server.log.slice(0, 2)) {
    assert(first_token_s > 0 && first_token_s <= total_s);
  }
});

Deno.test("no text of a client writes a line of its own into the log", async () => {
  const forged = "a\n200 POST /v1/completions x\r\x1b[2K\x7f\u2028\u202e";
  const tool = { type: "function", function: { name: forged, parameters: { type: "object" } } };
  const messages = [{ role: "user", content: "a" }];
  const bodies: readonly (readonly [path: string, body: object])[] = [
    ["completions", { prompt: "a", [forged]: 1 }],
    ["completions", { prompt: "a", model: forged }],
    ["completions", { prompt: forged, max_tokens: 0 }],
    ["completions", { prompt: "a", stop: [forged, 1] }],
    ["completions", { prompt: "a", max_tokens: forged }],
    ["completions", { prompt: "a", parscale: { [forged]: forged } }],
    ["completions", { prompt: "a", logit_bias: { [forged]: 1 } }],
    ["completions", { prompt: "a", stream_options: { [forged]: true } }],
    ["completions", { prompt: "a", response_format: { type: forged } }],
    ["completions", { prompt: "a", guided_json: { [forged]: forged, type: forged } }],
    ["completions", { prompt: "a", guided_json: { $ref: `#/${forged}` } }],
    ["completions", { prompt: "a", guided_json: { type: "string", pattern: `(${forged}` } }],
    ["chat/completions", { messages: [{ role: forged, content: "a" }] }],
    ["chat/completions", { messages: [{ role: "user", content: [{ type: forged }] }] }],
    ["chat/completions", { messages: [{ role: "user", [forged]: forged }] }],
    ["chat/completions", { messages, tools: [tool] }],
    ["chat/completions", { messages, tools: [tool], tool_choice: forged }],
    ["chat/completions", { messages, chat_template_kwargs: { [forged]: forged } }],
    [encodeURIComponent(forged), {}],
    [`models?${encodeURIComponent(forged)}`, {}],
  ];
  for (const format of ["text", "json"]) {
    await using server = await TestServer.start(`--model ${CHAT_MODEL} --log-format ${format}`);
    const statuses: number[] = [];
    for (const [path, body] of bodies) {
      const response = await server.post(`/v1/${path}`, { max_tokens: 1, ...body });
      await response.body?.cancel();
      statuses.push(response.status);
    }
    const { stderr } = await server.stop();
    const found = format === "json"
      ? server.log.map(({ status }) => status)
      : stderr.trimEnd().split("\n").map((line) => Number(/^(\d{3}) POST \/v1\//.exec(line)?.[1]));
    assertEquals(found, statuses);
    // deno-lint-ignore no-control-regex -- they are looked for
    assertEquals(stderr.match(/[\x00-\x09\x0b-\x1f\x7f\u2028\u202e]/), null);
    if (format === "json") assertEquals(stderr, "");
  }
});

Deno.test("the log is text unless --log-format json, and silent with --quiet", async () => {
  const line =
    /^200 POST \/v1\/completions qwen2-p2-tied-f32 P=2, \d tokens in, 5 out, first [\d.]+ s, total [\d.]+ s\n400 POST \/v1\/completions, total [\d.]+ s: .*max_tokens.*\n$/;
  for (const [flags, expected] of [["", line], [" --quiet", /^$/]] as const) {
    await using server = await TestServer.start(`--model ${MODEL} --log-format text${flags}`);
    await server.complete({ prompt: "hi", max_tokens: 5, ignore_eos: true });
    await server.complete({ prompt: "hi", max_tokens: -5 });
    assertMatch((await server.stop()).stderr, expected);
  }
});
