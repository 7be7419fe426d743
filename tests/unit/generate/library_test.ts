/** The library that `mod.ts` is when it is imported. */
import {
  assert,
  assertEquals,
  assertNotEquals,
  assertRejects,
  assertStringIncludes,
} from "@std/assert";
import { DataError } from "../../../core/base/errors.ts";
import * as models from "../../cli/models.ts";
import { withScratch } from "../../scratch.ts";
import { openModel, run, type Session, UsageError } from "../../../mod.ts";
import { FIXTURES } from "../../fixtures.ts";

const MODEL = `${FIXTURES}models/word-problems`;
const { PLAIN_MODEL } = models;
const CHAT_MODEL = `${FIXTURES}models/llama-p1-llama3-tied-f32`;
const PROMPT =
  "Question: Cosima works 7 hours and earns 24 dollars each hour. Cosima spends 4 dollars on a " +
  "shirt. How many dollars does Cosima have?\nAnswer:";

const model = await openModel(MODEL, { threads: 1 });

Deno.test("a continuation is scored, by text or by ids", async () => {
  const right = await model.score(PROMPT, " Claire earns");
  const ids = model.tokenizer.encode(PROMPT);
  const same = await model.score(ids, model.tokenizer.encode(" Claire earns"));
  assertEquals(right.loglikelihood, same.loglikelihood);
  assertEquals(right.tokenLogprobs.length, model.tokenizer.encode(" Claire earns").length);
});

Deno.test("a completion has text, tokens and the reason why it ended", async () => {
  const whole = await model.complete(PROMPT);
  assertEquals([model.config.streams, whole.finishReason], [1, "eos"]);
  assert(whole.text.endsWith("#### 124"));
  assertEquals(model.config.eosTokenIds.includes(whole.tokens.at(-1)!), true);
  const short = await model.complete(PROMPT, { maxTokens: 3 });
  assertEquals([short.finishReason, short.tokens], ["length", whole.tokens.slice(0, 3)]);
  const stopped = await model.complete(PROMPT, { stop: ["####"] });
  assertEquals([stopped.finishReason, `${stopped.text}#### 124`], ["stop", whole.text]);
});

Deno.test("text comes piece by piece, and its completion last", async () => {
  const texts: string[] = [], pieces = model.generate(PROMPT);
  let step = await pieces.next();
  for (; !step.done; step = await pieces.next()) texts.push(step.value);
  assert(texts.length > 5);
  assertEquals(texts.join(""), step.value.text);
  assertEquals(step.value, await model.complete(PROMPT));
});

Deno.test("prompts of a batch are continued as if each were alone, otherwise by another seed", async () => {
  const prompts = [PROMPT, "Question:", model.tokenizer.encode(PROMPT), "Answer: 1"];
  const options = { maxTokens: 24, temperature: 1.5, seed: 3 };
  const together = await model.completeAll(prompts, options);
  assertEquals(together, await model.completeAll(prompts, { ...options, batch: 1 }));
  assertEquals((await model.complete(PROMPT, options)).tokens, together[0]!.tokens);
  const other = await model.complete(PROMPT, { ...options, seed: 4 });
  assertNotEquals(other.tokens, together[0]!.tokens);
});

Deno.test("beam search ends a sequence at a stop string, as sampling does", async () => {
  const [one] = await model.beamSearch(PROMPT, { numBeams: 1 });
  const greedy = await model.complete(PROMPT);
  assertEquals([one!.text, one!.tokens], [greedy.text, greedy.tokens]);
  const best = await model.beamSearch(PROMPT, { numBeams: 3, stop: ["####"] });
  assertEquals(best.length, 3);
  const { text, tokens } = await model.complete(PROMPT, { stop: ["####"] });
  assertEquals([best[0]!.text, best[0]!.tokens], [text, tokens]);
  assertEquals(best[0]!.finishReason, "stop");
  for (const numBeams of [0, 257]) {
    const search = () => model.beamSearch("a", { numBeams });
    await assertRejects(search, UsageError, "numBeams must be");
  }
});

