/** The handler without a network: faults of the model, slow readers, comments while a prompt is read. */
import { assert, assertEquals } from "@std/assert";
import { openCheckpoint } from "../../../core/checkpoint/open.ts";
import { Engine } from "../../../core/generate/engine.ts";
import type { Weights } from "../../../core/runtime/device.ts";
import { CpuDevice } from "../../../core/runtime/onnxruntime/cpu.ts";
import { createHandler } from "../../../core/serve/handler.ts";
import { Service } from "../../../core/serve/service.ts";
import { openTokenizer } from "../../../core/tokenizer/tokenizer.ts";
import { request } from "../../device/engines.ts";
import { modelFolder, withNaN } from "../../device/goldens.ts";

/** Its output matrix is one of its own, so an embedding is read by its token alone. */
const MODEL = "qwen2-p4-untied-f32";
const { config, tensors } = await openCheckpoint(modelFolder(MODEL));
const tokenizer = await openTokenizer(modelFolder(MODEL));

/** The model with a NaN in the embedding of one token. */
const brokenAt = (token: number) =>
  withNaN(tensors, "model.embed_tokens.weight", token * config.hiddenSize);

/** A model as a service has it. */
function served(name: string, engine: Engine) {
  const constraint = () => Promise.reject(new TypeError("no grammars here"));
  const matrices = "f32" as const;
  const session = { engine, config: engine.config, tokenizer, constraint, matrices };
  return { name, session, maxLength: 2048, tokenizerClass: null, parent: null };
}

const delay = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

interface Served {
  readonly service: Service;
  readonly errors: unknown[];
  /** Asks for a completion. */
  post(body: unknown): Promise<Response>;
}

async function withService(
  weights: Weights,
  body: (served: Served) => Promise<void>,
  startsAfterMs = 0,
  configure: (engine: Engine) => void = () => {},
): Promise<void> {
  const device = new CpuDevice({ threads: 1 });
  const targets = { tpotMs: 80, ttftMs: 2000 };
  using service = new Service({ maxBatch: 4, maxQueue: 8, prefixCacheBytes: 1 << 20, targets });
  const errors: unknown[] = [];
  const handler = createHandler(service, {
    access: { apiKey: undefined, isLoopback: false, origins: [] },
    device: () => "cpu",
    page: undefined,
    onError: (error) => errors.push(error),
    stallMs: 100,
  });
  const url = "http://localhost/v1/completions";
  const post = (body: unknown) =>
    handler(new Request(url, { method: "POST", body: JSON.stringify(body) }));
  const early = await post({ prompt: "x" });
  assertEquals([early.status, (await early.json()).error.type], [503, "unavailable_error"]);
  const engine = new Engine(device, config, weights);
  configure(engine);
  service.open([served(MODEL, engine)]);
  const loop = delay(startsAfterMs).then(() => service.run());
  try {
    await body({ service, errors, post });
  } finally {
    service.stop();
    await loop;
    device.close();
  }
}

Deno.test("a NaN is a numerical failure of its request: no retry, an error frame, no DONE", () =>
  withService(brokenAt(77), async ({ post, errors, service }) => {
    const other = await post({
      ...{ prompt: [5, 6], max_tokens: 400, temperature: 0, ignore_eos: true },
      ...{ stream: true, stream_options: { include_usage: true } },
    });
    const frames = other.body!.pipeThrough(new TextDecoderStream())[Symbol.asyncIterator]();
    await frames.next(); // it decodes: prompts that are prefilled together would fail together
    const whole = await post({ prompt: [77], max_tokens: 3 });
    assertEquals([whole.status, whole.headers.get("x-should-retry")], [500, "false"]);
    assertEquals((await whole.json()).error.type, "server_error");
    const streamed = await post({ prompt: [77], max_tokens: 3, stream: true });
    const text = await streamed.text();
    assert(text.includes('"type":"server_error"') && !text.includes("[DONE]"), text);
    assertEquals(errors.length, 2);
    const rest = (await Array.fromAsync({ [Symbol.asyncIterator]: () => frames })).join("");
    assert(rest.includes('"completion_tokens":400') && rest.includes("[DONE]"), rest.slice(-500));
    assertEquals(service.outstanding, 0);
  }));

