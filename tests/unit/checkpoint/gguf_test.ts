/** Protects GGUF files as checkpoints: logits of the folder, codes kept, refusals. */
import { assert, assertEquals, assertNotEquals, assertStringIncludes } from "@std/assert";
import { convert } from "../../../core/convert/convert.ts";
import { backboneHash } from "../../../core/checkpoint/backbone.ts";
import { modelFingerprint } from "../../../core/checkpoint/fingerprint.ts";
import { openCheckpoint, weightsOf } from "../../../core/checkpoint/open.ts";
import { planConversion } from "../../../core/convert/plan.ts";
import {
  checkQuantized,
  planQuantization,
  quantizeCheckpoint,
} from "../../../core/convert/quantize.ts";
import { readTensor } from "../../../core/checkpoint/read.ts";
import { DataError } from "../../../core/base/errors.ts";
import type { MatrixFormat } from "../../../core/quant/codes.ts";
import { type FileTensor, formatOf } from "../../../core/quant/stored.ts";
import { Engine } from "../../../core/generate/engine.ts";
import { EMBEDDING, linearSpecs } from "../../../core/model/parameters.ts";
import { ropeFrequencies } from "../../../core/model/rope_frequencies.ts";
import type { Weight, Weights } from "../../../core/runtime/device.ts";
import type { ModelConfig } from "../../../core/model/config.ts";
import { CpuDevice } from "../../../core/runtime/onnxruntime/cpu.ts";
import { ReferenceDevice } from "../../../core/runtime/reference/device.ts";
import { readRange, weightValues } from "../../../core/runtime/weights.ts";
import { openTokenizer } from "../../../core/tokenizer/tokenizer.ts";
import {
  type Entry,
  ggufBytes,
  type GgufContent,
  ggufOf,
  type GgufTensor,
  tensorOf,
  writeGguf,
  writeTinyFolder,
} from "../../gguf_model.ts";
import { maxDifference } from "../../device/goldens.ts";
import { MODELS, userError, withScratch } from "./testing.ts";

const IDS = [1, 5, 9, 20, 33, 7, 64, 100, 256, 300, 3, 3];

/** Logits at every position, in double precision. */
async function logits(path: string): Promise<ArrayLike<number>> {
  const { config, tensors } = await openCheckpoint(path);
  return await logitsOf(new Engine(new ReferenceDevice("f64"), config, tensors));
}

async function logitsOf(engine: Engine): Promise<ArrayLike<number>> {
  using cache = engine.createCache(1, IDS.length);
  const input = { ids: [IDS], start: [0], select: IDS.map((_, i) => i) };
  return (await engine.forward(cache, input)).get("logits")!;
}

/** Logits on the device `cpu`. */
async function cpuLogits(
  config: ModelConfig,
  weights: Weights,
  matrices: MatrixFormat = { kind: "f32" },
): Promise<ArrayLike<number>> {
  const device = new CpuDevice({ threads: 1, matrices });
  try {
    return Float32Array.from(await logitsOf(new Engine(device, config, weights)));
  } finally {
    device.close();
  }
}

interface Place {
  readonly scratch: string;
  /** A small model as a folder. */
  readonly folder: string;
  /** Path for a file. */
  readonly path: string;
}

const withModel = (family: "llama" | "qwen2" | "qwen3", work: (place: Place) => Promise<void>) =>
  withScratch(async (scratch) => {
    const folder = `${scratch}/folder`, path = `${scratch}/model.gguf`;
    await writeTinyFolder(folder, family);
    await work({ scratch, folder, path });
  });

for (const family of ["llama", "qwen2", "qwen3"] as const) {
  Deno.test(`a ${family} file in F32 gives the folder's logits, config and hash`, () =>
    withModel(family, async ({ folder, path }) => {
      await writeGguf(path, folder);
      const [source, file] = [await openCheckpoint(folder), await openCheckpoint(path)];
      assertEquals(file.config, source.config);
      assertEquals([...file.tensors.keys()], [...source.tensors.keys()]);
      assertEquals(await backboneHash(file), await backboneHash(source));
      const expected = await logits(folder);
      assert(maxDifference(await logits(path), expected) < 1e-6);
      assert(maxDifference(await cpuLogits(file.config, weightsOf(file)), expected) < 1e-4);
    }));
}

