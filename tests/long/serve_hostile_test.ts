/** `parscale serve` and requests that no client means: each is refused with 400 and a reason. */
import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { openTokenizer } from "../../core/tokenizer/tokenizer.ts";
import { MODEL } from "../cli/models.ts";
import { CHAT_MODEL, TestServer } from "../cli/serve_testing.ts";
import { residentOf } from "../resident.ts";

Deno.test("requests that no client means are 400, and nothing is written to stderr", async (t) => {
  await using server = await TestServer.start(["--model", MODEL]);
  const status = async (path: string, body: unknown) => {
    const response = await server.post(path, body);
    const document = await response.json();
    return [response.status, document.error?.param ?? null];
  };

  await t.step("names that every object inherits are not fields", async () => {
    const inherited = ["hasOwnProperty", "valueOf", "__defineGetter__", "toString", "constructor"];
    for (const name of [...inherited, "__proto__"]) {
      const body = `{"prompt": "x", "max_tokens": 1, "${name}": 1}`;
      assertEquals(await status("/v1/completions", body), [400, name]);
      const empty = `{"${name}": {"prompt": "x", "messages": [], "tokens": [1]}}`;
      assertEquals(await status("/v1/completions", empty), [400, name]);
      assertEquals(await status("/tokenize", empty), [400, name]);
      assertEquals(await status("/detokenize", empty), [400, name]);
      const nested = `{"prompt": "x", "parscale": {"${name}": 1}}`;
      assertEquals(await status("/v1/completions", nested), [400, "parscale"], name);
    }
  });

  await t.step("bad percent-encoding of a model's name", async () => {
    const response = await server.get("/v1/models/%E0%A4%A");
    assertEquals(response.status, 400);
    assertStringIncludes((await response.json()).error.message, "invalid percent-encoding");
  });

  await t.step("lists are bounded", async () => {
    const prompt = "x";
    const stop = new Array(1_000_000).fill("a");
    assertEquals(await status("/v1/completions", { prompt, stop }), [400, "stop"]);
    const long = ["a".repeat(1_000_000)];
    assertEquals(await status("/v1/completions", { prompt, stop: long }), [400, "stop"]);
    const tokens = new Array(1_000_000).fill(9);
    assertEquals(await status("/v1/completions", { prompt: tokens }), [400, "prompt"]);
    assertEquals(await status("/detokenize", { tokens }), [400, "tokens"]);
  });

  await t.step(
    "a prompt whose bytes cannot fit the context is refused before it is encoded",
    async () => {
      for (const prompt of ["a".repeat(8_000_000), "é".repeat(4_000_000)]) {
        const response = await server.post("/v1/completions", { prompt });
        const { error } = await response.json();
        assertEquals([response.status, error.code], [400, "context_length_exceeded"]);
        assertStringIncludes(error.message, "the prompt has at least ");
      }
    },
  );

  await t.step(
    "others are answered while a long text is tokenized, and its ids are right",
    async () => {
      const text = "a b".repeat(800_000);
      let isDone = false, answers = 0;
      const long = server.post("/tokenize", { prompt: text }).then((response) => response.json())
        .finally(() => isDone = true);
      while (!isDone) {
        await (await server.get("/health")).body?.cancel();
        answers++;
      }
      const { tokens, count } = await long;
      const tokenizer = await openTokenizer(MODEL);
      assertEquals([tokens.length, tokens], [count, tokenizer.encode(text)]);
      assert(answers > 5, `${answers} answers`);
    },
  );

  await t.step("deep nesting is refused before it is parsed", async () => {
    for (const depth of [65, 1_000_000]) {
      const body = `{"prompt": "x", "metadata": ${"[".repeat(depth)}${"]".repeat(depth)}}`;
      assertEquals(await status("/v1/completions", body), [400, null]);
    }
  });

  await t.step("numbers at the ends of their range", async () => {
    for (const temperature of ["1e-300", "1e300", "1e999", "5e-324"]) {
      const body = `{"prompt": "x", "max_tokens": 2, "temperature": ${temperature}, "top_p": 0.9}`;
      const [code] = await status("/v1/completions", body);
      assert(code === 200 || code === 400, `${temperature}: ${code}`);
    }
  });

  await t.step("hosts and bodies that HTTP does not allow", async () => {
    const { port } = new URL(server.url);
    const raw = async (text: string) => {
      const connection = await Deno.connect({ port: Number(port) });
      await connection.write(new TextEncoder().encode(text));
      const answer = new Uint8Array(64);
      const count = await connection.read(answer);
      connection.close();
      return new TextDecoder().decode(answer.subarray(0, count ?? 0));
    };
    const post = "POST /v1/completions HTTP/1.1\r\n";
    const host = "GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1:999999\r\n\r\n";
    const chunk = `${post}Host: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n`;
    assertStringIncludes(await raw(host), " 400 ");
    // The runtime closes a connection whose chunks have no valid length.
    const answer = await raw(chunk);
    assert(answer === "" || answer.includes(" 400 "), answer);
  });

  server.process.kill("SIGTERM");
  const { code, stderr } = await server.ended;
  const notes = stderr.split("\n");
  assertEquals([code, notes], [0, [""]]);
});

