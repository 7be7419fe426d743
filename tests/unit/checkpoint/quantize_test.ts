/** Quantized checkpoints: what is written, and what is refused when it is read. */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { Buffer } from "node:buffer";
import { checkAdapterBackbone } from "../../../core/checkpoint/backbone.ts";
import { convert } from "../../../core/checkpoint/convert.ts";
import { modelFingerprint } from "../../../core/checkpoint/fingerprint.ts";
import { openCheckpoint, weightsOf } from "../../../core/checkpoint/open.ts";
import { planConversion } from "../../../core/checkpoint/plan_conversion.ts";
import {
  checkQuantized,
  planQuantization,
  quantizeCheckpoint,
} from "../../../core/checkpoint/quantize_checkpoint.ts";
import { fromF32 } from "../../../core/base/dtype.ts";
import { readTensor } from "../../../core/checkpoint/read.ts";
import { DataError, NumericalError, UsageError } from "../../../core/base/errors.ts";
import { packing, quantize, type QuantizedFormat } from "../../../core/base/quantize.ts";
import { RandomStream } from "../../../core/base/random.ts";
import { writeAllSync } from "../../../core/base/write_all.ts";
import { linearSpecs } from "../../../core/model/parameters.ts";
import { copyModel, makeLargeModel, MODELS, userError, withScratch } from "./testing.ts";

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