Deno.test("a Llama model with biases, and one in F16, read as their folders", () =>
  withModel("llama", async ({ folder, path }) => {
    await writeGguf(path, `${MODELS}/llama-p1-untied-bias-f32`);
    const expected = await logits(`${MODELS}/llama-p1-untied-bias-f32`);
    assert(maxDifference(await logits(path), expected) < 1e-6);

    const source = await openCheckpoint(folder);
    for (const type of ["F16", "BF16"] as const) {
      await writeGguf(path, folder, { type });
      const { config, tensors } = await openCheckpoint(path);
      assertEquals(config.dtype, type.toLowerCase());
      for (const [name, tensor] of tensors) {
        assertEquals(tensor.dtype, name.includes("norm") ? "f32" : config.dtype);
        const stored = await readTensor(source.tensors.get(name)!);
        assert(maxDifference(await readTensor(tensor), stored) < 0.02, name);
      }
    }
  }));

for (const [type, kind] of [["Q8_0", "q8"], ["Q4_0", "q4"]] as const) {
  Deno.test(`codes of ${type} are kept, and convert into a ${kind} folder without loss`, () =>
    withModel("llama", async ({ scratch, folder, path }) => {
      await writeGguf(path, folder, { type });
      const file = await openCheckpoint(path);
      const format = { kind, block: 32 };
      for (const { name } of linearSpecs(file.config)) {
        assertEquals(formatOf(file.tensors.get(name)!), format);
      }
      const options = { model: path, out: `${scratch}/coded`, format };
      await quantizeCheckpoint(await planQuantization(options));
      await checkQuantized(`${scratch}/coded`);
      const coded = await openCheckpoint(`${scratch}/coded`, { quantized: true });
      for (const [name, matrix] of coded.quantization!.matrices) {
        const expected = await readTensor(file.tensors.get(name)!);
        const found = weightValues({ ...matrix, dtype: "f32", format });
        assertEquals(found, expected, name);
        assert(readRange(matrix.codes).some((byte) => byte !== 0));
      }
      // On a device both are the same matrices, and near what they stand for.
      const { config } = file;
      const kept = await cpuLogits(config, weightsOf(file, { keepsCodes: true }));
      const inFull = await cpuLogits(config, weightsOf(file));
      assertEquals(kept, await cpuLogits(config, weightsOf(coded), format));
      assertEquals(inFull, await cpuLogits(config, file.tensors)); // rows of codes are exact
      assertNotEquals(kept, inFull);
      assert(maxDifference(kept, inFull) < 0.5, `${maxDifference(kept, inFull)}`);
      assert(maxDifference(inFull, await logits(path)) < 1e-3);
    }));
}

Deno.test("a file of mixed types keeps the format of each matrix, few codes become f32", () =>
  withModel("qwen2", async ({ folder, path }) => {
    const write = (type: (name: string) => "F32" | "Q8_0" | "Q4_0") =>
      writeGguf(path, folder, { type });
    const formats = async () => {
      const weights = weightsOf(await openCheckpoint(path), { keepsCodes: true });
      return new Set([...weights.values()].map((weight) => weight.format?.kind));
    };
    await write((name) => name === "output.weight" ? "Q8_0" : /ffn/.test(name) ? "Q4_0" : "F32");
    assertEquals(await formats(), new Set([undefined]));
    await write((name) => name === "output.weight" ? "Q8_0" : "Q4_0");
    assertEquals(await formats(), new Set([undefined, "q4", "q8"]));
    const file = await openCheckpoint(path);
    const found = await cpuLogits(file.config, weightsOf(file, { keepsCodes: true }));
    assert(maxDifference(found, await logits(path)) < 0.5);
  }));