Deno.test("a signal ends a generation with its reason", async () => {
  const controller = new AbortController();
  const pieces = model.generate(PROMPT, { signal: controller.signal });
  await pieces.next();
  controller.abort(new Error("enough"));
  await assertRejects(async () => await Array.fromAsync(pieces), Error, "enough");
  assertEquals((await model.complete(PROMPT, { maxTokens: 1 })).tokens.length, 1);
});

Deno.test("a signal ends a generation between two chunks of its prompt", async () => {
  using own = await openModel(MODEL, { threads: 1 });
  const controller = new AbortController(), { engine } = own;
  const forward = engine.forward.bind(engine);
  let chunks = 0;
  engine.forward = (...step) => {
    chunks++;
    controller.abort(new Error("enough"));
    return forward(...step);
  };
  const { signal } = controller, prompt = new Array(500).fill(1);
  await assertRejects(() => own.complete(prompt, { signal }), Error, "enough");
  assertEquals(chunks, 1);
});

Deno.test("options that are unknown or out of range are refused", async () => {
  const cases: [object, string][] = [
    [{ temprature: 1 }, "unknown option temprature"],
    [{ temperature: -1 }, "temperature must be a number of at least 0"],
    [{ topP: 0 }, "topP must be a number above 0"],
    [{ maxTokens: 1.5 }, "maxTokens must be an integer of at least 1"],
    [{ stop: "x" }, "stop must be a list of strings"],
  ];
  for (const [options, message] of cases) {
    await assertRejects(() => model.complete("a", options), UsageError, message);
  }
  const opening: [object, string][] = [
    [{ quantise: "q8" }, "unknown option quantise"],
    [{ quantize: "q5" }, "quantize must be none, q8 or q4, not q5"],
    [{ device: "gpu" }, "device must be auto, cpu, webgpu, cuda, tfjs or reference, not gpu"],
    [{ threads: 0 }, "threads must be an integer of at least 1, not 0"],
    [{ memoryLimit: "1GiB" }, "memoryLimit must be a number of bytes, not 1GiB"],
  ];
  for (const [options, message] of opening) {
    await assertRejects(() => openModel(MODEL, options), UsageError, message);
  }
});

Deno.test("prompts and texts of another type are refused", async () => {
  // As a program without types may call them.
  const untyped = model as unknown as Record<string, (...args: unknown[]) => Promise<unknown>>;
  const prompt = "prompt must be a text, token ids or messages, not ";
  const cases: [() => Promise<unknown>, string][] = [
    [() => untyped.complete!({ role: "user", content: "a" }), `${prompt}[object Object]`],
    [() => untyped.complete!(), `${prompt}undefined`],
    [() => untyped.completeAll!("a"), "prompts must be a list, not a"],
    [() => untyped.score!("a"), "continuation must be a text or token ids, not undefined"],
  ];
  for (const [call, message] of cases) await assertRejects(call, UsageError, message);
});

Deno.test("a model that is disposed of ends what runs and what is asked afterwards", async () => {
  const score = (model: Session): Promise<unknown> => model.score("a", " cat");
  using whole = await openModel(PLAIN_MODEL, { threads: 1 });
  const expected = await score(whole);
  const calls: ((model: Session) => Promise<unknown>)[] = [
    (model) => model.complete("a cat"),
    (model) => model.beamSearch("a cat"),
    (model) => model.complete("a cat", { jsonSchema: true }),
    score,
  ];
  for (const call of calls) {
    const own = await openModel(PLAIN_MODEL, { threads: 1 });
    await own.complete("a", { maxTokens: 2 });
    const running = call(own).catch((error: Error) => error.message);
    for (let i = 0; i < 20; i++) await Promise.resolve();
    own[Symbol.dispose]();
    const end = await running;
    // A score takes one run, which may have been under way: then it is whole.
    if (call === score && typeof end === "object") assertEquals(end, expected);
    else assertStringIncludes(String(end), "was closed");
    await assertRejects(() => call(own), Error, "was closed");
  }
});

Deno.test("two texts are encoded together, whichever has the space between them", async () => {
  assertEquals(await model.score("2 + 2 = ", "4"), await model.score("2 + 2 =", " 4"));
  assertEquals((await model.score("", "2 + 2")).tokenLogprobs.length > 0, true);
});

