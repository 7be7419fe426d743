/** The scheduler: chunked prefill, prompts prefilled together, cancellation, prefix cache, log-probabilities. */
import { assert, assertAlmostEquals, assertEquals } from "@std/assert";
import { GREEDY } from "../../../core/base/sampling.ts";
import { RandomStream } from "../../../core/base/random.ts";
import { Engine } from "../../../core/generate/engine.ts";
import type { GenerationRequest, SchedulerEvent } from "../../../core/generate/request.ts";
import { Scheduler } from "../../../core/generate/scheduler.ts";
import { scoreBatch } from "../../../core/generate/score.ts";
import { CpuDevice } from "../../../core/runtime/onnxruntime/cpu.ts";
import { TRAITS, type Traits } from "../../../core/runtime/traits.ts";
import { samplers } from "../devices.ts";
import { prompt, request, runAll, scheduled } from "../engines.ts";
import { openGolden } from "../goldens.ts";

const MODEL = "qwen2-p2-tied-f32";

/** Small chunks, so that short prompts take several. */
class SmallChunkDevice extends CpuDevice {
  override traits: Traits = { ...TRAITS.cpu, prefillChunk: 16 };
}

const engine = await openGolden(MODEL, new CpuDevice({ threads: 1 }));
const chunked = await openGolden(MODEL, new SmallChunkDevice({ threads: 1 }));

/** Tokens of requests that run one after the other, each on a scheduler of its own. */
async function alone(requests: readonly GenerationRequest[]): Promise<number[][]> {
  const tokens: number[][] = [];
  for (const one of requests) tokens.push(...(await scheduled(engine, [one])).tokens);
  return tokens;
}

const kindsOf = (events: readonly SchedulerEvent[]) => events.map((e) => `${e.kind} ${e.index}`);

Deno.test("a long prompt delays a token by one chunk: every round decodes and prefills one", async () => {
  using scheduler = new Scheduler(chunked, { batch: 4 });
  scheduler.add(0, request(prompt(0, 5), { maxTokens: 40 }));
  await Array.fromAsync(scheduler.round());
  scheduler.add(1, request(prompt(1, 100)));
  for (let chunk = 1; chunk < 7; chunk++) {
    assertEquals(kindsOf(await Array.fromAsync(scheduler.round())), ["token 0"]);
    assertEquals(scheduler.progressOf(1), 16 * chunk);
  }
  const last = kindsOf(await Array.fromAsync(scheduler.round()));
  assertEquals(last, ["token 0", "prefilled 1", "token 1"]);
});

/** Adds `count` requests of an owner from an index on. */
function addAll(scheduler: Scheduler, from: number, count: number, maxTokens: number): void {
  const owner = {};
  for (let i = from; i < from + count; i++) {
    scheduler.add(i, request(prompt(i, 3), { owner, maxTokens }));
  }
}

Deno.test("owners take turns for rows, whatever number of requests each has", async () => {
  using scheduler = new Scheduler(engine, { batch: 2 });
  addAll(scheduler, 0, 8, 3);
  const events = await Array.fromAsync(scheduler.round());
  addAll(scheduler, 20, 3, 3);
  addAll(scheduler, 30, 1, 3);
  events.push(...await runAll(scheduler));
  const order = events.filter(({ kind }) => kind === "prefilled").map(({ index }) => index);
  assertEquals(order, [0, 1, 20, 30, 2, 21, 3, 22, 4, 5, 6, 7]);
});

Deno.test("an owner that arrives finds a row, whatever another's requests take", async () => {
  using scheduler = new Scheduler(engine, { batch: 8 });
  addAll(scheduler, 0, 30, 100);
  for (let i = 0; i < 5; i++) await Array.fromAsync(scheduler.round());
  assertEquals([scheduler.running, scheduler.waiting], [7, 23]);
  addAll(scheduler, 50, 2, 2);
  const events: string[] = [];
  for (let i = 0; i < 3; i++) events.push(...kindsOf(await Array.fromAsync(scheduler.round())));
  assert(events.includes("done 50"), events.join());
  const tokens = new Set(events.filter((event) => /^token [0-6]$/.test(event)));
  assertEquals(tokens.size, 7);
});

Deno.test("a short prompt passes a long one: two prefill in alternation", async () => {
  using scheduler = new Scheduler(chunked, { batch: 4 });
  scheduler.add(0, request(prompt(0, 160)));
  await Array.fromAsync(scheduler.round());
  scheduler.add(1, request(prompt(1, 40), { maxTokens: 1 }));
  const events = kindsOf(await runAll(scheduler));
  assert(events.indexOf("done 1") < events.indexOf("prefilled 0"), events.join());
});