Deno.test("an embedding table in Q6_K keeps its codes where the other matrices are Q4_0", () =>
  withModel("llama", async ({ scratch, path }) => {
    const folder = `${scratch}/wide`;
    await writeTinyFolder(folder, "llama", { hidden_size: 256, head_dim: 64 });
    const type = (name: string) => name.startsWith("token_embd") ? "Q6_K" : "Q4_0";
    await writeGguf(path, folder, { type });
    const file = await openCheckpoint(path);
    const weights = weightsOf(file, { keepsCodes: true });
    assertEquals(weights.get(EMBEDDING)!.format, { kind: "q8", block: 16 });
    const exact = new Map<string, Weight>([...weights, [EMBEDDING, file.tensors.get(EMBEDDING)!]]);
    const expected = await cpuLogits(file.config, exact);
    const difference = maxDifference(await cpuLogits(file.config, weights), expected);
    assert(difference > 0 && difference < 0.5, `${difference}`);
    // Where matrices become f32 the rows of the table are still read from its codes.
    await writeGguf(path, folder, { type: (name) => /^token_embd/.test(name) ? "Q6_K" : "F16" });
    const other = await openCheckpoint(path), alone = weightsOf(other, { keepsCodes: true });
    const table = alone.get(EMBEDDING) as FileTensor;
    assertEquals([table.format, table.table], [undefined, { kind: "q8", block: 16 }]);
    const logits = await cpuLogits(other.config, alone);
    assertEquals(logits, await cpuLogits(other.config, other.tensors));
  }));

Deno.test("converted to a folder a file keeps logits, tokenizer, end tokens and template", () =>
  withModel("llama", async ({ scratch, folder, path }) => {
    const metadata: Record<string, Entry> = {
      "tokenizer.chat_template": ["string", "{{ messages[0].content }}"],
    };
    await writeGguf(path, folder, { type: "Q8_0", metadata });
    for (const dtype of [undefined, "f32", "f16"] as const) {
      const out = `${scratch}/${dtype}`;
      const report = await convert(await planConversion({ model: path, out, dtype }), {
        verify: true,
      });
      assertEquals(report.backboneSha256, await backboneHash(await openCheckpoint(out)));
      const { config } = await openCheckpoint(out);
      assertEquals(config.dtype, dtype ?? "bf16");
      assertEquals(config.eosTokenIds, [490, 492]);
      const tokenizer = await openTokenizer(out);
      assertEquals(tokenizer.chatTemplate, "{{ messages[0].content }}");
      const difference = maxDifference(await logits(out), await logits(path));
      assert(dtype === "f32" ? difference === 0 : difference < 0.5);
    }
  }));

Deno.test("the end of a text in Llama 3 ends an answer, beside the eos of its file", () =>
  withModel("llama", async ({ folder, path }) => {
    const file = `${folder}/tokenizer.json`, text = await Deno.readTextFile(file);
    await Deno.writeTextFile(file, text.replaceAll("<|repo_name|>", "<|end_of_text|>"));
    await writeGguf(path, folder);
    // The 21st of the added tokens, of which the first has id 490.
    assertEquals((await openCheckpoint(path)).config.eosTokenIds, [490, 492, 510]);
  }));

Deno.test("shards are one model, and are refused in part", () =>
  withModel("qwen3", async ({ scratch, folder }) => {
    const { metadata, tensors } = await ggufOf(folder);
    const half = Math.floor(tensors.length / 2);
    const name = (no: number) => `${scratch}/m-0000${no + 1}-of-00002.gguf`;
    const write = (no: number, part: readonly GgufTensor[], count = tensors.length) => {
      const split: GgufContent["metadata"] = {
        "split.no": ["u16", no],
        "split.count": ["u16", 2],
        "split.tensors.count": ["i32", count],
      };
      const content = { metadata: no === 0 ? { ...metadata, ...split } : split, tensors: part };
      Deno.writeFileSync(name(no), ggufBytes(content));
    };
    write(0, tensors.slice(0, half));
    write(1, tensors.slice(half));
    assert(maxDifference(await logits(name(0)), await logits(folder)) < 1e-6);
    assertStringIncludes(await refusal(name(1)), "is not the first of its 2 files");
    write(1, tensors.slice(half - 1));
    assertStringIncludes(await refusal(name(0)), "again");
    write(1, tensors.slice(half + 1));
    assertStringIncludes(await refusal(name(0)), "expected 24");
    Deno.renameSync(name(1), `${name(0)}.moved.gguf`);
    assertStringIncludes(await refusal(name(0)), "is incomplete: 1 of its 2 files is missing");
    assertStringIncludes(await refusal(`${name(0)}.moved.gguf`), "its name does not say which");
    write(1, tensors.slice(half));
    for (const no of [0, 1]) Deno.renameSync(name(no), name(no).replace(/gguf$/, "GGUF"));
    await openCheckpoint(name(0).replace(/gguf$/, "GGUF"));
  }));