Deno.test("what has no tokens is not scored", async () => {
  const empty = "cannot score an empty continuation";
  await assertRejects(() => model.score("a", ""), DataError, empty);
  for (const [context, continuation] of [[[], [1]], [[1], []]]) {
    await assertRejects(() => model.score(context!, continuation!), DataError, "has no tokens");
  }
});

Deno.test("a program that could not be compiled is tried again", async () => {
  using own = await openModel(PLAIN_MODEL, { threads: 1 });
  const { device } = own.engine, compile = device.compile.bind(device);
  device.compile = () => Promise.reject(new Error("no memory"));
  await assertRejects(() => own.score("a", " b"), Error, "no memory");
  device.compile = compile;
  assertEquals((await own.score("a", " b")).tokenLogprobs.length > 0, true);
});

Deno.test("messages go through the chat template, or say that there is none", async () => {
  using chat = await openModel(CHAT_MODEL, { threads: 1 });
  // An interface has no index signature, as `ChatMessage` does.
  interface Message {
    role: string;
    content: string;
  }
  const messages: Message[] = [{ role: "user", content: "a cat" }];
  assertEquals((await chat.complete(messages, { maxTokens: 2 })).tokens.length, 2);
  await assertRejects(() => model.complete(messages), DataError, "has no chat template");
});

Deno.test("adapters share one backbone, each with its own number of streams", () =>
  withScratch(async (cwd) => {
    const adapters = [2, 4].map((P) => ({ P, out: `${cwd}/p${P}` }));
    for (const { P, out } of adapters) {
      const convert = ["convert", "--model", PLAIN_MODEL, "--streams", `${P}`, "--out", out, "-qq"];
      assertEquals(await run([...convert, "--introduced-only"]), 0);
    }
    using backbone = await openModel(PLAIN_MODEL, { threads: 1, sharesBackbone: true });
    const plain = await backbone.complete("a cat", { maxTokens: 4 });
    for (const { P, out } of adapters) {
      using own = await backbone.withAdapter(out);
      using whole = await openModel(PLAIN_MODEL, { threads: 1, adapter: out });
      assertEquals(own.config.streams, P);
      const options = { maxTokens: 4 };
      assertEquals(await own.complete("a cat", options), await whole.complete("a cat", options));
    }
    assertEquals(await backbone.complete("a cat", { maxTokens: 4 }), plain);
    using closed = await openModel(PLAIN_MODEL, { threads: 1 });
    await assertRejects(() => closed.withAdapter(adapters[0]!.out), UsageError, "sharesBackbone");
  }));

Deno.test("a quantized folder completes as its source with the same weights, adapters over it too", () =>
  withScratch(async (folder) => {
    const [out, adapter] = [`${folder}/q8`, `${folder}/p2`];
    const convert = ["convert", "--model", PLAIN_MODEL, "-qq", "--out"];
    assertEquals(await run([...convert, out, "--quantize", "q8"]), 0);
    assertEquals(await run([...convert, adapter, "--streams", "2", "--introduced-only"]), 0);
    const options = { maxTokens: 6 };
    using source = await openModel(PLAIN_MODEL, { threads: 1, quantize: "q8", adapter });
    using quantized = await openModel(out, { threads: 1, sharesBackbone: true });
    using over = await quantized.withAdapter(adapter);
    assertEquals(await over.complete("a cat", options), await source.complete("a cat", options));
    const refused: [Parameters<typeof openModel>[1], string][] = [
      [{ quantize: "q4" }, `\`--quantize q4\` needs full-precision weights: "${out}" is q8`],
      [{ device: "reference" }, "the reference device needs full-precision weights"],
    ];
    for (const [options, message] of refused) {
      await assertRejects(() => openModel(out, options), UsageError, message);
    }
  }));

Deno.test("what cannot be opened or continued is said, and a command line can be run", async () => {
  await assertRejects(() => openModel("/nowhere"), DataError);
  await assertRejects(() => model.generate("").next(), DataError, "no tokens");
  assertEquals(await run(["doctor", "--nonsense", "-qq"]), 2);
});
