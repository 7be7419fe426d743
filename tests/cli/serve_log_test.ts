/** The log of `parscale serve`. */
import { assert, assertEquals, assertMatch } from "@std/assert";
import { CHAT_MODEL, TestServer, until } from "./serve_testing.ts";

const START = ["--model", CHAT_MODEL, "--max-model-len", "2048"];

Deno.test("every request is one line: what was asked for, tokens, times and status", async () => {
  await using server = await TestServer.start(START);
  const whole = await server.complete({ prompt: "hi", max_tokens: 5, ignore_eos: true });
  await server.frames("/v1/completions", { prompt: ["hi", "ho"], max_tokens: 3, ignore_eos: true });
  await (await server.get("/v1/nowhere")).body?.cancel();
  await (await server.get("/health")).body?.cancel();
  const stop = new AbortController();
  const long = { prompt: "hi", max_tokens: 2000, ignore_eos: true, stream: true };
  const left = await server.post("/v1/completions", long, { signal: stop.signal });
  await left.body!.getReader().read();
  stop.abort();
  const running = 'parscale_num_requests_running{model="tiny-qwen2"}';
  await until(async () => (await server.metrics()).get(running) === 0, "no row is left");
  server.process.kill("SIGTERM");
  assertEquals(await server.ended, { code: 0, stderr: "" });

  const said = server.log.map(({ method, path, model, streams, status, ...rest }) =>
    [status, method, path, model, streams, rest.prompt_tokens, rest.completion_tokens].join(" ")
  );
  const prompt = whole.usage.prompt_tokens;
  const done = `200 POST /v1/completions tiny-qwen2 1 ${prompt} 5`;
  assertEquals(said.slice(0, 3), [
    done,
    `200 POST /v1/completions tiny-qwen2 1 ${2 * prompt} 6`,
    "404 GET /v1/nowhere   0 0",
  ]);
  assertEquals(said.length, 4, "the answer of /health is no line");
  assertMatch(said[3]!, /^499 POST /);
  for (const { first_token_s, total_s } of server.log.slice(0, 2)) {
    assert(first_token_s > 0 && first_token_s <= total_s);
  }
});

Deno.test("the log is text unless --log-format json, and silent with --quiet", async () => {
  for (const quiet of [[], ["--quiet"]]) {
    await using server = await TestServer.start([...START, "--log-format", "text", ...quiet]);
    await server.complete({ prompt: "hi", max_tokens: 5, ignore_eos: true });
    server.process.kill("SIGTERM");
    const { stderr } = await server.ended;
    if (quiet.length > 0) assertEquals(stderr, "");
    else {
      assertMatch(
        stderr,
        /^200 POST \/v1\/completions tiny-qwen2 P=1, 2 tokens in, 5 out, first [\d.]+ s, total [\d.]+ s\n$/,
      );
    }
  }
});
