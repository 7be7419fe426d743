/** Layer 0: all streams share their text, and part only through their prefixes. */
import { concat, type Value } from "../../../core/graph/value.ts";
import { assert, assertEquals } from "@std/assert";
import type { Program } from "../../../core/graph/program.ts";
import { elementCount } from "../../../core/graph/types.ts";
import { buildForward } from "../../../core/model/forward.ts";
import { attention } from "../../../core/ops/attention.ts";
import { repeatStreams } from "../../../core/ops/repeat_streams.ts";
import { RandomStream } from "../../../core/base/random.ts";
import { CpuDevice } from "../../../core/runtime/onnxruntime/cpu.ts";
import { devices } from "../devices.ts";
import { GOLDEN_NAMES, maxDifference, openGolden } from "../goldens.ts";
import { f32, programOf, runOn } from "../programs.ts";

const [B, P, T, S, H, K, D, M] = [2, 3, 4, 9, 6, 2, 4, 5];

/** Attention of one text per sequence behind P prefixes, with the text's rows shared or repeated. */
function program(how: "shared" | "repeated" | "one stream at a time"): Program {
  const [text, last] = [[B, K, S, D], { i32: [B, T] }];
  const shapes = { q: [B, T, H, D], keys: text, values: text, last };
  return programOf(how, shapes, ({ q, keys, values, last }, g) => {
    const visible = { last };
    const prefix = (name: string) =>
      Array.from({ length: P }, (_, p) => g.input(`${name}${p}`, f32(1, K, M, D)));
    const [prefixKeys, prefixValues] = [prefix("prefix_k"), prefix("prefix_v")];
    if (how === "one stream at a time") {
      const streams = prefixKeys.map((k, p) =>
        attention({ q, keys, values, visible, prefix: { keys: k, values: prefixValues[p]! } })
      );
      return concat(streams, 0);
    }
    const rows = (x: Value) => how === "shared" ? x : repeatStreams(x, P);
    const whole = { keys: concat(prefixKeys, 0), values: concat(prefixValues, 0) };
    const repeated = { q: rows(q), keys: rows(keys), values: rows(values) };
    return attention({ ...repeated, visible, prefix: whole });
  });
}

for (const { name, device } of devices) {
  Deno.test(`${name}: shared rows equal repeated rows and one stream at a time`, async () => {
    const results: number[][] = [];
    for (const how of ["shared", "repeated", "one stream at a time"] as const) {
      const built = program(how);
      const data = [...built.inputs].map(([key, { dtype, shape }]) => {
        const random = new RandomStream(4, key);
        const draw = dtype === "i32" ? () => random.integer(S) : () => random.normal();
        return [key, Array.from({ length: elementCount(shape) }, draw)] as const;
      });
      const found = await runOn(device, built, new Map(data));
      results.push(Array.from(found.get("result")!));
    }
    const [shared, repeated, single] = results;
    assertEquals(shared!.length, P * B * T * H * D);
    assert(maxDifference(shared!, repeated!) <= 1e-5);
    assert(maxDifference(shared!, single!) <= 1e-5);
    const stream = B * T * H * D;
    const parted = maxDifference(shared!.slice(0, stream), shared!.slice(stream, 2 * stream));
    assert(parted > 1e-2, "streams must differ through their prefixes");
  });
}

Deno.test("the cache of layer 0 has a row per sequence, the others one per stream too", async () => {
  for (const name of GOLDEN_NAMES) {
    const { config } = await openGolden(name, devices[0]!.device);
    const { streams, numKeyValueHeads, headDim } = config;
    const sizes = { batch: 3, tokens: 2, capacity: 128, selected: 1 };
    const { state } = buildForward(config, sizes, { head: "logits" });
    assertEquals(state.size, 2 * config.numHiddenLayers);
    for (const kind of ["keys", "values"]) {
      for (let layer = 0; layer < config.numHiddenLayers; layer++) {
        const rows = layer === 0 ? 3 : 3 * streams;
        const { shape } = state.get(`${kind}.${layer}`)!;
        assertEquals(shape, [rows, numKeyValueHeads, 128, headDim], `${name} ${kind}.${layer}`);
      }
    }
  }
});

Deno.test("sequences of a batch keep their own text in layer 0", async () => {
  const engine = await openGolden("qwen2-p4-untied-f32", new CpuDevice({ threads: 1 }));
  const texts = [[1, 2, 3], [400, 5, 60]];
  const together = engine.createCache(2, 3);
  await engine.forward(together, { ids: texts, start: [0, 0], select: [0] });
  for (const [b, text] of texts.entries()) {
    const alone = engine.createCache(1, 3);
    await engine.forward(alone, { ids: [text], start: [0], select: [0] });
    const [mine, own] = [together, alone].map((cache) =>
      engine.device.read(cache.tensors.get("keys.0")!)
    );
    assert(maxDifference(mine!.subarray(b * own!.length, (b + 1) * own!.length), own!) <= 1e-5);
  }
  engine.device.close();
});
