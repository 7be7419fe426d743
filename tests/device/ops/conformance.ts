/**
 * Conformance of devices: ops, gradients and golden models, as tests to be registered for one
 * device or another.
 */
import { assert, assertEquals, assertRejects } from "@std/assert";
import { differentiate } from "../../../core/graph/differentiate.ts";
import { beamSearch } from "../../../core/generate/beam_search.ts";
import { scoreBatch } from "../../../core/generate/score.ts";
import { tokenLogprobs } from "../../../core/ops/token_logprobs.ts";
import type { Device, HostArray } from "../../../core/runtime/device.ts";
import { CpuDevice } from "../../../core/runtime/onnxruntime/cpu.ts";
import { type NamedDevice, reference } from "../devices.ts";
import {
  maxDifference,
  openGolden,
  readExpected,
  readExpectedTensors,
  relativeDifference,
  TOLERANCE,
} from "../goldens.ts";
import { GRADIENT_CASES, OP_CASES, randomInputs } from "./cases.ts";
import { logitsOf, pass, request, tokensOf } from "../engines.ts";
import { f32, programOf, runOn } from "../programs.ts";

/** Results are sums of a few dozen products of numbers around 1. */
const OP_TOLERANCE = 1e-5;

/** Name of a device, and how to open it. */
export type Opener = readonly [label: string, open: () => Device];

/** Every op on a device, against the reference in f64. */
export function testOps({ name: deviceName, device }: NamedDevice): void {
  for (const one of OP_CASES) {
    Deno.test(`${deviceName} agrees with the reference on ${one.name}`, async () => {
      const inputs = randomInputs(one);
      const expected = (await runOn(reference, one.program, inputs)).get("result")!;
      const actual = (await runOn(device, one.program, inputs)).get("result")!;
      const difference = relativeDifference(actual, expected);
      assert(difference < OP_TOLERANCE, `relative difference ${difference}`);
    });
  }

  Deno.test(`${deviceName} counts small shares of a large vocabulary in a log-probability`, async () => {
    const V = 49_152;
    const shapes = { logits: [1, V], targets: { i32: [1] } };
    const program = programOf("vocabulary", shapes, (inputs) => tokenLogprobs(inputs));
    // Half of the tokens are hidden; each of the others is less than f32 resolves beside the first.
    const row = Array.from({ length: V }, (_, v) => v === 0 ? 0 : v < V / 2 ? -17 : -Infinity);
    const [found] = (await runOn(device, program, { logits: row, targets: [0] })).get("result")!;
    const expected = -Math.log1p((V / 2 - 1) * Math.exp(-17));
    assert(Math.abs(found! - expected) < 2e-5, `${found} instead of ${expected}`);
  });

  Deno.test(`${deviceName} truncates quotients of integers and casts`, async () => {
    const expected = {
      ...{ sum: [5, 2, -8, 9, -9], difference: [9, -8, -16, -9, -5] },
      ...{ product: [-14, -15, -48, 0, 14], quotient: [-3, 0, -3, 0, 3] },
      ...{ number: [7, -3, -12, 0, -7], truth: [0, 1, 1, 1, 1], whole: [2, -2, 0, 9] },
    };
    const shapes = { a: { i32: [5] }, b: { i32: [5] }, x: [4] };
    const program = programOf("integers", shapes, ({ a, b, x }) => ({
      ...{ sum: a.add(b), difference: a.sub(b), product: a.mul(b), quotient: a.div(b) },
      ...{ number: a.cast("f32"), truth: a.lessEqual(b).cast("f32"), whole: x.cast("i32") },
    }));
    const data = { a: [7, -3, -12, 0, -7], b: [-2, 5, 4, 9, -2], x: [2.75, -2.75, 0, 9] };
    const found = await runOn(device, program, data);
    for (const [name, values] of Object.entries(expected)) {
      assertEquals([...found.get(name)!], values, name);
    }
  });

  Deno.test(`${deviceName} assigns to a state after its last reader`, async () => {
    const program = programOf("assign", { x: [3] }, ({ x }, g) => {
      const [state, half] = [g.state("mean", f32(3)), g.constant(0.5)];
      g.update("mean", state.assign(state.mul(half).add(x.mul(half))));
    });
    const found = await runOn(device, program, { mean: [2, 4, -6], x: [4, 0, 2] });
    assertEquals(Array.from(found.get("mean")!), [3, 2, -2]);
  });

  Deno.test(`${deviceName} refuses to overwrite a state that is read elsewhere`, async () => {
    const program = programOf("late reader", {}, (_, g) => {
      const state = g.state("count", f32(3));
      g.update("count", state.assign(state.add(1)));
      return state.mul(2);
    });
    await assertRejects(
      async () => await runOn(device, program, {}),
      TypeError,
      /^(cpu|webgpu)/.test(deviceName) ? "before it is read" : "read by a later node",
    );
  });

  Deno.test(`${deviceName} writes slots into the state's own memory`, async () => {
    const [R, K, S, T, D] = [3, 2, 6, 2, 4];
    const shapes = { update: [R, K, T, D], start: { i32: [R] } };
    const program = programOf(
      "write_slots",
      shapes,
      ({ update, start }, g) =>
        g.update("cache", g.state("cache", f32(R, K, S, D)).writeSlots(update, start)),
    );
    const old = Array.from({ length: R * K * S * D }, (_, i) => -i);
    const fresh = Array.from({ length: R * K * T * D }, (_, i) => i + 1);
    const starts = [4, 0, 2];
    const data = { cache: old, update: fresh, start: starts };
    const cache = (await runOn(device, program, data)).get("cache")!;
    const expected = old.slice();
    for (let r = 0; r < R; r++) {
      for (let k = 0; k < K; k++) {
        for (let i = 0; i < T * D; i++) {
          expected[((r * K + k) * S + starts[r]!) * D + i] = fresh[(r * K + k) * T * D + i]!;
        }
      }
    }
    assertEquals(Array.from(cache), expected);
  });
}

