/** Protects conversion: what is written, that it can be undone, and that failures leave nothing. */
import { assert, assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { backboneHash } from "../../../core/checkpoint/backbone.ts";
import { convert } from "../../../core/checkpoint/convert.ts";
import {
  type ConversionOptions,
  planConversion,
} from "../../../core/checkpoint/plan_conversion.ts";
import { openCheckpoint } from "../../../core/checkpoint/open.ts";
import { readTensor } from "../../../core/checkpoint/read.ts";
import { planShards, writeWeights } from "../../../core/checkpoint/write.ts";
import { readHeader } from "../../../core/checkpoint/safetensors.ts";
import { countShape } from "../../../core/analysis/cost.ts";
import { UsageError } from "../../../core/base/errors.ts";
import { countParameters } from "../../../core/model/parameters.ts";
import {
  copyModel,
  MODEL_NAMES,
  MODELS,
  readRaw,
  userError,
  withScratch,
  writeRaw,
} from "./testing.ts";

const PLAIN = MODEL_NAMES.filter((name) => name.includes("-p1-"));
const SCALED = MODEL_NAMES.filter((name) => !name.includes("-p1-"));

async function run(options: ConversionOptions, how: Parameters<typeof convert>[1] = {}) {
  return await convert(await planConversion(options), how);
}

const names = (folder: string) => [...Deno.readDirSync(folder)].map((entry) => entry.name).sort();

Deno.test("a converted folder opens, keeps the backbone and strips back to it", async () => {
  for (const name of PLAIN) {
    await withScratch(async (folder) => {
      const model = `${MODELS}/${name}`, out = `${folder}/p4`, back = `${folder}/back`;
      const report = await run({ model, out, streams: 4, prefixTokens: 6 }, { verify: true });
      const source = await openCheckpoint(model), result = await openCheckpoint(out);
      const { streams, prefix, prefixTokens, smoothing, ...rest } = result.config;
      assertEquals([streams, prefix, prefixTokens, smoothing], [4, true, 6, 0.1]);
      const { streams: _, prefix: __, prefixTokens: ___, smoothing: ____, ...plain } =
        source.config;
      assertEquals(rest, plain);
      assertEquals(report.introducedParams, countParameters(result.config).introduced);
      assertEquals(report.tensors, result.tensors.size);
      for (const [key, tensor] of source.tensors) {
        assertEquals(
          await readTensor(result.tensors.get(key)!),
          await readTensor(tensor),
        );
      }
      assertEquals(report.backboneSha256, await backboneHash(source));
      assertEquals(names(out).sort(), [...report.files].sort());

      const stripped = await run({ model: out, out: back, strip: true });
      assertEquals(stripped.backboneSha256, report.backboneSha256);
      const original = JSON.parse(Deno.readTextFileSync(`${model}/config.json`));
      assertEquals(JSON.parse(Deno.readTextFileSync(`${back}/config.json`)), original);
      assertEquals((await openCheckpoint(back)).config.streams, 1);
    });
  }
});

Deno.test("the config of a conversion is what the official code expects", () =>
  withScratch(async (folder) => {
    const model = `${folder}/m`, code = `${folder}/code`;
    const rope_parameters = { rope_theta: 10000, rope_type: "default" };
    const changes = { rope_theta: undefined, rope_parameters, dtype: "float32", custom: [1] };
    copyModel("qwen2-p1-tied-f32", model, { ...changes, torch_dtype: undefined });
    const { configJson } = await planConversion({ model, out: `${folder}/o`, streams: 2 });
    assertEquals(configJson.model_type, "qwen2_parscale");
    assertEquals(configJson.architectures, ["Qwen2ParScaleForCausalLM"]);
    assertStringIncludes(JSON.stringify(configJson.auto_map), "ParScale/ParScale-1.8B-P8--model");
    assertEquals([configJson.parscale_n, configJson.parscale_n_tokens], [2, 48]);
    assertEquals([configJson.parscale_attn_smooth, configJson.custom], [0.1, [1]]);
    assertEquals([configJson.rope_theta, configJson.torch_dtype], [10000, "float32"]);
    assert(!("rope_parameters" in configJson) && !("dtype" in configJson));

    Deno.mkdirSync(code);
    const options = { model, out: `${folder}/o`, streams: 2, hfCode: code };
    assertEquals((await userError(() => planConversion(options))).kind, "data");
    for (const file of ["configuration_qwen2_parscale.py", "modeling_qwen2_parscale.py"]) {
      Deno.writeTextFileSync(`${code}/${file}`, "# code");
    }
    const report = await run(options);
    assert(report.files.includes("modeling_qwen2_parscale.py"));
    assertEquals(JSON.parse(Deno.readTextFileSync(`${folder}/o/config.json`)).auto_map, {
      AutoConfig: "configuration_qwen2_parscale.Qwen2ParScaleConfig",
      AutoModelForCausalLM: "modeling_qwen2_parscale.Qwen2ParScaleForCausalLM",
    });
    const qwen3 = await planConversion({
      model: `${MODELS}/qwen3-p1-tied-f32`,
      out: `${folder}/q`,
      streams: 2,
    });
    assertEquals(qwen3.configJson.model_type, "qwen3_parscale");
    assert(!("auto_map" in qwen3.configJson));
  }));

Deno.test("linear aggregation has its own tensors, config field and parameter counts", () =>
  withScratch(async (folder) => {
    const model = `${MODELS}/qwen2-p1-tied-f32`, out = `${folder}/linear`;
    const options = { streams: 4, prefixTokens: 6, aggregation: "linear" } as const;
    const report = await run({ model, out, ...options }, { verify: true });
    const { config, configJson, tensors } = await openCheckpoint(out);
    assertEquals([config.aggregator, configJson.parscale_aggregation], ["linear", "linear"]);
    // The official code would run a dynamic sum, so it is not named.
    assertEquals(configJson.auto_map, undefined);
    const own = [...tensors].filter(([name]) => name.includes("aggregate_layer"));
    assertEquals(own.map(([name, { shape }]) => [name, shape]), [
      ["model.aggregate_layer.weight", [64, 256]],
      ["model.aggregate_layer.bias", [64]],
    ]);
    const counts = countShape(config, 4, 6);
    assertEquals(counts.aggregator, 4 * 64 * 64 + 64);
    assertEquals(report.introducedParams, counts.prefix + counts.aggregator);
    assertEquals(counts.total, countParameters(config).total);

    await run({ model, out: `${folder}/adapter`, ...options, introducedOnly: true });
    const laid = await openCheckpoint(model, { adapter: `${folder}/adapter` });
    assertEquals([...laid.tensors.keys()], [...tensors.keys()]);

    await run({ model: out, out: `${folder}/back`, strip: true });
    assertEquals(
      (await openCheckpoint(`${folder}/back`)).configJson.parscale_aggregation,
      undefined,
    );

    const error = await userError(() =>
      planConversion({ model, out: `${folder}/x`, ...options, hfCode: folder })
    );
    assertStringIncludes(error.message, "`--hf-code` needs `--aggregation dynamic`");
    for (const wrong of ["mean", null]) {
      const text = JSON.stringify({ ...configJson, parscale_aggregation: wrong });
      await Deno.writeTextFile(`${out}/config.json`, text);
      const { message } = await userError(() => openCheckpoint(out));
      assertStringIncludes(
        message,
        wrong ? "parscale_aggregation" : "model.aggregate_layer.weight",
      );
    }
  }));

Deno.test("a ParScale model splits into backbone and keeps its hash", async () => {
  for (const name of SCALED) {
    await withScratch(async (folder) => {
      const model = `${MODELS}/${name}`, out = `${folder}/plain`;
      const report = await run({ model, out, strip: true }, { verify: true });
      assertEquals(report.introducedParams, 0);
      assertEquals(report.backboneSha256, await backboneHash(await openCheckpoint(model)));
      assert(!Deno.readTextFileSync(`${out}/config.json`).includes("parscale"));
    });
  }
});

Deno.test("an adapter holds the same tensors as a full conversion with that seed", () =>
  withScratch(async (folder) => {
    const model = `${MODELS}/qwen2-p1-untied-bf16`, adapter = `${folder}/adapter`;
    const full = await run({ model, out: `${folder}/full`, streams: 2, maxShardSize: 60_000 });
    const options = { model, out: adapter, streams: 2, introducedOnly: true };
    const report = await run(options, { verify: true });
    assertEquals(report.backboneSha256, full.backboneSha256);
    assertEquals(names(adapter), ["README.md", "config.json", "introduced.safetensors"]);
    const one = await openCheckpoint(`${folder}/full`);
    const two = await openCheckpoint(model, { adapter });
    assertEquals(two.config, one.config);
    assertEquals([...two.tensors.keys()], [...one.tensors.keys()]);
    for (const [name, tensor] of one.tensors) {
      assertEquals(await readTensor(two.tensors.get(name)!), await readTensor(tensor));
    }
    const other = `${MODELS}/qwen2-p1-tied-f32`; // two layers instead of three
    const error = await userError(() => openCheckpoint(other, { adapter }));
    assertStringIncludes(error.message, "num_hidden_layers is 3, expected 2");
    assertStringIncludes((await userError(() => openCheckpoint(adapter))).hints[0]!, "--adapter");
  }));

Deno.test("a seed gives the same bytes whatever the sharding", () =>
  withScratch(async (folder) => {
    const model = `${MODELS}/qwen3-p1-tied-f32`;
    const make = async (out: string, more: Partial<ConversionOptions>) => {
      await run({ model, out: `${folder}/${out}`, streams: 2, ...more });
      const { tensors } = await openCheckpoint(`${folder}/${out}`);
      return await readTensor(tensors.get("model.layers.1.self_attn.prefix_v")!);
    };
    const whole = await make("a", {});
    assertEquals(await make("b", { maxShardSize: 1 }), whole);
    assert((await make("c", { seed: 1 }))[0] !== whole[0]);
    const { metadata, dataOffset } = await readHeader(`${folder}/a/model.safetensors`);
    assertEquals([metadata.format, dataOffset % 8], ["pt", 0]);
  }));

Deno.test("requests that make no sense are refused before anything is read", async () => {
  const model = `${MODELS}/qwen2-p1-tied-f32`, out = "/nowhere/out";
  const cases: [Partial<ConversionOptions>, string][] = [
    [{}, "usage"],
    [{ streams: 2, out: model, overwrite: true }, "usage"],
    [{ streams: 2, out: MODELS, overwrite: true }, "usage"],
    [{ streams: 2, model: `${MODELS}/qwen2-p2-tied-f32` }, "data"],
  ];
  for (const [options, kind] of cases) {
    const error = await userError(() => planConversion({ model, out, ...options }));
    assertEquals(error.kind, kind, error.message);
  }
});

Deno.test("an aborted or damaged conversion leaves nothing behind", () =>
  withScratch(async (folder) => {
    const model = `${MODELS}/qwen2-p1-tied-f32`, out = `${folder}/out`;
    const abort = new AbortController();
    const onProgress = (done: number) => done > 50_000 && abort.abort();
    const plan = await planConversion({ model, out, streams: 2 });
    await assertRejects(() => convert(plan, { onProgress, signal: abort.signal }), DOMException);
    assertEquals(names(folder), []);

    copyModel("qwen2-p1-tied-f32", `${folder}/bad`);
    const { header, data } = readRaw(`${folder}/bad/model.safetensors`);
    const at = header["model.norm.weight"].data_offsets[0];
    data.fill(0xff, at, at + 4);
    writeRaw(`${folder}/bad/model.safetensors`, header, data);
    const error = await userError(() => run({ model: `${folder}/bad`, out, streams: 2 }));
    assertEquals(error.kind, "numerical");
    assertStringIncludes(error.message, "model.norm.weight");
    assertEquals(names(folder), ["bad"]);
  }));

Deno.test("an existing folder is replaced only on request, and only at the end", () =>
  withScratch(async (folder) => {
    const model = `${MODELS}/qwen2-p1-tied-f32`, out = `${folder}/out`;
    Deno.mkdirSync(out); // an empty folder is as good as none
    await run({ model, out, streams: 2 });
    const error = await userError(() => run({ model, out, streams: 4 }));
    assertEquals(error.kind, "usage");
    assertStringIncludes(error.hints[0]!, "--overwrite");

    const abort = AbortSignal.abort();
    const plan = await planConversion({ model, out, streams: 4, overwrite: true });
    await assertRejects(() => convert(plan, { signal: abort }), DOMException);
    assertEquals((await openCheckpoint(out)).config.streams, 2);
    Deno.writeTextFileSync(`${out}/keep`, "mine");
    await assertRejects(() => convert(plan), UsageError, '"keep"');
    assertEquals((await openCheckpoint(out)).config.streams, 2);
    Deno.removeSync(`${out}/keep`);
    await convert(plan);
    assertEquals((await openCheckpoint(out)).config.streams, 4);
    assertEquals(names(folder), ["out"]);
    Deno.writeTextFileSync(`${folder}/file`, "");
    const options = { model, out: `${folder}/file`, streams: 2, overwrite: true };
    assertEquals((await userError(() => run(options))).kind, "usage");
  }));

Deno.test({
  name: "a full disk is the environment's fault",
  ignore: Deno.build.os !== "linux",
  fn: () =>
    withScratch(async (folder) => {
      Deno.symlinkSync("/dev/full", `${folder}/model.safetensors`);
      const source = new Uint8Array(8);
      const tensor = { name: "a", dtype: "f32" as const, shape: [2], byteLength: 8, source };
      const error = await userError(() => writeWeights(folder, [tensor]));
      assertEquals(error.kind, "environment");
      assertStringIncludes(error.message, "the disk is full");
    }),
});

Deno.test("shards fill in order and a large tensor stands alone", () => {
  const sizes = (max: number) =>
    planShards([4, 4, 9, 1, 1].map((byteLength) => ({ byteLength })), max)
      .map((shard) => shard.map((tensor) => tensor.byteLength));
  assertEquals(sizes(8), [[4, 4], [9], [1, 1]]);
  assertEquals(sizes(100), [[4, 4, 9, 1, 1]]);
  assertEquals(sizes(1), [[4], [4], [9], [1], [1]]);
});
