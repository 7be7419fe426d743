/** Quantized checkpoints on the cpu device give what `--quantize` gives at run time. */
import { assert, assertEquals } from "@std/assert";
import { type Checkpoint, openCheckpoint, weightsOf } from "../../../core/checkpoint/open.ts";
import { planQuantization, quantizeCheckpoint } from "../../../core/convert/quantize.ts";
import { Engine } from "../../../core/generate/engine.ts";
import type { QuantizedFormat } from "../../../core/quant/codes.ts";
import { prepare } from "../../../core/graph/rewrite.ts";
import { buildForward } from "../../../core/model/forward.ts";
import { linearSpecs, parameterSpecs } from "../../../core/model/parameters.ts";
import { CpuDevice } from "../../../core/runtime/onnxruntime/cpu.ts";
import { lower, lowers } from "../../../core/runtime/onnxruntime/lowering/lower.ts";
import { CPU_TARGET } from "../../../core/runtime/onnxruntime/lowering/rules.ts";
import { WeightContents } from "../../../core/runtime/onnxruntime/session/weight_contents.ts";
import { weightValues } from "../../../core/runtime/weights.ts";
import { withScratch } from "../../scratch.ts";
import { testIf } from "../devices.ts";
import { largest } from "../engines.ts";
import { GOLDEN_NAMES, modelFolder } from "../goldens.ts";
import { LINKS, linkSync } from "../../links.ts";

const test = testIf(LINKS);
const FORMATS: readonly QuantizedFormat[] = [{ kind: "q4", block: 32 }, { kind: "q8", block: 64 }];

async function quantize(model: string, out: string, format: QuantizedFormat): Promise<void> {
  await quantizeCheckpoint(await planQuantization({ model, out, format }));
}

/** Logits of a prompt, and of greedy tokens after it. */
async function outputs(checkpoint: Checkpoint, matrices: QuantizedFormat): Promise<number[]> {
  const device = new CpuDevice({ threads: 1, matrices });
  try {
    const engine = new Engine(device, checkpoint.config, weightsOf(checkpoint));
    const cache = engine.createCache(1, 16);
    const all: number[] = [];
    let ids = [3, 100, 7, 250, 11];
    let start = 0;
    for (let step = 0; step < 6; step++) {
      const input = { ids: [ids], start: [start], select: [ids.length - 1] };
      const logits = (await engine.forward(cache, input)).get("logits")!;
      all.push(...logits);
      start += ids.length;
      ids = [largest(logits)];
      all.push(ids[0]!);
    }
    return all;
  } finally {
    device.close();
  }
}

/** Compares a quantized folder with quantizing at run time. */
async function assertEqualLogits(folder: string, model: string) {
  const checkpoint = await openCheckpoint(model);
  for (const format of FORMATS) {
    const out = `${folder}/${format.kind}`;
    await quantize(model, out, format);
    const expected = await outputs(checkpoint, format);
    const opened = await openCheckpoint(out, { quantized: true });
    assertEquals(await outputs(opened, format), expected, format.kind);
    assertEquals(opened.config.streams, checkpoint.config.streams);
  }
}

const MODELS = ["qwen2-p1-tied-f32", "qwen2-p1-untied-bf16", "qwen2-p2-tied-f32"];

for (const name of [...MODELS, "qwen2-p4-untied-f32"]) {
  Deno.test(`${name}: a quantized folder gives the logits of quantizing at run time`, () =>
    withScratch((folder) => assertEqualLogits(folder, modelFolder(name))));
}

