/** Models on several sessions, and their memory plans. */
import { assert, assertEquals } from "@std/assert";
import { differentiate } from "../../../core/graph/differentiate.ts";
import { prepare } from "../../../core/graph/rewrite.ts";
import type { Program } from "../../../core/graph/program.ts";
import { tensorBytes } from "../../../core/graph/types.ts";
import { buildForward } from "../../../core/model/forward.ts";
import { buildLoss } from "../../../core/model/loss.ts";
import { openModel } from "../../../core/session/open.ts";
import { OnnxApi } from "../../../core/runtime/onnxruntime/capi/capi.ts";
import { CpuDevice } from "../../../core/runtime/onnxruntime/cpu.ts";
import { lowers } from "../../../core/runtime/onnxruntime/lowering/lower.ts";
import { CPU_TARGET } from "../../../core/runtime/onnxruntime/lowering/rules.ts";
import { partsOf } from "../../../core/runtime/onnxruntime/session/chain.ts";
import { shapeOf } from "../../gpu/shapes.ts";
import { FIXTURES } from "../../fixtures.ts";
import { replaced } from "../../replaced.ts";

const FOLDER = `${FIXTURES}models/tiny-qwen2`;
const CONFIG = shapeOf("0.5B", 4);

function forward(tokens: number): Program {
  const sizes = { batch: 1, tokens, capacity: 512, selected: 1 };
  const program = buildForward(CONFIG, sizes, { head: "greedy", cacheType: "f32" });
  return prepare(program, (op) => lowers(op, CPU_TARGET));
}

/** Weights that nothing reads. */
function weightsOf(program: Program) {
  const data = new Float32Array();
  return new Map([...program.parameters].map(([name, { dtype, shape }]) => [
    name,
    { dtype, shape, data },
  ]));
}

Deno.test("a large model opens on two sessions where there are two threads, a small one on one", () => {
  const program = forward(1);
  const count = (threads: number, least?: number) =>
    partsOf(program, weightsOf(program), { threads, least }).length;
  assertEquals([1, 2, 3, 16].map((threads) => count(threads)), [1, 2, 2, 2]);
  assertEquals([count(16, 2 ** 27), count(16, 2 ** 28)], [2, 1]);
});

Deno.test("decoding and prefill of a model are cut at the same places", () => {
  const [decode, prefill] = [forward(1), forward(256)].map((program) =>
    partsOf(program, weightsOf(program), { threads: 2 }).map((part) => [...part.state.keys()])
  );
  assertEquals(decode, prefill);
});

Deno.test("training is not cut: what it keeps for the gradients would pass", () => {
  const loss = buildLoss(CONFIG, { batch: 1, tokens: 16 });
  const introduced = [...loss.parameters.keys()].filter((name) => /prefix|aggreg/.test(name));
  const program = prepare(
    differentiate(loss, { of: "loss", by: introduced }),
    (op) => lowers(op, CPU_TARGET),
  );
  const weights = weightsOf(program);
  for (const name of introduced) weights.delete(name);
  assertEquals(partsOf(program, weights, { threads: 2 }).length, 1);
});

Deno.test("the plan of a model in parts holds each weight and each state once", () => {
  const program = forward(8);
  const weights = weightsOf(program);
  const [one, two] = [2 ** 30, 2 ** 24].map((splitAbove) => {
    const device = new CpuDevice({ threads: 2, splitAbove });
    try {
      return device.plan(program, weights).sections;
    } finally {
      device.close();
    }
  });
  assertEquals(two!.parameters, one!.parameters);
  assertEquals(two!.state, one!.state);
  const rows = 4 * 8 * CONFIG.hiddenSize * 4;
  assert(two!.outputs >= one!.outputs + rows);
  assert(
    two!.inputs <= [...program.inputs.values()].reduce((sum, type) => sum + tensorBytes(type), 0),
  );
});

Deno.test("a model opens in parts, or whole where they would leave their arena to training", async () => {
  for (const [splitAbove, count] of [[64, 2], [Infinity, 1]] as const) {
    using session = await openModel(FOLDER, { device: "cpu", threads: 2, splitAbove });
    await session.complete("a", { maxTokens: 1 });
    assertEquals((session.engine.device as CpuDevice).sessionCount, count);
  }
});

Deno.test("copies of weights are packed half by half, weights of a file at once", async () => {
  const { sessionLater } = OnnxApi.prototype;
  let open = 0, most = 0;
  using _ = replaced(OnnxApi.prototype, {
    async sessionLater(...args) {
      most = Math.max(most, ++open);
      return await sessionLater.apply(this, args).finally(() => open--);
    },
  });
  for (const [quantize, expected] of [["q8", 1], [undefined, 2]] as const) {
    most = 0;
    const options = { device: "cpu", threads: 2, splitAbove: 64, quantize } as const;
    using session = await openModel(FOLDER, options);
    await session.complete("a", { maxTokens: 1 });
    assertEquals(most, expected, quantize);
  }
});

Deno.test("a model that is opened whole lets signals through between its weights", async () => {
  const { addInitializer, sessionLater } = OnnxApi.prototype;
  let turns = 0, whileGiven = 0;
  const timer = setInterval(() => turns++, 1);
  using _ = replaced(OnnxApi.prototype, {
    addInitializer(...args) {
      for (const until = performance.now() + 20; performance.now() < until;);
      addInitializer.apply(this, args);
    },
    sessionLater(...args) {
      whileGiven = turns;
      return sessionLater.apply(this, args);
    },
  });
  using session = await openModel(FOLDER, { splitAbove: Infinity, quantize: "q8" });
  turns = 0;
  await session.complete("a", { maxTokens: 1 });
  clearInterval(timer);
  assert(whileGiven >= 5, `${whileGiven} turns of the event loop`);
});
