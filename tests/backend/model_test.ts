/** The seven golden models on every device: logits, weights, traces, losses, greedy, beams. */
import { assert, assertEquals } from "@std/assert";
import { beamSearch } from "../../core/generate/beam_search.ts";
import { generate, type GenerationRequest } from "../../core/generate/generate.ts";
import { GREEDY } from "../../core/generate/sampling.ts";
import { scoreBatch } from "../../core/generate/score.ts";
import { RandomStream } from "../../core/random.ts";
import type { Device, HostArray } from "../../core/runtime/device.ts";
import { CpuDevice } from "../../core/runtime/onnx/device.ts";
import { ReferenceDevice } from "../../core/runtime/reference/device.ts";
import { CUDA, openTestCuda } from "./devices.ts";
import {
  GOLDEN_NAMES,
  maxDifference,
  openGolden,
  readExpected,
  readExpectedTensors,
  takesGolden,
  TOLERANCE,
} from "./goldens.ts";

function assertClose(actual: HostArray, expected: HostArray, tolerance: number, what: string) {
  const difference = maxDifference(actual, expected);
  assert(difference <= tolerance, `${what} differ by ${difference}, expected ${tolerance} at most`);
}

const openReference = (): Device => new ReferenceDevice("f64");

/** Devices that generate. */
const engines: readonly (readonly [label: string, open: () => Device])[] = [
  ["cpu", () => new CpuDevice()],
  ...(CUDA ? [[CUDA, () => openTestCuda()] as const] : []),
];

const all = (count: number) => Array.from({ length: count }, (_, i) => i);

for (const name of GOLDEN_NAMES) {
  const takers = engines.filter(([label]) => takesGolden(label, name));
  for (const [label, open] of [["reference", openReference] as const, ...takers]) {
    Deno.test(`${name} on ${label}: logits and aggregation weights`, async () => {
      const engine = await openGolden(name, open());
      const expected = await readExpectedTensors(name);
      const { cases } = await readExpected(name);
      for (const key of ["single", "pair", "token"]) {
        const { ids } = cases[key]!;
        const count = ids.length * ids[0]!.length;
        const outputs = await engine.forward(engine.createCache(ids.length, ids[0]!.length), {
          ids,
          start: ids.map(() => 0),
          select: all(count),
        });
        const logits = expected.get(`${key}.logits`)!;
        assertClose(outputs.get("logits")!, logits, TOLERANCE.logits, `${key} logits`);
        const weights = expected.get(`${key}.weights`);
        assertEquals(weights === undefined, engine.config.streams === 1);
        if (weights) assertClose(outputs.get("weights")!, weights, TOLERANCE.weights, "weights");
      }
    });

    Deno.test(`${name} on ${label}: rows of different length in one batch`, async () => {
      const engine = await openGolden(name, open());
      const expected = (await readExpectedTensors(name)).get("padded.logits")!;
      const { ids, left_padding: padding } = (await readExpected(name)).cases.padded!;
      const T = ids[0]!.length;
      const V = engine.config.vocabSize;
      // The golden pads on the left; a row here starts at slot 0 and is padded on the right.
      const rows = ids.map((row, b) => [...row.slice(padding![b]!), ...row.slice(0, padding![b]!)]);
      const outputs = await engine.forward(engine.createCache(rows.length, T), {
        ids: rows,
        start: rows.map(() => 0),
        select: all(rows.length * T),
      });
      padding!.forEach((skip, b) => {
        const actual = outputs.get("logits")!.subarray(b * T * V, (b * T + T - skip) * V);
        const row = expected.subarray((b * T + skip) * V, (b + 1) * T * V);
        assertClose(actual, row, TOLERANCE.logits, `logits of row ${b}`);
      });
    });

    Deno.test(`${name} on ${label}: residual stream after every layer`, async () => {
      const engine = await openGolden(name, open());
      const expected = await readExpectedTensors(name);
      const ids = (await readExpected(name)).cases.single!.ids[0]!.slice(0, 6);
      const outputs = await engine.forward(
        engine.createCache(1, ids.length),
        { ids: [ids], start: [0], select: all(ids.length) },
        { head: "logits", trace: true },
      );
      const traces = [...expected.keys()].filter((key) => key.startsWith("trace."));
      assert(traces.length >= engine.config.numHiddenLayers + 2);
      for (const key of traces) {
        const actual = outputs.get(key) ?? outputs.get(key.replace("trace.", ""))!;
        assertClose(actual, expected.get(key)!, TOLERANCE.trace, key);
      }
    });
  }

  for (const [label, open] of takers) {
    Deno.test(`${name} on ${label}: losses`, async () => {
      const engine = await openGolden(name, open());
      const expected = await readExpectedTensors(name);
      const { cases } = await readExpected(name);
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
      const { greedy } = await readExpected(name);
      const request = (tokens: number[], eosTokenIds: number[] = []): GenerationRequest => ({
        tokens,
        maxTokens: 32,
        sampling: GREEDY,
        random: new RandomStream(0),
        eosTokenIds,
      });
      const { eos, prompt, output } = greedy.with_eos;
      const requests = [...greedy.prompts.map((tokens) => request(tokens)), request(prompt, [eos])];
      for (const batch of [1, 3]) {
        const results: number[][] = requests.map(() => []);
        for await (const event of generate(engine, requests, { batch })) {
          assert(event.kind !== "failed");
          if (event.kind === "token") results[event.index]!.push(event.token);
        }
        assertEquals(results, [...greedy.outputs, output]);
      }
      const sessions = device instanceof CpuDevice ? device.sessionCount : 1;
      assertEquals(sessions, 1, "all sizes must run on one session");
    });

    Deno.test(`${name} on ${label}: beam search`, async () => {
      const engine = await openGolden(name, open());
      for (const search of (await readExpected(name)).beam) {
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
}