Deno.test("a prompt is repeated where no token is asked for", () =>
  withService(tensors, async ({ post }) => {
    const answer = await post({ prompt: "a cat", max_tokens: 0, echo: true });
    assertEquals((await answer.json()).choices[0].text, "a cat");
  }));

Deno.test("a failure of a slow request is still a status of its own", () =>
  withService(brokenAt(77), async ({ post }) => {
    const response = await post({ prompt: [77], max_tokens: 3 });
    assertEquals([response.status, (await response.json()).error.type], [500, "server_error"]);
  }, 2500));

Deno.test("a cancelled stream frees its rows before the next step", () =>
  withService(tensors, async ({ post, service }) => {
    const body = { prompt: "x", max_tokens: 2000, n: 3, stream: true, ignore_eos: true };
    const response = await post(body);
    const reader = response.body!.getReader();
    await reader.read();
    assertEquals(service.outstanding, 3);
    await reader.cancel();
    assertEquals(service.outstanding, 0);
    assert(/num_requests_running\{[^}]*\} 0/.test(service.metricsText()));
  }));

Deno.test("a reader that takes nothing is cut, and its rows are freed", () =>
  withService(tensors, async ({ post, service }) => {
    const long = { prompt: "x", max_tokens: 2000, n: 4, stream: true, ignore_eos: true };
    const response = await post({ ...long, logprobs: 20, parscale: { weights: true } });
    assertEquals(service.outstanding, 4);
    while (service.outstanding > 0) await delay(10);
    let error: unknown;
    await response.text().catch((reason) => error = reason);
    assert(error instanceof Error, "the stream is cut, not ended");
  }));

Deno.test("after a failure of the engine nothing of its requests continues, and the next is right", async () => {
  const body = { prompt: [5, 6, 7], max_tokens: 4, temperature: 0, ignore_eos: true };
  let expected: unknown;
  await withService(tensors, async ({ post }) => {
    expected = (await (await post(body)).json()).choices;
  });
  let fails = true;
  const failOnce = (engine: Engine) => {
    const forward = engine.forward.bind(engine);
    engine.forward = (...args) => {
      if (!fails) return forward(...args);
      fails = false;
      throw new Error("the driver has gone");
    };
  };
  await withService(
    tensors,
    async ({ post, service, errors }) => {
      assertEquals((await post(body)).status, 500);
      assert(/num_requests_running\{[^}]*\} 0/.test(service.metricsText()));
      const next = await post(body);
      assertEquals((await next.json()).choices, expected);
      assertEquals([errors.length, service.outstanding], [1, 0]);
    },
    0,
    failOnce,
  );
});

Deno.test("a slow model pays for its steps with turns, and is not starved", async () => {
  const device = new CpuDevice({ threads: 1 });
  const targets = { tpotMs: 40, ttftMs: 2000 }; // far above a step of the fast one on a busy machine
  using service = new Service({ maxBatch: 4, maxQueue: 8, prefixCacheBytes: 0, targets });
  const two = await openCheckpoint(modelFolder("qwen2-p2-tied-f32"));
  const fast = new Engine(device, two.config, two.tensors);
  const slow = new Engine(device, config, tensors);
  const forward = slow.forward.bind(slow);
  slow.forward = async (...args) => {
    await delay(240);
    return await forward(...args);
  };
  const models = [served("fast", fast), served("slow", slow)];
  service.open(models);
  const loop = service.run();
  const order: string[] = [];
  const ended = models.map((model) => {
    const { promise, resolve } = Promise.withResolvers<void>();
    const asked = request([5, 6], { maxTokens: model.name === "slow" ? 8 : 1000 });
    service.accept(1).start(model, asked, ({ kind }) => {
      if (kind === "token") order.push(model.name);
      if (kind === "done") resolve();
    });
    return promise;
  });
  await Promise.race(ended);
  const gaps = order.join(" ").split("slow").slice(2, -1).map((gap) => gap.match(/fast/g)?.length);
  assertEquals(order.filter((name) => name === "slow").length, 8, "the slow one ends first");
  // Its 240 ms are six targets.
  assert(gaps.slice(3).every((steps) => steps! >= 4), `${gaps}`);
  service.stop();
  await loop;
  device.close();
});