function bytesAt({ path, offset, byteLength }: {
  path: string;
  offset: number;
  byteLength: number;
}): Uint8Array {
  return Deno.readFileSync(path).subarray(offset, offset + byteLength);
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
              const { rows, blocks, rowBytes } = packing(stored.shape, { kind, block });
              const expected = {
                codes: new Uint8Array(rows * rowBytes),
                scales: new Float32Array(rows * blocks),
              };
              const bytes = fromF32(await readTensor(stored), stored.dtype);
              quantize(bytes, stored.dtype, stored.shape, { kind, block }, expected);
              assertEquals(bytesAt(weight.codes), expected.codes, tensor);
              assertEquals(bytesAt(weight.scales), new Uint8Array(expected.scales.buffer), tensor);
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

Deno.test("openCheckpoint refuses quantized weights unless they are allowed", () =>
  withScratch(async (folder) => {
    const out = `${folder}/small`;
    await quantized("qwen2-p1-tied-f32", out);
    const plain = await userError(() => openCheckpoint(out, { purpose: "`train`" }));
    assert(plain instanceof DataError);
    assertEquals(plain.message, `\`train\` needs full-precision weights: "${out}" is q4`);
    const again = await userError(() => quantized(out, `${folder}/again`));
    assertEquals(again.message, `\`convert\` needs full-precision weights: "${out}" is q4`);
    const parallel = { model: out, out: `${folder}/p`, streams: 2 };
    assertStringIncludes(
      (await userError(() => planConversion(parallel))).message,
      "`convert` needs full-precision weights",
    );
    const inside = await userError(() => quantized("qwen2-p1-tied-f32", `${MODELS}`));
    assert(inside instanceof UsageError);
  }));

Deno.test("an adapter of the source fits the quantized folder, one of another model does not", () =>
  withScratch(async (folder) => {
    await quantized("qwen2-p1-tied-f32", `${folder}/q4`);
    // Another backbone of the same shape.
    copyModel("qwen2-p1-tied-f32", `${folder}/other`);
    const path = `${folder}/other/model.safetensors`;
    const bytes = Deno.readFileSync(path);
    bytes[bytes.length - 2]! ^= 1;
    Deno.writeFileSync(path, bytes);
    const adapters = { fits: `${MODELS}/qwen2-p1-tied-f32`, differs: `${folder}/other` };
    for (const [name, model] of Object.entries(adapters)) {
      const options = { model, out: `${folder}/${name}`, streams: 2, introducedOnly: true };
      await convert(await planConversion(options));
    }
    const open = (adapter: string) =>
      openCheckpoint(`${folder}/q4`, { adapter: `${folder}/${adapter}`, quantized: true });
    const opened = await open("fits");
    await checkAdapterBackbone(opened);
    assertEquals(opened.config.streams, 2);
    assert(!opened.quantization!.matrices.has("model.aggregate_layer.0.weight"));
    const differs = await open("differs");
    const { message } = await userError(() => checkAdapterBackbone(differs));
    assertStringIncludes(message, "was not made from");
  }));

Deno.test("an adapter over a quantized ParScale folder replaces its aggregator", () =>
  withScratch(async (folder) => {
    await quantized("qwen2-p2-tied-f32", `${folder}/q4`);
    const model = `${folder}/plain`;
    await convert(
      await planConversion({ model: `${MODELS}/qwen2-p2-tied-f32`, out: model, strip: true }),
    );
    const adapter = `${folder}/adapter`;
    await convert(await planConversion({ model, out: adapter, streams: 3, introducedOnly: true }));
    const opened = await openCheckpoint(`${folder}/q4`, { adapter, quantized: true });
    const aggregator = weightsOf(opened).get("model.aggregate_layer.0.weight")!;
    assert(!("codes" in aggregator));
    assertEquals(aggregator.shape, [64, 192]);
  }));

Deno.test("damaged folders: truncated, changed, of another version or another kind", () =>
  withScratch(async (folder) => {
    const out = `${folder}/q4`;
    const damage: Record<string, [string | RegExp, () => unknown]> = {
      truncated: [/is truncated: it ends at byte \d+, and the file has \d+/, () => {
        const path = `${out}/model.safetensors`;
        Deno.truncateSync(path, Deno.statSync(path).size - 100);
      }],
      version: ["has quantized weights of version 2, expected 1", () => {
        changeConfig(out, { version: 2 });
      }],
      bits: ["bits in", () => changeConfig(out, { bits: 3 })],
      block: ["must be a power of two", () => changeConfig(out, { block_size: 48 })],
      hash: ["must be 64 hexadecimal digits", () => changeConfig(out, { source_sha256: "ab" })],
      kind: [/tensor \S+codes in .* is U8 \[\d+,2,16\], expected U8 \[\d+,2,32\]/, () => {
        changeConfig(out, { bits: 8 });
      }],
      foreign: ["quantized weights are not supported", () => {
        changeConfig(out, { quant_method: "awq" });
      }],
      missing: [/lacks 30 of \d+ tensors of quantized weights: /, () => {
        Deno.copyFileSync(
          `${MODELS}/qwen2-p1-tied-f32/model.safetensors`,
          `${out}/model.safetensors`,
        );
      }],
    };
    for (const [name, [expected, apply]] of Object.entries(damage)) {
      await quantized("qwen2-p1-tied-f32", out);
      await apply();
      const error = await userError(() => openCheckpoint(out, { quantized: true }));
      assert(error instanceof DataError, name);
      if (typeof expected === "string") assertStringIncludes(error.message, expected, name);
      else assert(expected.test(error.message), `${name}: ${error.message}`);
      await Deno.remove(out, { recursive: true });
    }
  }));

Deno.test("a byte that was changed is found when the weights are checked", () =>
  withScratch(async (folder) => {
    await quantized("qwen2-p1-tied-f32", folder + "/q4");
    await checkQuantized(folder + "/q4");
    const path = `${folder}/q4/model.safetensors`;
    const bytes = Deno.readFileSync(path);
    bytes[bytes.length >> 1]! ^= 16;
    Deno.writeFileSync(path, bytes);
    const { message } = await userError(() => checkQuantized(folder + "/q4"));
    assertStringIncludes(message, "were changed: their SHA-256 is");
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
    const { rows, blocks, rowBytes } = packing(table.shape, Q4);
    const expected = {
      codes: new Uint8Array(rows * rowBytes),
      scales: new Float32Array(rows * blocks),
    };
    quantize(bytesAt({ ...table, path: weights }), "f32", table.shape, Q4, expected);
    assertEquals(Buffer.compare(bytesAt(codes), expected.codes), 0, "codes");
    assertEquals(
      Buffer.compare(bytesAt(scales), new Uint8Array(expected.scales.buffer)),
      0,
      "scales",
    );

    write(new Uint8Array(4).fill(0xff), 100 << 20);
    const error = await userError(() => quantized(model, `${folder}/nan`));
    assert(error instanceof NumericalError);
    assertStringIncludes(error.message, `tensor ${table.name} `);
    assertStringIncludes(error.message, `at index ${(100 << 20) / 4} `);
    assertEquals([...Deno.readDirSync(folder)].map(({ name }) => name).sort(), ["large", "q4"]);
  }));
