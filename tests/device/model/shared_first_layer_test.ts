/** Layer 0: all streams share their text, and part only through their prefixes. */
import { concat } from "../../../core/graph/value.ts";
import { assert, assertEquals } from "@std/assert";
import { Builder } from "../../../core/graph/builder.ts";
import type { Program } from "../../../core/graph/program.ts";
import { elementCount, type Shape } from "../../../core/graph/types.ts";
import { buildForward } from "../../../core/model/forward.ts";
import { attention } from "../../../core/ops/attention.ts";
import { repeatStreams } from "../../../core/ops/repeat_streams.ts";
import { RandomStream } from "../../../core/base/random.ts";
import { CpuDevice } from "../../../core/runtime/onnxruntime/cpu.ts";
import { devices } from "../devices.ts";
import { GOLDEN_NAMES, maxDifference, openGolden } from "../goldens.ts";

const [B, P, T, S, H, K, D, M] = [2, 3, 4, 9, 6, 2, 4, 5];

/** Attention of one text per sequence behind P prefixes, with the text's rows shared or repeated. */
function program(how: "shared" | "repeated" | "one stream at a time"): Program {
  const g = new Builder(how);
  const input = (name: string, shape: Shape) => g.input(name, { dtype: "f32", shape });
  const q = input("q", [B, T, H, D]);
  const [keys, values] = [input("keys", [B, K, S, D]), input("values", [B, K, S, D])];
  const visible = { last: g.input("positions", { dtype: "i32", shape: [B, T] }) };
  const prefix = (name: string) =>
    Array.from({ length: P }, (_, p) => input(`${name}${p}`, [1, K, M, D]));
  const [prefixKeys, prefixValues] = [prefix("prefix_k"), prefix("prefix_v")];
  if (how === "one stream at a time") {
    const streams = prefixKeys.map((k, p) =>
      attention({ q, keys, values, visible, prefix: { keys: k, values: prefixValues[p]! } })
    );
    g.output("y", concat(streams, 0));
    return g.build();
  }
  const rows = (x: typeof q) => how === "shared" ? x : repeatStreams(x, P);
  const whole = { keys: concat(prefixKeys, 0), values: concat(prefixValues, 0) };
  g.output(
    "y",
    attention({ q: rows(q), keys: rows(keys), values: rows(values), visible, prefix: whole }),
  );
  return g.build();
}

for (const { name, device } of devices) {
  Deno.test(`${name}: shared rows equal repeated rows and one stream at a time`, async () => {
    const results: number[][] = [];
    for (const how of ["shared", "repeated", "one stream at a time"] as const) {
      const built = program(how);
      const executable = await device.compile(built, new Map());
      const tensors = new Map(
        [...built.inputs, ...built.outputs].map(([key, type]) => [key, device.allocate(type)]),
      );
      for (const [key, { dtype, shape }] of built.inputs) {
        const random = new RandomStream(4, key);
        const draw = dtype === "i32" ? () => random.integer(S) : () => random.normal();
        device.write(tensors.get(key)!, Array.from({ length: elementCount(shape) }, draw));
      }
      await executable.run(tensors);
      results.push(Array.from(device.read(tensors.get("y")!)));
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
