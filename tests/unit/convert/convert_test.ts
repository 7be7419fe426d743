/** Conversions: what is written, and that it can be undone. */
import { assert, assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { backboneHash } from "../../../core/checkpoint/backbone.ts";
import { convert } from "../../../core/convert/convert.ts";
import { type ConversionOptions, planConversion } from "../../../core/convert/plan.ts";
import { openCheckpoint } from "../../../core/checkpoint/open.ts";
import { planShards, writeWeights } from "../../../core/checkpoint/write.ts";
import { readHeader } from "../../../core/checkpoint/safetensors.ts";
import { countShape } from "../../../core/analysis/cost.ts";
import { countParameters } from "../../../core/model/parameters.ts";
import { copyModel, MODEL_NAMES, MODELS, userError, withScratch } from "../checkpoint/testing.ts";

async function run(options: ConversionOptions, how: Parameters<typeof convert>[1] = {}) {
  return await convert(await planConversion(options), how);
}

for (const name of MODEL_NAMES) {
  Deno.test(`${name} converts, keeps its backbone, and strips back to it`, () =>
    withScratch(async (folder) => {
      const model = `${MODELS}/${name}`, plain = `${folder}/plain`, out = `${folder}/p4`;
      const source = await openCheckpoint(model), backbone = await backboneHash(source);
      const stripped = await run({ model, out: plain, strip: true }, { verify: true });
      assertEquals([stripped.introducedParams, stripped.backboneSha256], [0, backbone]);
      const report = await run({ model: plain, out, streams: 4, prefixTokens: 6 });
      const { config, tensors } = await openCheckpoint(out);
      const added = { streams: 4, prefix: true, prefixTokens: 6, smoothing: 0.1 };
      assertEquals(config, { ...source.config, ...added });
      assertEquals([report.tensors, report.backboneSha256], [tensors.size, backbone]);
      assertEquals(report.introducedParams, countParameters(config).introduced);
      const weights = `${out}/model.safetensors`, [first] = await readHeader(weights);
      assertEquals(first!.offset % 8, 0);
      assertStringIncludes(Deno.readTextFileSync(weights), '{"__metadata__":{"format":"pt"},');
      const back = await run({ model: out, out: `${folder}/back`, strip: true });
      assertEquals(back.backboneSha256, backbone);
      const [before, last] = [plain, `${folder}/back`].map((path) =>
        Deno.readTextFileSync(`${path}/config.json`)
      );
      assertEquals(last, before);
      assert(!last!.includes("parscale"));
    }));
}

Deno.test("the config of a conversion is what the official code expects", () =>
  withScratch(async (folder) => {
    const model = `${folder}/m`;
    const rope_parameters = { rope_theta: 10000, rope_type: "default" };
    const changes = { rope_theta: undefined, rope_parameters, dtype: "float32", custom: [1] };
    copyModel("qwen2-p1-tied-f32", model, { ...changes, torch_dtype: undefined });
    const { configJson } = await planConversion({ model, out: `${folder}/o`, streams: 2 });
    assertEquals(configJson.model_type, "qwen2_parscale");
    assertEquals(configJson.architectures, ["Qwen2ParScaleForCausalLM"]);
    assertEquals(configJson.auto_map, {
      AutoConfig: "modeling_parscale.Qwen2ParScaleConfig",
      AutoModelForCausalLM: "modeling_parscale.Qwen2ParScaleForCausalLM",
    });
    assertEquals([configJson.parscale_n, configJson.parscale_n_tokens], [2, 48]);
    assertEquals([configJson.parscale_attn_smooth, configJson.custom], [0.1, [1]]);
    assertEquals([configJson.rope_theta, configJson.torch_dtype], [10000, "float32"]);
    assert(!("rope_parameters" in configJson) && !("dtype" in configJson));

    for (const none of [{ modelingCode: false }, { introducedOnly: true }]) {
      const options = { model, out: `${folder}/o`, streams: 2, ...none };
      assertEquals((await planConversion(options)).configJson.auto_map, undefined);
    }
    const qwen3 = await planConversion({
      model: `${MODELS}/qwen3-p1-tied-f32`,
      out: `${folder}/q`,
      streams: 2,
    });
    assertEquals(qwen3.configJson.model_type, "qwen3_parscale");
    assertStringIncludes(JSON.stringify(qwen3.configJson.auto_map), "Qwen3ParScaleForCausalLM");
    // Qwen3.5 is for parscale alone: transformers must not open it without its streams.
    const hybrid = { model: `${MODELS}/qwen35-p1-tied-f32`, out: `${folder}/h`, streams: 2 };
    assertEquals((await planConversion(hybrid)).configJson.auto_map, undefined);
  }));

Deno.test("linear aggregation has its own tensors, config field and parameter counts", () =>
  withScratch(async (folder) => {
    const model = `${MODELS}/qwen2-p1-tied-f32`, out = `${folder}/linear`;
    const options = { streams: 4, prefixTokens: 6, aggregation: "linear" } as const;
    const report = await run({ model, out, ...options }, { verify: true });
    const { config, configJson, tensors } = await openCheckpoint(out);
    assertEquals([config.aggregator, configJson.parscale_aggregation], ["linear", "linear"]);
    assertStringIncludes(JSON.stringify(configJson.auto_map), "modeling_parscale.Qwen2ParScale");
    assertStringIncludes(
      Deno.readTextFileSync(`${out}/modeling_parscale.py`),
      "class ParScaleModel",
    );
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
    const back = await openCheckpoint(`${folder}/back`);
    assertEquals(back.configJson.parscale_aggregation, undefined);

    for (const wrong of ["mean", null]) {
      const text = JSON.stringify({ ...configJson, parscale_aggregation: wrong });
      await Deno.writeTextFile(`${out}/config.json`, text);
      const { message } = await userError(() => openCheckpoint(out));
      const name = wrong ? "parscale_aggregation" : "model.aggregate_layer.weight";
      assertStringIncludes(message, name);
    }
  }));

Deno.test("a conversion into nothing else, or into a folder above its model, is refused", async () => {
  const model = `${MODELS}/qwen2-p1-tied-f32`;
  for (const options of [{ out: "/nowhere" }, { streams: 2, out: MODELS, overwrite: true }]) {
    assertEquals((await userError(() => planConversion({ model, ...options }))).kind, "usage");
  }
});

Deno.test("a conversion that is aborted leaves the folder that it was to replace", () =>
  withScratch(async (folder) => {
    const model = `${MODELS}/qwen2-p1-tied-f32`, out = `${folder}/out`;
    await run({ model, out, streams: 2 });
    const plan = await planConversion({ model, out, streams: 4, overwrite: true });
    await assertRejects(() => convert(plan, { signal: AbortSignal.abort() }), DOMException);
    assertEquals((await openCheckpoint(out)).config.streams, 2);
  }));

Deno.test(
  "a full disk is the environment's fault",
  { ignore: Deno.build.os !== "linux" },
  () =>
    withScratch(async (folder) => {
      Deno.symlinkSync("/dev/full", `${folder}/model.safetensors`);
      const source = new Uint8Array(8);
      const tensor = { name: "a", dtype: "f32" as const, shape: [2], byteLength: 8, source };
      const error = await userError(() => writeWeights(folder, [tensor]));
      assertEquals(error.kind, "environment");
      assertStringIncludes(error.message, "the disk is full");
    }),
);

Deno.test("shards fill in order and a large tensor stands alone", () => {
  const sizes = (max: number) =>
    planShards([4, 4, 9, 1, 1].map((byteLength) => ({ byteLength })), max)
      .map((shard) => shard.map((tensor) => tensor.byteLength));
  assertEquals(sizes(8), [[4, 4], [9], [1, 1]]);
  assertEquals(sizes(100), [[4, 4, 9, 1, 1]]);
  assertEquals(sizes(1), [[4], [4], [9], [1], [1]]);
});
