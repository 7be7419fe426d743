/** Long texts in requests to `parscale serve`, which delay no other client. */
import { assert, assertEquals } from "@std/assert";
import { residentOf } from "../resident.ts";
import { CHAT_MODEL, TestServer } from "../cli/serve_testing.ts";

/** Bytes of a body: a little less than the server takes. */
const BYTES = (8 << 20) - 200;

const TEXT = "a b".repeat(BYTES / 3);
const IDS = "[" + "11,".repeat(BYTES / 3 - 1) + "11]";
const CHAT = Array.from({ length: BYTES / 40 }, () => '{"role":"user","content":"a b"}').join();

/** Bodies whose reading, rendering, tokenizing or decoding takes long. */
const LONG: readonly [path: string, body: string][] = [
  ["/tokenize", `{"prompt":"${TEXT}"}`],
  ["/tokenize", `{"messages":[${CHAT}]}`],
  ["/detokenize", `{"tokens":${IDS}}`],
  ["/detokenize", `{"tokens":[${"11,".repeat((1 << 18) - 1)}11]}`],
  ["/v1/completions", `{"prompt":"${TEXT}"}`],
  ["/v1/completions", `{"prompt":${IDS},"temperature":0.0}`],
  ["/v1/chat/completions", `{"messages":[{"role":"user","content":"${TEXT}"}]}`],
  ["/v1/chat/completions", `{"messages":[${CHAT}]}`],
];

/** Times of `/health` until `work` is over, longest first; asked by a process that does nothing else. */
async function healthTimes(server: TestServer, work: () => Promise<unknown>): Promise<number[]> {
  const child = new URL("health_child.ts", import.meta.url).href;
  const process = new Deno.Command(Deno.execPath(), {
    args: ["run", "-A", "--no-config", child, `${server.url}/health`],
    stdout: "piped",
  }).spawn();
  const [ready, rest] = process.stdout.tee();
  await ready.getReader().read();
  await work();
  process.kill("SIGTERM");
  const lines = (await new Response(rest).text()).trim().split("\n");
  await process.status;
  return JSON.parse(lines.at(-1)!).toSorted((a: number, b: number) => b - a);
}

/** Sends a body, reads the answer to its end, and returns its status. */
async function send(server: TestServer, path: string, body: Uint8Array<ArrayBuffer>) {
  const response = await fetch(server.url + path, { method: "POST", body });
  await response.body?.pipeTo(new WritableStream());
  return response.status;
}

Deno.test("/health is answered while long texts are read, rendered, tokenized and decoded", async () => {
  await using server = await TestServer.start(`${CHAT_MODEL} --threads 1`);
  for (const [path, text] of LONG) {
    const body = new TextEncoder().encode(text);
    const slowest: number[] = [];
    for (let i = 0; i < 3; i++) {
      const [time] = await healthTimes(server, () => send(server, path, body));
      slowest.push(time!);
    }
    assert(Math.min(...slowest) < 100, `${path} ${text.slice(0, 20)}: ${slowest} ms`);
  }
});

/** Sends twenty long texts at once, and says which other requests waited too long meanwhile. */
async function delaysBeside(server: TestServer): Promise<string[]> {
  const body = new TextEncoder().encode(LONG[0]![1]);
  const statuses: number[] = [];
  let isOver = false;
  const load = async () => {
    const all = Array.from({ length: 20 }, () => send(server, "/tokenize", body));
    statuses.push(...await Promise.all(all).finally(() => isOver = true));
  };
  const waitsOf = async (pairs: number) => {
    const waits: number[] = [], prompt = "a b".repeat(pairs);
    while (!isOver) {
      const began = performance.now();
      assertEquals((await server.json("/tokenize", { prompt })).count, 2 * pairs);
      waits.push(performance.now() - began);
    }
    return waits;
  };
  let short: number[] = [], page: number[] = [];
  const times = await healthTimes(server, async () => {
    [, short, page] = await Promise.all([load(), waitsOf(10), waitsOf(40_000)]);
  });
  assert(statuses.includes(200) && statuses.every((one) => one === 200 || one === 429));
  const found = [
    times[Math.floor(times.length / 20)]! < 100 ? "" : `health: ${times.slice(0, 20)} ms`,
    Math.max(...short) < 1000 ? "" : `short text: ${short} ms`,
    Math.max(...page) < 3000 ? "" : `page of text: ${page} ms`,
  ];
  return found.filter((one) => one !== "");
}

Deno.test({
  name: "twenty long texts delay no other client, and take bounded memory",
  ignore: Deno.build.os !== "linux",
  fn: async () => {
    await using server = await TestServer.start(`${CHAT_MODEL} --threads 1`);
    // Other work of the machine slows one round, not each of three.
    let delays = await delaysBeside(server);
    for (let i = 0; i < 2 && delays.length > 0; i++) delays = await delaysBeside(server);
    assertEquals(delays, []);
    const peak = residentOf(server.process.pid).peak / 1e6;
    assert(peak < 1200, `${peak} MB`);
  },
});

Deno.test("a long request is answered as a short one is, also when it is refused", async () => {
  await using server = await TestServer.start(`${CHAT_MODEL} --threads 1`);
  const blanks = " ".repeat(1 << 17); // makes a body long
  const requests: [string, Record<string, unknown>][] = [
    ["/tokenize", { prompt: "The red fox" }],
    ["/tokenize", { prompt: "The red fox", add_special_tokens: false }],
    ["/tokenize", { messages: [{ role: "user", content: "Hi" }] }],
    ["/tokenize", {}],
    ["/detokenize", { tokens: [1, 2, 3] }],
    ["/detokenize", { tokens: [-1] }],
    ["/v1/completions", { prompt: "The red", seed: 1, n: 2, echo: true, logprobs: 2 }],
    ["/v1/completions", { prompt: ["The red", [1, 2]], seed: 1, logit_bias: { "5": 3.0 } }],
    ["/v1/completions", { prompt: [10 ** 6] }],
    ["/v1/completions", { prompt: "a", n: 0 }],
    ["/v1/completions", { prompt: "a", model: "none" }],
    ["/v1/chat/completions", { messages: [{ role: "user", content: "Hi" }], seed: 1 }],
    ["/v1/chat/completions", { messages: [] }],
    ["/v1/chat/completions", { messages: [{ role: "user" }], chat_template_kwargs: { x: 1 } }],
  ];
  for (const [path, body] of requests) {
    const text = JSON.stringify({ max_tokens: 4, temperature: 0, ...body });
    const answers = await Promise.all([text, text + blanks].map(async (text) => {
      const response = await server.post(path, text);
      const { id: _id, created: _created, ...document } = await response.json();
      delete document.usage?.prompt_tokens_details; // the second finds its prompt in the cache
      return { status: response.status, document };
    }));
    assertEquals(answers[1], answers[0], text);
  }
  const { error } = await server.complete({ prompt: "a", stop: [blanks.repeat(5)] });
  assertEquals(error.type, "invalid_request_error");
});
