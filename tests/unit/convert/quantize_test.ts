/** Quantized checkpoints: what is written, and what is refused when it is read. */
import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { Buffer } from "node:buffer";
import { modelFingerprint } from "../../../core/checkpoint/fingerprint.ts";
import { openCheckpoint, weightsOf } from "../../../core/checkpoint/open.ts";
import { planQuantization, quantizeCheckpoint } from "../../../core/convert/quantize.ts";
import { fromF32, type WeightType } from "../../../core/base/dtype.ts";
import { readTensor } from "../../../core/checkpoint/read.ts";
import { DataError, NumericalError } from "../../../core/base/errors.ts";
import { packing, quantize, type QuantizedFormat } from "../../../core/quant/codes.ts";
import { RandomStream } from "../../../core/base/random.ts";
import { writeAllSync } from "../../../core/base/write_all.ts";
import { linearSpecs } from "../../../core/model/parameters.ts";
import { readRange } from "../../../core/runtime/weights.ts";
import {
  copyModel,
  makeLargeModel,
  MODELS,
  userError,
  withScratch,
} from "../checkpoint/testing.ts";

const Q4 = { kind: "q4", block: 32 } as const;

/** Quantizes a small model, or a folder, into `out`. */
async function quantized(
  model: string,
  out: string,
  format: QuantizedFormat = Q4,
  maxShardSize?: number,
) {
  const source = model.includes("/") ? model : `${MODELS}/${model}`;
  const sharded = maxShardSize === undefined ? {} : { maxShardSize };
  return await quantizeCheckpoint(
    await planQuantization({ model: source, out, format, ...sharded }),
    { verify: true },
  );
}

/** Codes and scales that the quantizer gives. */
function expectedCodes(
  bytes: Uint8Array,
  dtype: WeightType,
  shape: readonly number[],
  format: QuantizedFormat,
) {
  const { rows, blocks, rowBytes } = packing(shape, format);
  const expected = {
    codes: new Uint8Array(rows * rowBytes),
    scales: new Float32Array(rows * blocks),
  };
  quantize(bytes, dtype, shape, format, expected);
  return [expected.codes, new Uint8Array(expected.scales.buffer)] as const;
}

function changeConfig(folder: string, change: Record<string, unknown>): void {
  const path = `${folder}/config.json`;
  const json = JSON.parse(Deno.readTextFileSync(path));
  json.quantization_config = { ...json.quantization_config, ...change };
  Deno.writeTextFileSync(path, JSON.stringify(json));
}

for (const name of ["qwen2-p2-tied-f32", "qwen2-p4-untied-f32", "qwen2-p1-untied-bf16"]) {
  Deno.test(`${name}: codes are those of the quantizer, the rest is kept`, () =>
    withScratch(async (folder) => {
      // A block of 256 is wider than the matrices, so their rows are padded.
      for (const kind of ["q8", "q4"] as const) {
        for (const block of [32, 256]) {
          const out = `${folder}/${kind}-${block}`;
          await quantized(name, out, { kind, block });
          const source = await openCheckpoint(`${MODELS}/${name}`);
          const opened = await openCheckpoint(out, { quantized: true });
          assertEquals(opened.config, source.config);
          assertEquals(opened.extraTensors, []);
          assertEquals(opened.quantization!.format, { kind, block });
          const weights = weightsOf(opened);
          assertEquals([...weights.keys()].sort(), [...source.tensors.keys()].sort());
          const matrices = new Set(linearSpecs(source.config).map((spec) => spec.name));
          for (const [tensor, stored] of source.tensors) {
            const weight = weights.get(tensor)!;
            assertEquals([weight.shape, "codes" in weight], [stored.shape, matrices.has(tensor)]);
            if ("codes" in weight) {
              const { dtype, shape } = stored, bytes = fromF32(await readTensor(stored), dtype);
              const expected = expectedCodes(bytes, dtype, shape, { kind, block });
              assertEquals(
                [readRange(weight.codes), readRange(weight.scales)],
                [...expected],
                tensor,
              );
              assertEquals(weight.scales.offset % 4, 0, "scales can be mapped");
              if (tensor !== "model.embed_tokens.weight") continue;
            }
            const kept = opened.tensors.get(tensor)!;
            assertEquals(kept.dtype, /embed_tokens/.test(tensor) ? stored.dtype : "f32");
            assertEquals(await readTensor(kept), await readTensor(stored), tensor);
          }
        }
      }
    }));
}