/** The gradient of every op on a device, against the reference. */
export function testGradients({ name: deviceName, device }: NamedDevice): void {
  for (const one of GRADIENT_CASES) {
    Deno.test(`${deviceName} agrees with the reference on the gradient of ${one.name}`, async () => {
      const program = differentiate(one.scalar(), { of: "scalar", by: one.variables });
      const inputs = randomInputs({ ...one, program });
      const expected = await runOn(reference, program, inputs);
      const actual = await runOn(device, program, inputs);
      for (const [name, values] of expected) {
        if (!program.outputs.has(name)) continue;
        const difference = relativeDifference(actual.get(name)!, values);
        assert(difference < 1e-5, `${name}: relative difference ${difference}`);
      }
    });
  }
}

function assertClose(actual: HostArray, expected: HostArray, tolerance: number, what: string) {
  const difference = maxDifference(actual, expected);
  assert(difference <= tolerance, `${what} differ by ${difference}, expected ${tolerance} at most`);
}

/** Logits, aggregation weights and the residual stream of a golden model on a device. */
export function testForward(name: string, [label, open]: Opener): void {
  Deno.test(`${name} on ${label}: logits and aggregation weights`, async () => {
    const engine = await openGolden(name, open());
    const expected = await readExpectedTensors(name);
    const { cases } = readExpected(name);
    for (const key of ["single", "pair", "token"]) {
      const { ids } = cases[key]!;
      const outputs = await pass(engine, ids);
      const logits = expected.get(`${key}.logits`)!;
      assertClose(outputs.get("logits")!, logits, TOLERANCE.logits, `${key} logits`);
      const weights = expected.get(`${key}.weights`);
      assertEquals(weights === undefined, engine.config.streams === 1);
      if (weights) assertClose(outputs.get("weights")!, weights, TOLERANCE.weights, "weights");
    }
  });

  // The reference takes long for it; tests/unit/graph/gated_delta_test.ts has chunks on it.
  if (name.startsWith("qwen35") && (label !== "reference" || name.includes("p1-tied"))) {
    Deno.test(`${name} on ${label}: a text of several chunks`, async () => {
      const engine = await openGolden(name, open());
      const expected = await readExpectedTensors(name);
      const outputs = await pass(engine, readExpected(name).cases.long!.ids);
      const logits = expected.get("long.logits")!;
      const last = outputs.get("logits")!.slice(-logits.length);
      assertClose(last, logits, TOLERANCE.logits, "logits of the last tokens");
      const weights = expected.get("long.weights");
      if (weights) assertClose(outputs.get("weights")!, weights, TOLERANCE.weights, "weights");
    });
  }

  Deno.test(`${name} on ${label}: rows of different length in one batch`, async () => {
    const engine = await openGolden(name, open());
    const expected = (await readExpectedTensors(name)).get("padded.logits")!;
    const { ids, left_padding: padding } = readExpected(name).cases.padded!;
    const T = ids[0]!.length;
    const V = engine.config.vocabSize;
    // The golden pads on the left; a row here starts at slot 0 and is padded on the right.
    const rows = ids.map((row, b) => [...row.slice(padding![b]!), ...row.slice(0, padding![b]!)]);
    const logits = await logitsOf(engine, rows);
    padding!.forEach((skip, b) => {
      const actual = logits.subarray(b * T * V, (b * T + T - skip) * V);
      const row = expected.subarray((b * T + skip) * V, (b + 1) * T * V);
      assertClose(actual, row, TOLERANCE.logits, `logits of row ${b}`);
    });
  });

  Deno.test(`${name} on ${label}: residual stream after every layer`, async () => {
    const engine = await openGolden(name, open());
    const expected = await readExpectedTensors(name);
    const ids = readExpected(name).cases.single!.ids[0]!.slice(0, 6);
    const outputs = await pass(engine, [ids], {}, { head: "logits", trace: true });
    const traces = [...expected.keys()].filter((key) => key.startsWith("trace."));
    assert(traces.length >= engine.config.numHiddenLayers + 2);
    for (const key of traces) {
      const actual = outputs.get(key) ?? outputs.get(key.replace("trace.", ""))!;
      assertClose(actual, expected.get(key)!, TOLERANCE.trace, key);
    }
  });
}

