/** Continuous batching: a request's result depends on nothing but the request. */
import { assert, assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { NumericalError } from "../../../core/base/errors.ts";
import { generate, type GenerationEvent } from "../../../core/generate/generate.ts";
import { CpuDevice } from "../../../core/runtime/onnxruntime/cpu.ts";
import {
  type Generated,
  generated,
  largest,
  logitsOf,
  prompt,
  request,
} from "../../device/engines.ts";
import { openGolden, readExpected } from "../../device/goldens.ts";

const MODEL = "qwen2-p2-tied-f32";

const engine = await openGolden(MODEL, new CpuDevice({ threads: 1 }));

const collect = (requests: Parameters<typeof generated>[1], batch: number) =>
  generated(engine, requests, batch);

Deno.test("no requests give no events", async () => {
  assertEquals(await collect([], 4), []);
  assertEquals(await collect((async function* () {})(), 4), []);
});

Deno.test("requests that cannot be run fail alone", async () => {
  const good = await collect([request(prompt(0))], 1);
  const long = new Array(engine.config.maxPositionEmbeddings + 1).fill(1);
  const wrong = [[], [512], [1, -1], [1, 2.5], long];
  const results = await collect([request(prompt(0)), ...wrong.map((t) => request(t))], 3);
  assertEquals(results[0], good[0]);
  const messages = results.slice(1).map(({ error }) => (error as Error).message);
  const found = ["no tokens", "id 512 at position 0", "id -1 at", "id 2.5 at", "2049 tokens"];
  found.forEach((text, i) => assertStringIncludes(messages[i]!, text));
});

Deno.test("reasons: an end token ends and is kept, a stop ends, the limit ends", async () => {
  const { prompt: tokens, output, eos } = readExpected(MODEL).greedy.with_eos;
  const free = { maxTokens: output.length };
  const [ended, stopped, limited, both] = await collect([
    request(tokens, { ...free, eosTokenIds: [eos] }),
    request(tokens, { ...free, shouldStop: (token) => token === output[0] }),
    request(tokens, { maxTokens: 1 }),
    request(tokens, { ...free, eosTokenIds: [eos], shouldStop: (token) => token === eos }),
  ], 2);
  assertEquals(ended, { tokens: output, reason: "eos" });
  assertEquals(stopped, { tokens: output.slice(0, 1), reason: "stop" });
  assertEquals(limited, { tokens: output.slice(0, 1), reason: "length" });
  assertEquals(both, ended, "a stop is not asked about an end token");
});

Deno.test("the context ends a text: prompt and new tokens fill max_position_embeddings", async () => {
  const short = await openGolden(MODEL, engine.device, { maxPositionEmbeddings: 24 });
  const long = [prompt(0, 20), prompt(1, 23), prompt(2, 24)];
  const results = await generated(short, long.map((t) => request(t, { maxTokens: 100 })), 2);
  const lengths = results.map(({ tokens, reason }) => [tokens.length, reason]);
  assertEquals(lengths, [[4, "length"], [1, "length"], [0, "length"]]);
});

Deno.test("growth past 128 and 256 tokens equals computing the whole text at once", async () => {
  const long = prompt(3, 250);
  const requests = [request(long, { maxTokens: 20 }), request(prompt(4, 5), { maxTokens: 140 })];
  for (const { tokens, maxTokens } of requests) {
    for (const batch of [1, 2]) {
      const at = requests.findIndex((r) => r.tokens === tokens);
      const generated = (await collect(requests, batch))[at]!.tokens;
      assertEquals(generated.length, maxTokens);
      const whole = [...tokens, ...generated].slice(0, -1);
      const select = generated.map((_, i) => tokens.length - 1 + i);
      const logits = await logitsOf(engine, [whole], select);
      const V = engine.config.vocabSize;
      const best = generated.map((_, i) => largest(logits.subarray(i * V, (i + 1) * V)));
      assertEquals(generated, best);
    }
  }
});

Deno.test("a slow source: early requests are answered before later ones are made", async () => {
  let release = () => {};
  const later = new Promise<void>((resolve) => release = resolve);
  const source = async function* () {
    yield request(prompt(0));
    yield request(prompt(1), { maxTokens: 200 });
    await later;
    for (let i = 2; i < 7; i++) yield request(prompt(i));
  };
  const results: Generated[] = [];
  for await (const event of generate(engine, source(), { batch: 4 })) {
    const result = results[event.index] ??= { tokens: [] };
    if (event.kind === "token") result.tokens.push(event.token);
    // The second is in the middle of a cache that has grown when the others come.
    if (event.index === 1 && result.tokens.length === 150) release();
  }
  const all = Array.from({ length: 7 }, (_, i) => request(prompt(i)));
  all[1] = request(prompt(1), { maxTokens: 200 });
  assertEquals(results.map(({ tokens }) => tokens), (await collect(all, 1)).map((r) => r.tokens));
});

Deno.test("a source that fails ends generation with its error; a reader that leaves closes it", async () => {
  const failing = async function* () {
    yield request(prompt(0));
    await Promise.resolve();
    throw new NumericalError("the source broke");
  };
  await assertRejects(() => collect(failing(), 4), NumericalError, "the source broke");
  let closed = false;
  const endless = function* () {
    try {
      for (;;) yield request(prompt(0));
    } finally {
      closed = true;
    }
  };
  const events: GenerationEvent[] = [];
  for await (const event of generate(engine, endless(), { batch: 2 })) {
    events.push(event);
    if (events.length === 20) break;
  }
  assert(closed);
});