Deno.test("shards hold the same bytes, and formats have fingerprints of their own", () =>
  withScratch(async (folder) => {
    const one = await quantized("qwen2-p2-tied-f32", `${folder}/one`);
    const many = await quantized("qwen2-p2-tied-f32", `${folder}/many`, Q4, 20_000);
    assert(many.files.length > 3, many.files.join());
    assertEquals(many.backboneSha256, one.backboneSha256);
    const open = (name: string) => openCheckpoint(`${folder}/${name}`, { quantized: true });
    const [a, b] = [await open("one"), await open("many")];
    assertEquals(b.quantization!.weightsSha256, a.quantization!.weightsSha256);
    assertEquals(modelFingerprint(b), modelFingerprint(a));
    await quantized("qwen2-p2-tied-f32", `${folder}/q8`, { kind: "q8", block: 32 });
    const source = await openCheckpoint(`${MODELS}/qwen2-p2-tied-f32`);
    const prints = [a, await open("q8"), source].map(modelFingerprint);
    assertEquals(new Set(prints).size, 3);
  }));

Deno.test("damaged folders: truncated, changed, of another version or another kind", () =>
  withScratch(async (folder) => {
    const out = `${folder}/q4`;
    const weights = `${out}/model.safetensors`;
    const damage: readonly (readonly [RegExp, () => void])[] = [
      [/is truncated: it ends at byte \d+, and the file has \d+/, () => {
        Deno.truncateSync(weights, Deno.statSync(weights).size - 100);
      }],
      [/has quantized weights of version 2, expected 1/, () => changeConfig(out, { version: 2 })],
      [/bits in/, () => changeConfig(out, { bits: 3 })],
      [/must be a power of two/, () => changeConfig(out, { block_size: 48 })],
      [/must be 64 hexadecimal digits/, () => changeConfig(out, { source_sha256: "ab" })],
      [
        /tensor \S+codes in .* is U8 \[\d+,2,16\], expected U8 \[\d+,2,32\]/,
        () => changeConfig(out, { bits: 8 }),
      ],
      [/quantized weights are not supported/, () => changeConfig(out, { quant_method: "awq" })],
      [/lacks 30 of \d+ tensors of quantized weights: /, () => {
        Deno.copyFileSync(`${MODELS}/qwen2-p1-tied-f32/model.safetensors`, weights);
      }],
    ];
    for (const [expected, apply] of damage) {
      await quantized("qwen2-p1-tied-f32", out);
      apply();
      const error = await userError(() => openCheckpoint(out, { quantized: true }));
      assert(error instanceof DataError);
      assertMatch(error.message, expected);
      await Deno.remove(out, { recursive: true });
    }
  }));

Deno.test("weights that are not finite are refused by name, and nothing is left", () =>
  withScratch(async (folder) => {
    copyModel("qwen2-p2-tied-f32", `${folder}/nan`);
    const { tensors } = await openCheckpoint(`${folder}/nan`);
    for (const name of ["model.layers.1.mlp.up_proj.weight", "model.aggregate_layer.0.weight"]) {
      const path = `${folder}/nan/model.safetensors`;
      const clean = Deno.readFileSync(path);
      const bytes = clean.slice();
      new DataView(bytes.buffer).setFloat32(tensors.get(name)!.offset + 40, NaN, true);
      Deno.writeFileSync(path, bytes);
      const error = await userError(() => quantized(`${folder}/nan`, `${folder}/out`));
      assert(error instanceof NumericalError);
      assertStringIncludes(error.message, `tensor ${name} `);
      assertEquals([...Deno.readDirSync(folder)].map((entry) => entry.name), ["nan"]);
      Deno.writeFileSync(path, clean);
    }
  }));

Deno.test("threads give a large model the codes of one thread, and their errors are ours", () =>
  withScratch(async (folder) => {
    const model = `${folder}/large`, weights = `${model}/model.safetensors`;
    makeLargeModel(model, 140 << 20);
    const table = (await openCheckpoint(model)).tensors.get("model.embed_tokens.weight")!;
    const stream = new RandomStream(1);
    const random = new Float32Array(1 << 20).map(() => stream.uniform() - 0.5);
    const write = (bytes: Uint8Array, at: number) => {
      using file = Deno.openSync(weights, { write: true });
      file.seekSync(table.offset + at, Deno.SeekMode.Start);
      writeAllSync(file, bytes);
    };
    for (const at of [0, 64 << 20, 112 << 20]) write(new Uint8Array(random.buffer), at);
    await quantized(model, `${folder}/q4`);
    const opened = await openCheckpoint(`${folder}/q4`, { quantized: true });
    const { codes, scales } = opened.quantization!.matrices.get(table.name)!;
    const source = readRange({ ...table, path: weights });
    const expected = expectedCodes(source, "f32", table.shape, Q4);
    assertEquals(Buffer.compare(readRange(codes), expected[0]), 0, "codes");
    assertEquals(Buffer.compare(readRange(scales), expected[1]), 0, "scales");

    write(new Uint8Array(4).fill(0xff), 100 << 20);
    const error = await userError(() => quantized(model, `${folder}/nan`));
    assert(error instanceof NumericalError);
    assertStringIncludes(error.message, `tensor ${table.name} `);
    assertStringIncludes(error.message, `at index ${(100 << 20) / 4} `);
    assertEquals([...Deno.readDirSync(folder)].map(({ name }) => name).sort(), ["large", "q4"]);
  }));
