/** Opening of checkpoints, and refusals. */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { backboneHash } from "../../../core/checkpoint/backbone.ts";
import { configToJson, parseConfig } from "../../../core/checkpoint/config.ts";
import { openCheckpoint } from "../../../core/checkpoint/open.ts";
import { readTensor } from "../../../core/checkpoint/read.ts";
import { writeWeights } from "../../../core/checkpoint/write.ts";
import { findNonFinite, fromF32, toF32 } from "../../../core/base/dtype.ts";
import { copyModel, MODELS, readRaw, userError, withScratch, writeRaw } from "./testing.ts";

const opened = (folder: string) => userError(() => openCheckpoint(folder));

/** Parses configs that have these fields unless they say otherwise. */
const parserOf = (fields: Record<string, unknown>) => (others: Record<string, unknown>) =>
  parseConfig({ ...fields, ...others }, "config.json");

Deno.test("a missing config field has the default of the official class", () => {
  const config = parseConfig({ model_type: "qwen2_parscale" }, "config.json");
  assertEquals(config, {
    family: "qwen2",
    vocabSize: 151936,
    hiddenSize: 4096,
    intermediateSize: 22016,
    numHiddenLayers: 32,
    numAttentionHeads: 32,
    numKeyValueHeads: 32,
    headDim: 128,
    rmsNormEps: 1e-6,
    ropeTheta: 10000,
    maxPositionEmbeddings: 32768,
    tieWordEmbeddings: false,
    attentionBias: true,
    outputBias: false,
    mlpBias: false,
    dtype: "f32",
    eosTokenIds: [],
    streams: 1,
    prefix: false,
    loraRank: 0,
    bitfit: false,
    prefixTokens: 48,
    smoothing: 0.01,
    aggregator: "dynamic",
  });
});

Deno.test("newer spellings of config fields are read", () => {
  const parse = parserOf({ model_type: "qwen3" });
  const rope_parameters = { rope_theta: 1e6, rope_type: "default" };
  assertEquals(parse({ rope_parameters }).ropeTheta, 1e6);
  assertEquals(parse({ dtype: "bfloat16" }).dtype, "bf16");
  assertEquals(parse({ rope_scaling: { type: "default" } }).ropeTheta, 10000);
  assertEquals(parse({ num_key_value_heads: null }).numKeyValueHeads, 32);
  assertEquals(parse({ attention_bias: true }).outputBias, true);
  assertEquals(parse({ eos_token_id: [1, 2] }).eosTokenIds, [1, 2]);
  assertEquals(parse({ eos_token_id: -1 }).eosTokenIds, []);
  assertEquals(parse({ eos_token_id: [-1, 2] }).eosTokenIds, [2]);
  for (const key of ["dtype", "torch_dtype"]) assertEquals(parse({ [key]: "auto" }).dtype, "f32");
});

Deno.test("configs of Llama 3.2, SmolLM and SmolLM2 are read as published", () => {
  const parse = parserOf({ model_type: "llama" });
  const scaling = {
    factor: 32,
    low_freq_factor: 1,
    high_freq_factor: 4,
    original_max_position_embeddings: 8192,
    rope_type: "llama3",
  };
  const llama = {
    hidden_size: 2048,
    num_attention_heads: 32,
    num_key_value_heads: 8,
    head_dim: 64,
    max_position_embeddings: 131072,
    rms_norm_eps: 1e-5,
    attention_bias: false,
    mlp_bias: false,
    tie_word_embeddings: true,
    pretraining_tp: 1,
    eos_token_id: 128001,
    torch_dtype: "bfloat16",
  };
  const older = parse({ ...llama, rope_theta: 5e5, rope_scaling: scaling });
  const newer = parse({ ...llama, rope_parameters: { ...scaling, rope_theta: 5e5 } });
  assertEquals(older, newer);
  assertEquals([older.ropeTheta, older.maxPositionEmbeddings, older.headDim], [5e5, 131072, 64]);
  assertEquals(older.ropeScaling, {
    kind: "llama3",
    factor: 32,
    lowFrequencyFactor: 1,
    highFrequencyFactor: 4,
    originalContext: 8192,
  });
  assertEquals([older.attentionBias, older.outputBias, older.mlpBias], [false, false, false]);
  const smol = parse({
    hidden_size: 576,
    num_attention_heads: 9,
    num_key_value_heads: 3,
    rope_interleaved: false,
    rope_scaling: null,
    rope_theta: 100000,
    vocab_size: 49152,
  });
  assertEquals([smol.headDim, smol.ropeTheta, smol.ropeScaling], [64, 1e5, undefined]);
  const bare = parse({});
  assertEquals([bare.vocabSize, bare.numKeyValueHeads, bare.headDim], [32000, 32, 128]);
  assertEquals([bare.intermediateSize, bare.maxPositionEmbeddings], [11008, 2048]);
});

