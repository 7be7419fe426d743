/** Prompt lookup: events with drafts are those without, bit for bit, in every mode. */
import { assert, assertEquals, assertGreater } from "@std/assert";
import { RandomStream } from "../../../core/base/random.ts";
import { GREEDY } from "../../../core/base/sampling.ts";
import { openCheckpoint } from "../../../core/checkpoint/open.ts";
import { Engine } from "../../../core/generate/engine.ts";
import { isExact, StepTimes } from "../../../core/generate/speculation.ts";
import { CpuDevice } from "../../../core/runtime/onnxruntime/cpu.ts";
import { reference } from "../devices.ts";
import { prompt, request } from "../engines.ts";
import { modelFolder, openGolden } from "../goldens.ts";
import { compareRandom, draftFrom, observe, tokensIn } from "./speculating.ts";

const device = new CpuDevice({ threads: 1 });
const engine = await openGolden("qwen2-p2-tied-f32", device);

for (
  const [i, name] of ["qwen2-p1-untied-bf16", "qwen2-p2-tied-f32", "qwen3-p2-untied-f32"].entries()
) {
  Deno.test(`${name}: random requests with drafts give the events without`, async () => {
    await compareRandom(await openGolden(name, device), 1000 * i, 24);
  });
}

for (const kind of ["q8", "q4"] as const) {
  Deno.test(`${kind} and four streams: random requests with drafts give the events without`, async () => {
    const matrices = { kind, block: 32 };
    const device = new CpuDevice({ threads: 2, matrices, alikeRows: kind === "q4" });
    const coded = await openGolden("qwen2-p4-untied-f32", device);
    if (await isExact(coded, 8)) await compareRandom(coded, 5000, 16);
    device.close();
  });
}

Deno.test("drafts from prompt and answer are kept where the answer repeats", async () => {
  const all = () => [request(prompt(3, 20), { maxTokens: 200 })];
  const plain = await observe(engine, all(), { batch: 1 });
  const speculated = await observe(engine, all(), { batch: 1, speculate: 7 });
  assertEquals(speculated.events, plain.events);
  assertGreater(speculated.kept, 20);
});

Deno.test("the last token that is allowed ends a draft, and so does the context", async () => {
  const short = await openGolden("qwen2-p2-tied-f32", device, { maxPositionEmbeddings: 40 });
  const all =
    () => [request(prompt(1, 30), { maxTokens: 99 }), request(prompt(2), { maxTokens: 4 })];
  const plain = await observe(short, all(), { batch: 2 });
  using _ = draftFrom(tokensIn(plain), { wrong: 0, random: new RandomStream(1) });
  const speculated = await observe(short, all(), { batch: 2, speculate: 15 });
  assertEquals(speculated.events, plain.events);
  assertEquals(tokensIn(plain).map(({ length }) => length), [10, 4]);
});

Deno.test("a finished answer is kept without the tokens that were refused", async () => {
  const options = { batch: 1, prefixCacheBytes: 1 << 24, keepsAnswers: true, speculate: 7 };
  const first = prompt(3, 30);
  const answer = tokensIn(await observe(engine, [request(first)], { batch: 1 }));
  using _ = draftFrom(answer, { wrong: 0.3, random: new RandomStream(2) });
  const turn = request([...first, ...answer[0]!, ...prompt(4, 5)]);
  const plain = await observe(engine, [turn], { batch: 1 });
  const both = await observe(engine, [request(first), turn], options);
  assertEquals(both.events[1]!.map((one) => ({ ...one as object, index: 0 })), plain.events[0]);
});

Deno.test("sampled drafts draw one number a token", async () => {
  const random = [new RandomStream(3), new RandomStream(3)] as const;
  const all = (i: 0 | 1) => [
    request(prompt(9), {
      random: random[i],
      maxTokens: 40,
      sampling: { ...GREEDY, temperature: 1 },
    }),
  ];
  const plain = await observe(engine, all(0), { batch: 1 });
  using _ = draftFrom(tokensIn(plain), { wrong: 0.2, random: new RandomStream(4) });
  assertEquals((await observe(engine, all(1), { batch: 1, speculate: 7 })).events, plain.events);
  assertEquals(random[1].position, random[0].position);
});

Deno.test("nothing is drafted where a step of several tokens is not exact", async () => {
  assert(await isExact(engine, 8));
  assert(!await isExact(await openGolden("qwen35-p2-tied-f32", device), 8));
  assert(!await isExact(await openGolden("qwen2-p2-tied-f32", reference), 8));
  const rounding = new Engine(device, engine.config, new Map());
  rounding.createCache = (...args) => engine.createCache(...args);
  rounding.forward = async (cache, input, options) => {
    const outputs = await engine.forward(cache, input, options);
    if (input.ids[0]!.length === 1) outputs.get("logits")![5]! += 1e-6;
    return outputs;
  };
  assert(!await isExact(rounding, 8));
  const all = [request(prompt(3, 20), { maxTokens: 60 })];
  assertEquals((await observe(rounding, all, { batch: 1, speculate: 7 })).drafted, 0);
});

Deno.test("a step with a draft that exceeds the memory limit is one without", async () => {
  const { config, tensors } = await openCheckpoint(modelFolder("qwen2-p2-tied-f32"));
  const bytes = (tokens: number) =>
    engine.plan({ batch: 1, tokens, capacity: 128, selected: tokens }).totalBytes;
  assertGreater(bytes(32), bytes(9));
  const limited = new Engine(device, config, tensors, { memoryLimit: bytes(9) });
  const all = () => [request([5], { maxTokens: 40 })];
  const plain = await observe(limited, all(), { batch: 1 });
  using _ = draftFrom(tokensIn(plain), { wrong: 0, random: new RandomStream(6) });
  StepTimes.prototype.best = (_, lengths) => 1 + Math.max(...lengths);
  const limit = { forward: limited.forward.bind(limited), refused: 0 };
  limited.forward = (...args) => {
    const step = limit.forward(...args);
    step.catch(() => limit.refused++);
    return step;
  };
  await isExact(limited, 8);
  const speculated = await observe(limited, all(), { batch: 1, speculate: 31 });
  assertEquals(speculated.events, plain.events);
  assertEquals([speculated.kept, limit.refused], [0, 1]);
});