async function refusal(path: string): Promise<string> {
  const error = await userError(async () => {
    await openCheckpoint(path);
    await openTokenizer(path);
  });
  assert(error instanceof DataError, String(error));
  return error.message;
}

Deno.test("the factors of Llama 3.1 become its rope_scaling, others are refused", () =>
  withModel("llama", async ({ folder, path }) => {
    const content = await ggufOf(folder);
    const plain = { headDim: 16, ropeTheta: 10000 };
    const write = (factors: number[]) => {
      const factor = tensorOf("rope_freqs.weight", [8], Float32Array.from(factors));
      Deno.writeFileSync(path, ggufBytes({ ...content, tensors: [factor, ...content.tensors] }));
    };
    for (const factor of [8, 32]) {
      const ropeScaling = {
        kind: "llama3",
        factor,
        lowFrequencyFactor: 1,
        highFrequencyFactor: 4,
        originalContext: 8192,
      } as const;
      const { frequencies } = ropeFrequencies({ ...plain, ropeScaling });
      write(ropeFrequencies(plain).frequencies.map((f, i) => f / frequencies[i]!));
      assertEquals((await openCheckpoint(path)).config.ropeScaling, ropeScaling);
    }
    write(Array(8).fill(1));
    assertEquals((await openCheckpoint(path)).config.ropeScaling, undefined);
    write([1, 1, 1, 1, 2, 2, 3, 5]);
    assertStringIncludes(await refusal(path), "not those of Llama 3");
  }));

Deno.test("YaRN is read from its keys, linear scaling is refused by name", () =>
  withModel("qwen2", async ({ folder, path }) => {
    const write = (type: string, others: Record<string, Entry> = {}) => {
      const metadata: Record<string, Entry> = {
        ...others,
        "qwen2.rope.scaling.type": ["string", type],
        "qwen2.rope.scaling.factor": ["f32", 4],
        "qwen2.rope.scaling.original_context_length": ["u32", 256],
      };
      return writeGguf(path, folder, { metadata });
    };
    await write("yarn");
    const { ropeScaling, maxPositionEmbeddings } = (await openCheckpoint(path)).config;
    assertEquals([ropeScaling?.kind, maxPositionEmbeddings], ["yarn", 1024]);
    await write("yarn", {
      "qwen2.rope.scaling.yarn_beta_fast": ["f32", 16],
      "qwen2.rope.scaling.yarn_beta_slow": ["f32", 2],
      "qwen2.rope.scaling.yarn_ext_factor": ["f32", 1],
    });
    const { config } = await openCheckpoint(path);
    assertEquals(config.ropeScaling, { ...ropeScaling!, betaFast: 16, betaSlow: 2 });
    for (const part of ["attn_factor", "yarn_attn_factor", "yarn_ext_factor"]) {
      await write("yarn", { [`qwen2.rope.scaling.${part}`]: ["f32", 1.5] });
      assertStringIncludes(await refusal(path), part);
    }
    await write("linear");
    assertStringIncludes(await refusal(path), "linear");
  }));