Deno.test("YaRN extends the context that Qwen2.5 states, and is written out in full", () => {
  const parse = parserOf({ model_type: "qwen2", max_position_embeddings: 32768 });
  const stated = { factor: 4, original_max_position_embeddings: 32768, type: "yarn" };
  const config = parse({ rope_theta: 1e6, rope_scaling: stated });
  assertEquals(config.maxPositionEmbeddings, 131072);
  assertEquals(parse({ rope_scaling: { factor: 4, type: "yarn" } }).maxPositionEmbeddings, 131072);
  const longer = parse({ max_position_embeddings: 65536, rope_scaling: stated });
  assertEquals(longer.maxPositionEmbeddings, 65536);
  assertEquals(config.ropeScaling, {
    kind: "yarn",
    factor: 4,
    attentionFactor: 0.1 * Math.log(4) + 1,
    betaFast: 32,
    betaSlow: 1,
    truncate: true,
    originalContext: 32768,
  });
  const source = {
    rope_parameters: { ...stated, rope_theta: 1e6 },
    max_position_embeddings: 32768,
  };
  const written = configToJson(config, source);
  assertEquals([written.rope_theta, written.rope_parameters], [1e6, undefined]);
  assertEquals(parse(written), config);
});

Deno.test("an original context beside the scaling wins over that within, as in transformers", () => {
  const parse = parserOf({ model_type: "qwen2", max_position_embeddings: 4096 });
  const original = (within?: number, beside?: number | null) =>
    parse({
      rope_scaling: { type: "yarn", factor: 4, original_max_position_embeddings: within },
      original_max_position_embeddings: beside,
    }).ropeScaling?.originalContext;
  assertEquals([original(), original(512), original(512, null)], [4096, 512, 512]);
  assertEquals([original(undefined, 256), original(512, 256)], [256, 256]);
});

Deno.test("two fields with scalings must state the same", async () => {
  const yarn = { type: "yarn", factor: 4, original_max_position_embeddings: 512 };
  const parse = parserOf({ model_type: "qwen2", rope_scaling: yarn });
  const factorBeside = (others: Record<string, unknown>) => {
    const { ropeTheta, ropeScaling } = parse({ rope_parameters: { rope_theta: 1e6, ...others } });
    return [ropeTheta, ropeScaling?.factor];
  };
  assertEquals(factorBeside({ rope_type: "default" }), [1e6, 4]);
  assertEquals(factorBeside({ ...yarn, rope_type: "yarn" }), [1e6, 4]);
  const { message } = await userError(() => factorBeside({ ...yarn, factor: 2 }));
  assertStringIncludes(message, "rope_parameters states another scaling: rope_scaling is");
});

Deno.test("only a scaling that begins beyond the original context may be set to null", async () => {
  const hints = async (type: string) => {
    const parse = parserOf({ model_type: "llama", rope_scaling: { type, factor: 4 } });
    return (await userError(() => parse({}))).hints;
  };
  assertEquals(await hints("dynamic"), [
    "set rope_scaling to null to run within the original context length",
  ]);
  assertEquals(await hints("linear"), []);
});