Deno.test("hostile schemas, biases and tools are 400, and other requests are answered meanwhile", async () => {
  await using server = await TestServer.start(["--model", MODEL]);
  const plain = { prompt: "x", max_tokens: 2 };
  const ask = async (fields: Record<string, unknown>) =>
    (await server.complete({ ...plain, ...fields })).error;
  const format = (schema: unknown) => ({ type: "json_schema", json_schema: { schema } });
  const nested = { type: "string", pattern: "^((a{1,900}){1,900}){1,900}$" };
  const { message } = await ask({ response_format: format(nested) });
  assertStringIncludes(message, '"pattern" is not supported with more than 1024 places');

  const deep = `{"prompt":"x","response_format":${'{"a":'.repeat(10_000)}1${"}".repeat(10_000)}}`;
  const response = await server.post("/v1/completions", deep);
  assertEquals(response.status, 400);
  await response.body?.cancel();
  const all = Object.fromEntries(Array.from({ length: 50_000 }, (_, id) => [id, -100]));
  assertEquals((await ask({ logit_bias: all })).param, "logit_bias");
  const large = { description: "x".repeat(1_000_000) };
  assertEquals((await ask({ response_format: format(large) })).param, "response_format");
  const { error } = await server.chat({
    messages: [{ role: "user", content: "x" }],
    tools: [{ type: "function", function: { name: "f", ...large } }],
  });
  assertEquals(error.param, "tools");
  assertEquals(await ask({ response_format: { type: "json_object" } }), undefined);
});

/** Schemas that took seconds and gigabytes, all of which are refused. */
const BOMBS: readonly object[] = [
  { properties: propertiesOf(500), minProperties: 200, maxProperties: 400 },
  { properties: propertiesOf(5000) },
  { type: "string", pattern: "^((a{1,900}){1,900}){1,900}$" },
  { type: "string", pattern: `^(${"[a-z]|".repeat(300)}[0-9]){1,900}$` },
  { anyOf: [{ $ref: "#" }, { $ref: "#" }], minimum: 1 },
  { oneOf: Array.from({ length: 2000 }, (_, i) => ({ const: i })) },
];

/** The slowest schemas that are allowed: many patterns at once, and trees that are told apart late. */
const SLOW: readonly object[] = [
  { type: "string", pattern: "a.{1000}" },
  { type: "string", pattern: "^((([a-z ]{1,8}){1,8}){1,8})$" },
  { anyOf: Array.from({ length: 900 }, (_, i) => ({ type: "string", pattern: `a.{${i}}b` })) },
  { type: "object", properties: propertiesOf(990) },
];

function propertiesOf(count: number): Record<string, object> {
  return Object.fromEntries(Array.from({ length: count }, (_, i) => [`p${i}`, {}]));
}

/** Seconds of processor time of a process so far (Linux only). */
function processorSeconds(pid: number): number {
  const fields = Deno.readTextFileSync(`/proc/${pid}/stat`).split(") ")[1]!.split(" ");
  return (Number(fields[11]) + Number(fields[12])) / 100;
}

Deno.test({
  name: "refused schemas leave no busy thread and no memory",
  ignore: Deno.build.os !== "linux",
  fn: async () => {
    await using server = await TestServer.start(["--model", MODEL]);
    const { pid } = server.process;
    const ask = (schema: object) => {
      const response_format = { type: "json_schema", json_schema: { schema } };
      return server.complete({ prompt: "x", max_tokens: 2, response_format });
    };
    await ask({ type: "string" });
    const before = residentOf(pid).now;
    for (const schema of BOMBS) {
      const start = performance.now();
      const { error } = await ask(schema);
      assertMatch(error.message, /^`response_format`: the schema keyword "\w+" is not supported/);
      assert(performance.now() - start < 250, `${error.message} took too long`);
    }
    await new Promise((resolve) => setTimeout(resolve, 2000));
    assert(residentOf(pid).now - before < 64 << 20, "memory is back");
    const from = processorSeconds(pid);
    await new Promise((resolve) => setTimeout(resolve, 1000));
    assert(processorSeconds(pid) - from < 0.2, "no thread is busy");
  },
});

Deno.test({
  name: "a schema with too many readings leaves no memory",
  ignore: Deno.build.os !== "linux",
  fn: async () => {
    await using server = await TestServer.start(`${CHAT_MODEL} --threads 1`);
    const { pid } = server.process;
    const ask = (schema: object, more = {}) => {
      const response_format = { type: "json_schema", json_schema: { schema } };
      return server.complete({ prompt: "x", response_format, ...more });
    };
    const a = (await openTokenizer(MODEL)).idOf("a")!;
    await ask({ type: "string" });
    const before = residentOf(pid).now;
    const strings = Array.from(
      { length: 900 },
      (_, i) => ({ type: "string", maxLength: 1000 + i }),
    );
    const { error } = await ask(
      { anyOf: strings },
      { max_tokens: 200, logit_bias: { [a]: 100 }, temperature: 0 },
    );
    assertStringIncludes(error.message, "too many ways");
    await new Promise((resolve) => setTimeout(resolve, 2000));
    const more = residentOf(pid).now - before;
    assert(more < 64 << 20, `${more / 1e6} MB`);
  },
});

Deno.test("sixteen slow schemas delay the small one of another client by less than a second", async () => {
  await using server = await TestServer.start(["--model", MODEL]);
  const ask = (schema: object) => {
    const response_format = { type: "json_schema", json_schema: { schema } };
    return server.complete({ prompt: "x", max_tokens: 4, response_format });
  };
  const small = { type: "object", properties: { a: { type: "boolean" } }, required: ["a"] };
  await ask(small);
  const slow = Array.from({ length: 16 }, (_, i) => ask({ ...SLOW[i % 4], title: `${i}` }));
  await new Promise((resolve) => setTimeout(resolve, 20));
  const start = performance.now();
  const { error } = await ask(small);
  const delay = performance.now() - start;
  for (const { error } of await Promise.all(slow)) assertEquals(error, undefined);
  assertEquals(error, undefined);
  assert(delay < 1000, `${delay} ms`);
});