Deno.test("what is not supported is refused by name", () =>
  withModel("llama", async ({ folder, path }) => {
    const cases: [Record<string, Entry | undefined>, string][] = [
      [
        { "general.architecture": ["string", "gemma3"] },
        '"gemma3", expected llama, qwen2 or qwen3',
      ],
      [{ "general.type": ["string", "adapter"] }, 'general.type is "adapter"'],
      [{ "llama.expert_count": ["u32", 8] }, "mixture-of-experts models"],
      [{ "llama.attention.sliding_window": ["u32", 64] }, "sliding-window"],
      [{ "llama.logit_scale": ["f32", 0.5] }, "a scale of logits"],
      [{ "llama.attention.value_length": ["u32", 8] }, "the head size, 16"],
      [{ "llama.rope.dimension_count": ["u32", 8] }, "rope.dimension_count"],
      [{ "llama.block_count": undefined }, "lacks llama.block_count"],
      [{ "llama.block_count": ["string", "2"] }, "llama.block_count"],
      [{ "llama.feed_forward_length": ["i32s", [96, 96]] }, "llama.feed_forward_length"],
      [{ "llama.embedding_length": ["u32", 32] }, "has shape"],
      [{ "tokenizer.ggml.model": ["string", "llama"] }, 'kind "llama", expected "gpt2"'],
      [{ "tokenizer.ggml.pre": ["string", "default"] }, '"default", expected one of'],
      [{ "tokenizer.ggml.pre": undefined }, "expected one of"],
      [{ "tokenizer.ggml.tokens": undefined }, "lacks tokenizer.ggml.tokens"],
      [{ "general.alignment": ["u32", 24] }, "a power of two"],
    ];
    for (const [metadata, message] of cases) {
      await writeGguf(path, folder, { metadata });
      assertStringIncludes(await refusal(path), message);
    }
    const content = await ggufOf(folder);
    const [first, ...others] = content.tensors as [GgufTensor, ...GgufTensor[]];
    const tensors: [GgufTensor[], string][] = [
      [[...content.tensors, { ...first, name: "blk.0.ffn_gate_inp.weight" }], "ffn_gate_inp"],
      [[first, ...content.tensors], "twice"],
      [others, "has no tensor token_embd.weight"],
      [content.tensors.slice(0, -1), "lacks 1 of"],
      ...[[16, "IQ2_XXS"], [15, "Q8_K"], [39, "MXFP4"], [4, "removed"], [99, "newer"]].map((
        [type, name],
      ): [GgufTensor[], string] => [[{ ...first, type: type as number }, ...others], `${name}`]),
      [[{ ...first, type: 12 }, ...others], "no multiple of a Q4_K block"],
      [[{ ...first, shape: [1, 1, 1, 1, 1] }, ...others], "5 axes"],
      [[{ ...first, shape: [0, 64] }, ...others], "of shape"],
      [[{ ...first, shape: [1024, 64] }, ...others], "in the same bytes"],
    ];
    for (const [changed, message] of tensors) {
      await Deno.writeFile(path, ggufBytes({ ...content, tensors: changed }));
      assertStringIncludes(await refusal(path), message);
    }
    const bytes = ggufBytes(content);
    const heads: [(view: DataView) => void, string][] = [
      [(view) => view.setUint32(4, 1, true), "GGUF version 1"],
      [(view) => view.setUint32(4, 4, true), "GGUF version 4"],
      [(view) => view.setUint32(4, 3), "big-endian"],
      [(view) => view.setUint32(0, 0x46554747), "big-endian"],
      [(view) => view.setUint8(0, 1), "not a GGUF file"],
      [(view) => view.setBigInt64(8, -1n, true), "in its head"],
      [(view) => view.setBigInt64(16, 1n << 40n, true), "metadata"],
    ];
    for (const [edit, message] of heads) {
      const copy = bytes.slice();
      edit(new DataView(copy.buffer));
      await Deno.writeFile(path, copy);
      assertStringIncludes(await refusal(path), message);
    }
    await Deno.writeFile(path, bytes.subarray(0, 10));
    assertStringIncludes(await refusal(path), "only 10 bytes");
    await Deno.writeFile(path, bytes.subarray(0, bytes.length - 32));
    assertStringIncludes(await refusal(path), 'model.gguf" is truncated: ');
  }));

Deno.test("an alignment other than 32, and version 2, are read", () =>
  withModel("llama", async ({ folder, path }) => {
    const metadata: Record<string, Entry> = { "general.alignment": ["u32", 256] };
    const content = await ggufOf(folder, { metadata });
    await Deno.writeFile(path, ggufBytes(content, { version: 2, alignment: 256 }));
    assert(maxDifference(await logits(path), await logits(folder)) < 1e-6);
  }));

Deno.test("another weight gives another fingerprint", () =>
  withModel("llama", async ({ folder, path }) => {
    const content = await ggufOf(folder, { type: "Q8_0" });
    await Deno.writeFile(path, ggufBytes(content));
    const before = modelFingerprint(await openCheckpoint(path));
    content.tensors.at(-1)!.data[0]! ^= 1;
    await Deno.writeFile(path, ggufBytes(content));
    assertNotEquals(modelFingerprint(await openCheckpoint(path)), before);
  }));