Deno.test("without head_dim Qwen3 means 128 and Qwen2 divides the width by the heads", () => {
  const sizes = { hidden_size: 1024, num_attention_heads: 16, num_key_value_heads: 8 };
  const headDim = (model_type: string, head_dim?: number | null) =>
    parseConfig({ model_type, ...sizes, head_dim }, "").headDim;
  assertEquals([headDim("qwen2"), headDim("qwen2", null), headDim("qwen2", 32)], [64, 64, 32]);
  assertEquals([headDim("qwen3"), headDim("qwen3", null), headDim("qwen3", 32)], [128, 128, 32]);
  assertEquals(headDim("qwen3_parscale"), 128);
});

Deno.test("config values that would be computed wrongly are refused by name", async () => {
  const cases: [Record<string, unknown>, string][] = [
    [
      { use_sliding_window: true },
      "sliding-window attention is not supported: use_sliding_window is true",
    ],
    [{ layer_types: ["full_attention", "sliding_attention"] }, "layer_types"],
    [{ model_type: "qwen3_moe" }, 'llama_parscale, not "qwen3_moe"'],
    [{ model_type: "mistral" }, "model_type"],
    [{ model_type: "toString" }, "model_type"],
    [{ num_experts: 8 }, "num_experts"],
    [{ rope_scaling: { rope_type: "longrope", factor: 4 } }, "rope_scaling"],
    [{ rope_scaling: { rope_type: "yarn" } }, '"rope_scaling" of "config.json" lacks factor'],
    [{ rope_scaling: { rope_type: "llama3", factor: 8 } }, "lacks low_freq_factor"],
    [
      { rope_scaling: { type: "llama3", factor: 8, low_freq_factor: 4, high_freq_factor: 4 } },
      "must be a number above low_freq_factor, 4, not 4",
    ],
    [{ rope_scaling: { type: "default", partial_rotary_factor: 0.5 } }, "partial_rotary_factor"],
    [{ partial_rotary_factor: 0.5 }, 'partial_rotary_factor is 0.5 in "config.json"'],
    [{ model_type: "llama", mlp_bias: 1 }, "mlp_bias"],
    [{ rope_parameters: { rope_type: "linear", rope_theta: 1e4 } }, "rope_parameters"],
    [{ rope_parameters: { full_attention: {} } }, "rope_parameters"],
    [{ hidden_act: "gelu" }, "hidden_act"],
    [{ hidden_size: "64" }, "hidden_size"],
    [{ num_key_value_heads: 3 }, "num_key_value_heads"],
    [{ head_dim: 15 }, "head_dim"],
    [{ hidden_size: 66 }, "hidden_size"],
    [{ rope_theta: -1 }, "rope_theta"],
    [{ rope_theta: 1e-300 }, 'rope_theta in "config.json" must be a number from 2 to'],
    [{ rope_theta: 1e300 }, "rope_theta"],
    [{ rope_parameters: { rope_type: "default", rope_theta: 1e-300 } }, "rope_theta"],
    [{ rope_scaling: { rope_type: "yarn", factor: 1e-300 } }, "factor"],
    [{ rope_scaling: { rope_type: "yarn", factor: 4, beta_fast: 1e300 } }, "beta_fast"],
    [{ rms_norm_eps: 1e-300 }, "rms_norm_eps"],
    [{ rms_norm_eps: 1e30 }, "rms_norm_eps"],
    [{ tie_word_embeddings: "yes" }, "tie_word_embeddings"],
    [{ torch_dtype: "float8" }, "torch_dtype"],
    [{ num_hidden_layers: 1e9 }, "num_hidden_layers"],
    [{ parscale_n: 4 }, "parscale_n"],
    [{ parscale_attn_smooth: 2 }, "parscale_attn_smooth"],
    [{ quantization_config: {} }, "quantization_config"],
    [{ quantization: { group_size: 64, bits: 4 } }, "weights are not supported: quantization is"],
    [{ compression_config: { format: "pack-quantized" } }, "compression_config"],
    [{ eos_token_id: "end" }, "eos_token_id"],
  ];
  const heads = { num_attention_heads: 4, num_key_value_heads: 2 };
  const parse = parserOf({ model_type: "qwen2", hidden_size: 64, ...heads });
  for (const [fields, key] of cases) {
    const error = await userError(() => parse(fields));
    assertEquals(error.kind, "data");
    assertStringIncludes(error.message, key);
  }
});