Deno.test("chunks, groups and neighbours do not change tokens", async () => {
  const requests = () =>
    [3, 90, 17, 5, 5, 40, 9].map((length, i) =>
      request(prompt(i, length), {
        random: new RandomStream(7, i),
        sampling: i % 2 ? { ...GREEDY, temperature: 1.2 } : GREEDY,
      })
    );
  const expected = await alone(requests());
  for (const on of [engine, chunked]) {
    assertEquals((await scheduled(on, requests())).tokens, expected);
    assertEquals((await scheduled(on, requests(), { batch: 3 })).tokens, expected);
  }
});

Deno.test("as many sequences are under way as fit into memory at their full length, and at least one", async () => {
  const requests = () => [130, 200, 150, 180].map((length, i) => request(prompt(i, length)));
  const expected = await alone(requests());
  const { totalBytes, sections: { state } } = engine.plan(
    { batch: 2, tokens: 1, capacity: 256, selected: 2 },
  );
  for (const [memoryLimit, most] of [[totalBytes + state, 2], [totalBytes + state - 1, 1]]) {
    using scheduler = new Scheduler(engine, { batch: 4, memoryLimit });
    let running = 0;
    const round = scheduler.round.bind(scheduler);
    scheduler.round = async function* () {
      yield* round();
      running = Math.max(running, scheduler.running);
    };
    assertEquals((await scheduled(scheduler, requests())).tokens, expected);
    assertEquals(running, most);
  }
});

Deno.test("prompts that wait together are prefilled in one forward pass", async () => {
  let passes = 0;
  const counted = new Engine(engine.device, engine.config, new Map());
  counted.forward = (...args) => (passes++, engine.forward(...args));
  counted.createCache = (...args) => engine.createCache(...args);
  const requests = Array.from({ length: 12 }, (_, i) => request(prompt(i, 20), { maxTokens: 1 }));
  await scheduled(counted, requests, { batch: 12 });
  assertEquals(passes, 1);
});

Deno.test("cancel frees a row before the next step, while waiting, prefilling and decoding", async () => {
  using scheduler = new Scheduler(chunked, { batch: 3 });
  for (let i = 0; i < 4; i++) scheduler.add(i, request(prompt(i, 10 + 40 * i), { maxTokens: 50 }));
  await Array.fromAsync(scheduler.round());
  assertEquals([scheduler.decoding > 0, scheduler.waiting], [true, 3]);
  await Array.fromAsync(scheduler.round());
  scheduler.cancel(3); // waits
  scheduler.cancel(1); // prefills
  scheduler.cancel(0); // decodes
  assertEquals([scheduler.decoding, scheduler.waiting], [0, 1]);
  assertEquals(new Set((await runAll(scheduler)).map(({ index }) => index)), new Set([2]));
  assert(scheduler.isIdle);
});

Deno.test("a request that cancels another one in the middle of a step gets no event of it", async () => {
  using scheduler = new Scheduler(engine, { batch: 4 });
  for (let i = 0; i < 3; i++) scheduler.add(i, request(prompt(i, 4), { maxTokens: 20 }));
  await Array.fromAsync(scheduler.round());
  const seen: number[] = [];
  for await (const { index } of scheduler.decode()) {
    seen.push(index);
    scheduler.cancel(1);
  }
  assertEquals(seen, [0, 2]);
});

Deno.test("200 cancelled requests leave no row and the others their tokens", async () => {
  const expected =
    (await scheduled(engine, [request(prompt(999, 8), { maxTokens: 60 })])).tokens[0];
  using scheduler = new Scheduler(engine, { batch: 8 });
  const kept: number[] = [];
  scheduler.add(999, request(prompt(999, 8), { maxTokens: 60 }));
  for (let i = 0; i < 200; i++) {
    scheduler.add(i, request(prompt(i, 4 + i % 30), { maxTokens: 100 }));
    if (i % 5 === 0 && kept.length < 60) {
      for await (const event of scheduler.round()) {
        if (event.kind === "token" && event.index === 999) kept.push(event.token);
      }
    }
    if (i >= 3) scheduler.cancel(i - 3);
  }
  for (let i = 0; i < 200; i++) scheduler.cancel(i);
  for (const event of await runAll(scheduler)) {
    assertEquals(event.index, 999);
    if (event.kind === "token") kept.push(event.token);
  }
  assertEquals(kept, expected);
  assertEquals([scheduler.running, scheduler.waiting], [0, 0]);
});

Deno.test("the prefix cache gives equal tokens, counts what it saved and keeps to its bytes", async () => {
  const shared = prompt(50, 60);
  const requests = Array.from({ length: 6 }, (_, i) => request([...shared, ...prompt(i, 4 + i)]));
  const { tokens, cached } = await scheduled(engine, requests, { prefixCacheBytes: 1 << 24 });
  assertEquals(tokens, await alone(requests));
  assertEquals(cached, [0, 60, 60, 60, 60, 60], "those behind the first wait for what they share");

  const bytes = 3 * engine.createCache(1, 1).bytes;
  using scheduler = new Scheduler(engine, { batch: 2, prefixCacheBytes: bytes });
  for (let i = 0; i < 12; i++) {
    await scheduled(scheduler, [request(prompt(100 + i, 40))]);
    assert(scheduler.prefixCacheBytes <= bytes);
  }
  assertEquals(scheduler.prefixCacheBytes, bytes);
});