Deno.test("linearSpecs names the matrices that are lowered to codes", async () => {
  for (const name of [...GOLDEN_NAMES, "llama-p1-untied-bias-f32"]) {
    const { config, tensors } = await openCheckpoint(modelFolder(name));
    const variants = [config, { ...config, loraRank: 2, bitfit: true }];
    if (config.streams > 1) variants.push({ ...config, aggregator: "linear" as const });
    for (const variant of variants) {
      const sizes = { batch: 1, tokens: 2, capacity: 4, selected: 1 };
      const program = buildForward(variant, sizes, { head: "logits" });
      const given = parameterSpecs(variant).map(({ name, shape }) =>
        [name, tensors.get(name) ?? { dtype: "f32", shape, data: new Float32Array() }] as const
      );
      const { weights } = lower(prepare(program, (op) => lowers(op, CPU_TARGET)), {
        weights: new Map(given),
        matrices: { kind: "q4", block: 32 },
        target: CPU_TARGET,
      });
      const lowered = [...weights.values()].filter(({ form }) => form === "blocks");
      assertEquals(
        lowered.map(({ parameter }) => parameter).sort(),
        linearSpecs(variant).map((spec) => spec.name).sort(),
      );
    }
  }
});

async function testLinkedFolders(folder: string): Promise<void> {
  const [format] = FORMATS as [QuantizedFormat];
  const model = modelFolder("qwen2-p2-untied-bf16");
  const plan = await planQuantization({
    model,
    out: `${folder}/made`,
    format,
    maxShardSize: 30_000,
  });
  const { files } = await quantizeCheckpoint(plan);
  const expected = await outputs(await openCheckpoint(model), format);
  const open = (name: string) => openCheckpoint(`${folder}/${name}`, { quantized: true });
  for (const blobs of [["blobs"], ["blobs", "more"]]) {
    const links = `${folder}/links-${blobs.length}`;
    Deno.mkdirSync(links);
    files.forEach((file, i) => {
      const blob = `${folder}/${blobs[i % blobs.length]}-${blobs.length}`;
      Deno.mkdirSync(blob, { recursive: true });
      Deno.copyFileSync(`${folder}/made/${file}`, `${blob}/${i}.blob`);
      linkSync(`${blob}/${i}.blob`, `${links}/${file}`);
    });
    const opened = await open(`links-${blobs.length}`);
    const paths = [...opened.quantization!.matrices.values()].map(({ codes }) => codes.path);
    assertEquals(new Set(paths.map((path) => path.replace(/\/[^/]*$/, ""))).size, blobs.length);
    assertEquals(await outputs(opened, format), expected);
  }
}

test("a quantized folder of links, and one whose shards lie in two folders", () =>
  withScratch(testLinkedFolders));

Deno.test("parts of a quantized matrix for other devices: codes, scales in f32 and f16, values", () =>
  withScratch(async (folder) => {
    const [format] = FORMATS as [QuantizedFormat];
    const model = modelFolder("qwen2-p2-tied-f32");
    await quantize(model, `${folder}/q4`, format);
    const opened = await openCheckpoint(`${folder}/q4`, { quantized: true });
    const { tensors } = await openCheckpoint(model);
    const inFile = new WeightContents(weightsOf(opened), format);
    const made = new WeightContents(tensors, format);
    for (const { name: parameter, shape } of linearSpecs(opened.config)) {
      for (
        const [form, type] of [["blocks", "u8"], ["scales", "f32"], ["scales", "f16"]] as const
      ) {
        const use = { parameter, form, type, shape };
        assertEquals(inFile.bytes(use), made.bytes(use), `${parameter} ${form}`);
      }
      if (parameter === "model.embed_tokens.weight") continue;
      const values = weightValues(weightsOf(opened).get(parameter)!);
      const exact = weightValues(tensors.get(parameter)!);
      const largest = exact.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
      assert(values.every((value, i) => Math.abs(value - exact[i]!) <= largest / 8), parameter);
    }
  }));

Deno.test("a device closed while a session is made frees it, and says so", async () => {
  const { config, tensors } = await openCheckpoint(modelFolder("qwen2-p1-untied-bf16"));
  const device = new CpuDevice({ threads: 1 });
  const engine = new Engine(device, config, tensors);
  const cache = engine.createCache(1, 4);
  const pending = engine.forward(cache, { ids: [[1]], start: [0], select: [0] });
  while (device.sessionCount === 0) await Promise.resolve();
  device.close();
  const error = await pending.then(() => undefined, (error) => error);
  assert(/closed/.test(error?.message), String(error));
});