Deno.test("contradictions between config and tensors are refused", async () => {
  const cases: [string, Record<string, unknown>, string][] = [
    ["qwen2-p2-tied-f32", { parscale_n: 4 }, "expected [4,2,8,16]"],
    ["qwen2-p2-tied-f32", { parscale_n: 1 }, "aggregate_layer"],
    ["qwen2-p2-tied-f32", { parscale_n_tokens: 48 }, "prefix_k"],
    ["qwen2-p1-tied-f32", { num_hidden_layers: 1 }, "model.layers.1."],
    ["qwen2-p1-tied-f32", { num_hidden_layers: 3 }, "model.layers.2."],
    ["qwen2-p1-tied-f32", { tie_word_embeddings: false }, "lm_head.weight"],
    ["qwen2-p1-tied-f32", { vocab_size: 500 }, "model.embed_tokens.weight"],
    ["qwen2-p1-tied-f32", { model_type: "qwen3" }, "bias"],
    ["qwen3-p1-tied-f32", { model_type: "qwen2" }, "q_norm"],
  ];
  for (const [name, changes, words] of cases) {
    await withScratch(async (folder) => {
      copyModel(name, `${folder}/m`, changes);
      const error = await opened(`${folder}/m`);
      assertEquals(error.kind, "data");
      assertStringIncludes(error.message, words);
    });
  }
});

Deno.test("files and other folders are named as such", () =>
  withScratch(async (folder) => {
    const fixture = `${MODELS}/qwen2-p1-tied-f32/config.json`;
    Deno.mkdirSync(`${folder}/empty`);
    Deno.copyFileSync(fixture, `${folder}/config.json`);
    const cases = [
      [fixture, "is a file, not a model folder"],
      [`${folder}/empty`, "is not a Hugging Face model folder: it has no config.json"],
      [folder, "has no weights: neither model.safetensors nor model.safetensors.index.json"],
    ] as const;
    for (const [path, words] of cases) assertStringIncludes((await opened(path)).message, words);
  }));

Deno.test("the GGUF files of a folder without weights are named", () =>
  withScratch(async (folder) => {
    for (const name of ["b-00001-of-00002.gguf", "b-00002-of-00002.gguf", "a.gguf", "README.md"]) {
      Deno.writeTextFileSync(`${folder}/${name}`, "");
    }
    const hints = [
      `pass a GGUF file of the folder: "${folder}/a.gguf", "${folder}/b-00001-of-00002.gguf"`,
    ];
    assertEquals((await opened(folder)).hints, hints);
    Deno.copyFileSync(`${MODELS}/qwen2-p1-tied-f32/config.json`, `${folder}/config.json`);
    assertEquals((await opened(folder)).hints, hints);
  }));

Deno.test("a GGUF file in place of an adapter folder is told how such folders are made", () =>
  withScratch(async (folder) => {
    const adapter = `${folder}/lora.gguf`;
    Deno.writeTextFileSync(adapter, "GGUF");
    const opening = openCheckpoint(`${MODELS}/qwen2-p1-tied-f32`, { adapter });
    const { message, hints } = await userError(() => opening);
    assertStringIncludes(message, 'lora.gguf" is not an adapter folder');
    assertStringIncludes(hints[0]!, "`train --train-params introduced` write such folders");
  }));

