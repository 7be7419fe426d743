/** Running `parscale serve`: misuse, keys, back-pressure, disconnects and shutdown. */
import { fileURLToPath } from "node:url";
import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { assertRefusals, assertRefused, MODEL, rowsOf } from "./models.ts";
import { runParscale } from "./run.ts";
import { withScratch } from "../scratch.ts";
import { CHAT_MODEL, makeAdapter, TestServer, until } from "./serve_testing.ts";

/** A backbone of another width. */
const OTHER_MODEL = fileURLToPath(new URL("../../fixtures/models/word-problems", import.meta.url));

const NAME = "qwen2-p2-tied-f32";
const LONG = { prompt: "The red fox", max_tokens: 1900, temperature: 0, ignore_eos: true };

const running = async (server: TestServer, name = NAME) => {
  const metrics = await server.metrics();
  const label = `{model="${name}"}`;
  return metrics.get(`parscale_num_requests_running${label}`)! +
    metrics.get(`parscale_num_requests_waiting${label}`)!;
};

Deno.test("misuse and bad data end before the server is ready", () => {
  const serve = `serve --port 0 --model ${MODEL}`;
  return assertRefusals([
    [
      `${serve} --host 0.0.0.0`,
      2,
      "error: `--host 0.0.0.0` needs an API key in PARSCALE_API_KEY\n",
    ],
    [
      `${serve} --adapter some/folder`,
      2,
      "error: `--adapter some/folder` needs a name and a path\n",
    ],
    [`${serve} --adapter a=x --adapter a=y`, 2, 'error: `--adapter` names "a" twice\n'],
    [
      `${serve} --max-model-len 9999`,
      2,
      "error: `--max-model-len 9999` exceeds the model's context of 2048 tokens\n",
    ],
    ["serve --port 0 --model no/such/folder/here", 3],
  ]);
});