/** Losses, greedy decoding and beam search of a golden model on a device. */
export function testGeneration(name: string, [label, open]: Opener): void {
  Deno.test(`${name} on ${label}: losses`, async () => {
    const engine = await openGolden(name, open());
    const expected = await readExpectedTensors(name);
    const { cases } = readExpected(name);
    for (const key of ["single", "pair"]) {
      const requests = cases[key]!.ids.map((tokens) => ({ tokens, from: 1 }));
      const scores = await scoreBatch(engine, requests);
      const losses = scores.flatMap(({ tokenLogprobs }) => Array.from(tokenLogprobs, (x) => -x));
      const tokenLosses = expected.get(`${key}.token_loss`)!;
      assertClose(Float32Array.from(losses), tokenLosses, TOLERANCE.tokenLoss, key);
      const mean = losses.reduce((sum, x) => sum + x, 0) / losses.length;
      assert(Math.abs(mean - cases[key]!.loss!) <= TOLERANCE.loss);
    }
  });

  Deno.test(`${name} on ${label}: greedy decoding, alone and side by side`, async () => {
    const device = open();
    const engine = await openGolden(name, device);
    const { greedy } = readExpected(name);
    const { eos, prompt, output } = greedy.with_eos;
    const requests = greedy.prompts.map((tokens) => request(tokens, { maxTokens: 32 }));
    requests.push(request(prompt, { maxTokens: 32, eosTokenIds: [eos] }));
    for (const batch of [1, 3]) {
      assertEquals(await tokensOf(engine, requests, batch), [...greedy.outputs, output]);
    }
    const sessions = device instanceof CpuDevice ? device.sessionCount : 1;
    // The states that sequences start from are written by a program of their own.
    const most = (label.includes("in parts") ? 2 : 1) + Number(engine.config.delta !== undefined);
    assert(sessions <= most, `all sizes must run on the same sessions, not on ${sessions}`);
  });

  Deno.test(`${name} on ${label}: beam search`, async () => {
    const engine = await openGolden(name, open());
    for (const search of readExpected(name).beam ?? []) {
      const results = await beamSearch(engine, search.prompt, {
        beams: search.beams,
        maxTokens: search.max_new_tokens,
        lengthPenalty: search.length_penalty,
        eosTokenIds: search.eos === null ? [] : [search.eos],
      });
      assertEquals(results.map(({ tokens }) => tokens), search.outputs.map(({ ids }) => ids));
      results.forEach(({ score }, i) => {
        assert(Math.abs(score - search.outputs[i]!.score) <= TOLERANCE.beamScore);
      });
    }
  });
}