Deno.test("a model without its head, as AutoModel saves it, opens as the one with it", () =>
  withScratch(async (folder) => {
    const name = "qwen2-p1-tied-f32";
    copyModel(name, folder);
    const path = `${folder}/model.safetensors`, { header, data } = readRaw(path);
    const bare = Object.entries(header).map(([key, entry]) => [key.replace(/^model\./, ""), entry]);
    Deno.removeSync(path);
    writeRaw(path, Object.fromEntries(bare), data);
    const [found, whole] = [
      await openCheckpoint(folder),
      await openCheckpoint(`${MODELS}/${name}`),
    ];
    assertEquals([...found.tensors.keys()], [...whole.tensors.keys()]);
    assertEquals(found.extraTensors, whole.extraTensors);
    assertEquals(await backboneHash(found), await backboneHash(whole));
    copyModel(name, `${folder}/untied`, { tie_word_embeddings: false });
    const { hints } = await opened(`${folder}/untied`);
    assertStringIncludes(hints[1]!, "save the model by AutoModelForCausalLM");
  }));

Deno.test("shards are followed, and what is missing is named", () =>
  withScratch(async (folder) => {
    const fixture = await openCheckpoint(`${MODELS}/qwen2-p4-untied-f32`);
    copyModel("qwen2-p4-untied-f32", folder);
    Deno.removeSync(`${folder}/model.safetensors`);
    const tensors = [...fixture.tensors.values()].map((t) => ({ ...t, source: t }));
    const files = await writeWeights(folder, tensors, { maxShardBytes: 200_000 });
    assert(files.includes("model-00001-of-00004.safetensors"), files.join());

    const sharded = await openCheckpoint(folder);
    for (const [name, tensor] of fixture.tensors) {
      assertEquals(await readTensor(sharded.tensors.get(name)!), await readTensor(tensor));
    }
    const path = `${folder}/model.safetensors.index.json`;
    const { metadata, weight_map } = JSON.parse(Deno.readTextFileSync(path));
    const bytes = tensors.reduce((sum, tensor) => sum + tensor.byteLength, 0);
    assertEquals(metadata.total_size, bytes);
    const list = (changes: Record<string, string | undefined>) => {
      const changed = { metadata, weight_map: { ...weight_map, ...changes } };
      Deno.writeTextFileSync(path, JSON.stringify(changed));
    };
    list({ "model.norm.weight": undefined }); // unlisted but stored: accepted
    await openCheckpoint(folder);
    list({ "model.ghost": "model-00001-of-00004.safetensors" });
    assertStringIncludes((await opened(folder)).message, "model.ghost");
    list({ "model.ghost": "../secret.safetensors" });
    assertStringIncludes((await opened(folder)).message, "../secret");
    list({});
    Deno.removeSync(`${folder}/model-00002-of-00004.safetensors`);
    const { message, hints } = await opened(folder);
    const missing = "1 of 4 shards listed in model.safetensors.index.json is missing";
    assertStringIncludes(message, missing);
    assertStringIncludes(hints[0]!, "model-00002-of-00004.safetensors");
  }));

Deno.test("casts to f32 are exact, and casts from it round to nearest, ties to even", () => {
  const values = new Float32Array([0, -0, 1, 1 + 2 ** -8, 1 + 3 * 2 ** -8, 65504, 3e38, -2.5]);
  const bf16 = [0, -0, 1, 1, 1 + 2 ** -6, 65536, 3.0040553e38, -2.5];
  assertEquals([...toF32(fromF32(values, "bf16"), "bf16")], bf16.map(Math.fround));
  assertEquals(toF32(fromF32(values, "f16"), "f16")[5], 65504);
  assertEquals(toF32(fromF32(values, "f32"), "f32"), values);
  for (const type of ["f32", "bf16", "f16"] as const) {
    for (const bad of [NaN, Infinity, -Infinity]) {
      for (const at of [0, 4, 6]) {
        const some = new Float32Array(7).map((_, i) => i === at ? bad : 1000 * i);
        assertEquals(findNonFinite(fromF32(some, type), type), at);
      }
    }
    assertEquals(findNonFinite(fromF32(new Float32Array([-60000, 1e-8, 3]), type), type), -1);
  }
});