Deno.test("sizes over the memory limit end with exit code 4 and the largest batch that fits", async () => {
  const args = ["serve", "--port", "0", "--model", MODEL, "--prefix-cache", "1MiB"];
  const result = await runParscale([...args, "--max-batch", "64", "--memory-limit", "100MiB"]);
  assertEquals(result.code, 4);
  const [, batch] = /--max-batch (\d+)`, the largest/.exec(result.stderr)!;
  assert(Number(batch) >= 1 && Number(batch) < 64, batch);
  const limit = ["--memory-limit", "100MiB"];
  await using server = await TestServer.start([
    ...args.slice(3),
    ...["--max-batch", batch!, ...limit],
  ]);
  const asked = Array.from({ length: 12 }, () => server.complete({ ...LONG, max_tokens: 400 }));
  for (const { choices } of await Promise.all(asked)) assertEquals(choices.length, 1);
  const more = await runParscale([...args, "--max-batch", String(Number(batch) + 1), ...limit]);
  assertEquals(more.code, 4);
});

Deno.test("without a limit, sizes over the free memory are warned about", async () => {
  await using server = await TestServer.start(["--model", MODEL, "--prefix-cache", "1000TB"]);
  server.process.kill("SIGTERM");
  const { code, stderr } = await server.ended;
  assertEquals(code, 0);
  assertMatch(stderr, /^warning: 8 sequences of 2048 tokens need \S+ TB, \S+ \S+ are free\n/);
});

Deno.test("a port in use is exit code 4", async () => {
  using listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  const { port } = listener.addr;
  const result = await runParscale(["serve", "--model", MODEL, "--port", String(port)]);
  assertRefused(result, 4, `port ${port} of 127.0.0.1 is in use`);
});

Deno.test("the API key guards all but the page and /health; foreign pages need --cors", async () => {
  const origin = "https://chat.example.org";
  await using server = await TestServer.start(["--model", MODEL, "--cors", origin], {
    PARSCALE_API_KEY: "secret",
  });
  const status = async (path: string, headers: Record<string, string> = {}) => {
    const response = await server.get(path, headers);
    await response.body?.cancel();
    return response.status;
  };
  const key = { authorization: "Bearer secret" };
  assertEquals(await status("/health"), 200);
  assertEquals(await status("/"), 200);
  assertEquals(await status("/v1/models"), 401);
  assertEquals(await status("/metrics", { authorization: "Bearer other" }), 401);
  assertEquals(await status("/v1/models", key), 200);
  assertEquals(await status("/v1/models", { ...key, origin: "https://other.example.org" }), 403);
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
  await using server = await TestServer.start(["--model", MODEL, "--max-batch", "4"]);
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
  server.process.kill("SIGTERM");
  assertEquals(await server.ended, { code: 0, stderr: "" });
});

Deno.test("a client that goes is noticed even when its request came in two packets", async () => {
  await using server = await TestServer.start(["--model", MODEL, "--max-model-len", "2048"]);
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
  const args = ["--model", MODEL, "--max-batch", "1", "--max-queue", "2"];
  await using server = await TestServer.start(args);
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

Deno.test("SIGTERM: running requests finish, new ones get 503, the exit code is 0", async () => {
  await using server = await TestServer.start(["--model", MODEL]);
  const open = server.complete({ ...LONG, max_tokens: 600 });
  await until(async () => await running(server) === 1, "it runs");
  server.process.kill("SIGTERM");
  await until(async () => (await server.get("/health")).status === 503, "it drains");
  const refused = await server.post("/v1/completions", LONG);
  assertEquals([refused.status, refused.headers.get("retry-after")], [503, "10"]);
  await refused.body?.cancel();
  assertEquals((await open).usage.completion_tokens, 600);
  const { code, stderr } = await server.ended;
  assertEquals([code, stderr], [0, "finishing 1 choices\n"]);
});

Deno.test("SIGTERM: what is not finished in time ends with an error frame, and code 143", async () => {
  await using server = await TestServer.start(["--model", MODEL, "--drain-timeout", "0.2s"]);
  const body = { ...LONG, max_tokens: 1900, n: 8, stream: true, ignore_eos: true };
  const response = await server.post("/v1/completions", body);
  server.process.kill("SIGTERM");
  const frames = (await response.text()).trim().split("\n\n");
  assertStringIncludes(frames.at(-1)!, '"type":"unavailable_error"');
  assertEquals((await server.ended).code, 143);
});

Deno.test("short answers beside a long prompt: a token between every two chunks", async () => {
  await using server = await TestServer.start(["--model", MODEL, "--max-batch", "8"]);
  const received = [0, 0, 0, 0];
  const streams = received.map(async (_, i) => {
    const response = await server.post("/v1/completions", { ...LONG, stream: true });
    for await (const text of response.body!.pipeThrough(new TextDecoderStream())) {
      received[i]! += text.split("data: ").length - 1;
    }
  });
  await until(() => Promise.resolve(received.every((tokens) => tokens > 20)), "they run");
  const before = [...received];
  const long = await server.complete({ prompt: new Array(2000).fill(9), max_tokens: 1 });
  const meanwhile = received.map((tokens, i) => tokens - before[i]!);
  assertEquals(long.usage.prompt_tokens, 2000);
  // The prompt takes eight chunks or more; the last frames may still be on their way.
  assert(Math.min(...meanwhile) >= 6, `${meanwhile} tokens while the prompt was read`);
  server.process.kill("SIGKILL");
  await Promise.allSettled(streams);
});

Deno.test("/health answers while a long prompt is prefilled", async () => {
  await using server = await TestServer.start(["--model", CHAT_MODEL]);
  const { data } = await (await server.get("/v1/models")).json();
  const length = data[0].max_model_len - 2;
  const prompt = new Array(Math.min(length, 6000)).fill(9);
  let isRead = false, answers = 0;
  const long = server.complete({ prompt, max_tokens: 1 }).finally(() => isRead = true);
  for (; !isRead; answers++) await (await server.get("/health")).body?.cancel();
  assertEquals((await long).usage.prompt_tokens, prompt.length);
  // Two dozen chunks: a server that only answers between them would come to about as many.
  assert(answers > 100, `${answers} answers before the prompt was read`);
});

Deno.test("a ParScale model serves beside adapters of its backbone", () =>
  withScratch(async (folder) => {
    const four = await makeAdapter(CHAT_MODEL, 4, `${folder}/four`);
    const convert = ["convert", "--model", CHAT_MODEL, "--streams", "2", "--out", `${folder}/p2`];
    assertEquals((await runParscale(convert)).code, 0);
    const models = ["--model", `${folder}/p2`, "--adapter", `p4=${four}`];
    await using server = await TestServer.start(models);
    const prompt = { prompt: "The red fox", max_tokens: 8, temperature: 0 };
    for (const [model, from] of [["p2", `${folder}/p2`], ["p4", CHAT_MODEL]] as const) {
      const { choices: [{ text }] } = await server.complete({ ...prompt, model });
      const adapter = model === "p4" ? ["--adapter", four] : [];
      const args = ["--model", from, ...adapter, "--prompt", prompt.prompt, "--max-tokens", "8"];
      const [row] = await rowsOf(["generate", ...args]);
      assertEquals(text, row.text);
    }
  }));

Deno.test("an adapter of another backbone is refused at the start", () =>
  withScratch(async (folder) => {
    const adapter = await makeAdapter(OTHER_MODEL, 2, `${folder}/two`);
    const args = ["serve", "--port", "0", "--model", MODEL, "--adapter", `p2=${adapter}`];
    assertEquals((await runParscale(args)).code, 3);
  }));