Deno.test("prompts with cached prefixes of different lengths share a chunk", async () => {
  // The longest remainder behind the longest prefix reaches beyond a bucket of 128 slots.
  const shared = prompt(60, 110);
  const requests = [request([...shared, ...prompt(61, 10)]), request(prompt(62, 60))];
  using scheduler = new Scheduler(engine, { batch: 4, prefixCacheBytes: 1 << 24 });
  await scheduled(scheduler, [request(shared)]);
  assertEquals((await scheduled(scheduler, requests)).tokens, await alone(requests));
});

Deno.test("a finished answer is found by the next turn", async () => {
  const options = { batch: 2, prefixCacheBytes: 1 << 24, keepsAnswers: true };
  using scheduler = new Scheduler(engine, options);
  const first = prompt(3, 30);
  const { tokens: [answer] } = await scheduled(scheduler, [request(first, { maxTokens: 10 })]);
  const turn = [request([...first, ...answer!, ...prompt(4, 5)])];
  const { tokens, cached } = await scheduled(scheduler, turn);
  assertEquals(cached, [30 + 10 - 1]);
  assertEquals(tokens, await alone(turn));
});

Deno.test("log-probabilities of prompt and answer are those that score computes", async () => {
  const tokens = prompt(8, 70);
  const { events } = await scheduled(engine, [
    request(tokens, { topLogprobs: 3, promptLogprobs: true, maxTokens: 5 }),
    request(prompt(9, 5)),
  ]);
  const mine = events.filter(({ index }) => index === 0);
  const before = mine.flatMap((event) => event.kind === "prefilled" ? event.logprobs! : []);
  const after = mine.flatMap((event) => event.kind === "token" ? [event.logprobs!] : []);
  const all = [...before, ...after];
  const whole = [...tokens, ...after.map(({ token }) => token)];
  assertEquals(all.map(({ token }) => token), whole.slice(1));
  const [score] = await scoreBatch(engine, [{ tokens: whole, from: 1 }]);
  for (const [i, { logprob, token, top }] of all.entries()) {
    assertAlmostEquals(logprob, score!.tokenLogprobs[i]!, 1e-5);
    assertEquals(top.length, 3);
    const same = top.find((one) => one.token === token);
    if (same) assertEquals(same.logprob, logprob, "the same double for the same token");
    assert(top[0]!.logprob >= logprob);
  }
});

Deno.test("a prompt that fills the context has a next token only beside its log-probabilities", async () => {
  const short = await openGolden(MODEL, engine.device, { maxPositionEmbeddings: 24 });
  const full = prompt(5, 24);
  const asked = { topLogprobs: 1, promptLogprobs: true };
  const { tokens, events } = await scheduled(short, [
    request(full),
    request(full, asked),
    request(full, { ...asked, maxTokens: 0 }),
  ]);
  assertEquals(tokens.map(({ length }) => length), [0, 1, 0]);
  const counts = events.flatMap((e) => e.kind === "prefilled" ? [e.logprobs!.length] : []);
  assertEquals(counts, [23, 23]);
});

const WEIGHING: readonly (readonly [string, () => Engine | Promise<Engine>])[] = [
  ["cpu", () => engine],
  ...samplers.map(([name, open]) => [name, () => openGolden(MODEL, open())] as const),
];

for (const [name, open] of WEIGHING) {
  Deno.test(`${name}: weights per token on request are those that score computes`, async () => {
    const on = await open();
    const { tokens, events } = await scheduled(on, [
      request(prompt(1, 9), { streamWeights: true }),
      request(prompt(2, 12)),
    ]);
    const weights = events.flatMap((event) =>
      event.kind === "token" && event.index === 0 ? [event.weights!] : []
    );
    assert(events.every((event) => event.kind !== "token" || event.index === 0 || !event.weights));
    const whole = [...prompt(1, 9), ...tokens[0]!];
    const [score] = await scoreBatch(engine, [{ tokens: whole, from: 1 }], { weights: true });
    for (const [i, row] of weights.entries()) {
      const expected = score!.weights![8 + i]!;
      row.forEach((weight, p) => assertAlmostEquals(weight, expected[p]!, 1e-5));
    }
    const plain = await scheduled(on, [request(prompt(1, 9)), request(prompt(2, 12))]);
    assertEquals(tokens, plain.tokens, "asking for weights changes no token");
  });
}
