/** The cache of quantized weights: what is kept, what is made again, and what goes first. */
import { assert, assertEquals, assertThrows } from "@std/assert";
import { EnvironmentError } from "../../../core/base/errors.ts";
import { writeBatch } from "../../../core/checkpoint/coded_file.ts";
import { codedIn, openCheckpoint, weightsOf } from "../../../core/checkpoint/open.ts";
import {
  cacheEntries,
  clearCache,
  openFromCache,
} from "../../../core/checkpoint/quantized_cache.ts";
import { Engine } from "../../../core/generate/engine.ts";
import type { ModelConfig } from "../../../core/model/config.ts";
import { matrixBytes, type QuantizedFormat, roomFor } from "../../../core/quant/codes.ts";
import type { QuantizedTensor } from "../../../core/quant/stored.ts";
import { EMBEDDING } from "../../../core/model/parameters.ts";
import { CpuDevice } from "../../../core/runtime/onnxruntime/cpu.ts";
import { quantizeWeight, readRange } from "../../../core/runtime/weights.ts";
import { writeGguf, writeTinyFolder } from "../../gguf_model.ts";
import { copyModel, MODELS, withScratch } from "./testing.ts";

const Q4 = { kind: "q4", block: 32 } as const;

interface Place {
  readonly model: string;
  readonly cache: string;
  /** Sizes of the entries made. */
  readonly made: readonly number[];
  /** Opens the model from a cache that takes small ones. */
  open(format: QuantizedFormat, limitBytes?: number): ReturnType<typeof openFromCache>;
}

const withCache = (work: (place: Place) => Promise<void>) =>
  withScratch(async (folder) => {
    const model = `${folder}/model`, cache = `${folder}/weights`, made: number[] = [];
    copyModel("qwen2-p2-tied-f32", model);
    const onMake = (bytes: number) => void made.push(bytes);
    const open = async (format: QuantizedFormat, limitBytes = Infinity) =>
      await openFromCache(await openCheckpoint(model), format, {
        folder: cache,
        limitBytes,
        leastBytes: 0,
        onMake,
      });
    await work({ model, cache, made, open });
  });

/** Log-probabilities of a few tokens. */
async function scored(weights: Weights, config: ModelConfig): Promise<ArrayLike<number>> {
  const device = new CpuDevice({ threads: 2, splitAbove: 64 });
  try {
    const engine = new Engine(device, config, weights);
    using cache = engine.createCache(1, 4);
    const input = { ids: [[1, 5, 9, 200]], start: [0], select: [0, 1, 2, 3] };
    return Float32Array.from((await engine.forward(cache, input)).get("logits")!);
  } finally {
    device.close();
  }
}

/** Bytes of weights in the memory plan of a step. */
function plannedBytes(weights: Weights, config: ModelConfig): number {
  const device = new CpuDevice({ threads: 2, splitAbove: 64 });
  const sizes = { batch: 1, tokens: 4, capacity: 32, selected: 4 };
  const plan = new Engine(device, config, weights).plan(sizes);
  device.close();
  return plan.sections.parameters;
}

Deno.test("codes of a GGUF file are kept in their own formats, and give the same logits", () =>
  withScratch(async (folder) => {
    const path = `${folder}/model.gguf`, cache = `${folder}/weights`, made: number[] = [];
    await writeTinyFolder(`${folder}/wide`, "qwen2", { hidden_size: 256, head_dim: 64 });
    const type = (name: string) =>
      /token_embd/.test(name) ? "Q6_K" : /ffn_up|attn_v/.test(name) ? "Q4_K" : "Q8_0";
    await writeGguf(path, `${folder}/wide`, { type });
    const file = await openCheckpoint(path);
    const open = () => {
      const onMake = (bytes: number) => void made.push(bytes);
      const options = { folder: cache, limitBytes: Infinity, leastBytes: 0, onMake };
      return openFromCache(file, undefined, options);
    };
    const options = { keepsCodes: true }, expected = weightsOf(file, options);
    const logits = await scored(expected, file.config);
    for (let start = 0; start < 2; start++) {
      const weights = weightsOf((await open())!, options);
      for (const { name, shape, format } of codedIn(file)) {
        const weight = weights.get(name) as QuantizedTensor;
        assertEquals(weight.format, format, name);
        const own = roomFor(shape, format);
        quantizeWeight(file.tensors.get(name)!, format, own, undefined);
        assertEquals(readRange(weight.codes), own.codes, name);
        assertEquals(readRange(weight.scales), new Uint8Array(own.scales.buffer), name);
        const offsets = own.offsets && new Uint8Array(own.offsets.buffer);
        assertEquals(weight.offsets && readRange(weight.offsets), offsets, name);
      }
      assertEquals(await scored(weights, file.config), logits);
      // Of a table that is mapped the rows that are read alone take memory.
      const { shape } = file.tensors.get(EMBEDDING)!;
      const table = matrixBytes(shape, { kind: "q8", block: 16 });
      const saved = plannedBytes(expected, file.config) - plannedBytes(weights, file.config);
      assert(saved >= table, `${saved} bytes less, of a table of ${table}`);
    }
    assertEquals(made.length, 1);
    await writeGguf(path, `${folder}/wide`);
    assertEquals(
      await openFromCache(await openCheckpoint(path), undefined, {
        folder: cache,
        limitBytes: Infinity,
      }),
      undefined,
      "a file without codes",
    );
  }));

Deno.test({
  name:
    "rows that the disk has no room for are an error of the environment, which a command survives",
  ignore: Deno.build.os !== "linux",
  fn: async () => {
    const { tensors } = await openCheckpoint(`${MODELS}/qwen2-p2-tied-f32`);
    const batch = { tensor: tensors.get(EMBEDDING)!, format: Q4, first: 0, count: 8 };
    const places = [["codes", 100], ["scales", 0]] as const;
    assertThrows(() => writeBatch({ ...batch, path: "/dev/full", places }), EnvironmentError);
  },
});

type Weights = ReturnType<typeof weightsOf>;

/** Bytes of codes and scales by name. */
function codesOf(weights: Weights): Record<string, number[]> {
  return Object.fromEntries(
    [...weights].flatMap(([name, weight]) =>
      "codes" in weight
        ? [weight.codes, weight.scales].map(({ path, offset, byteLength }, i) => [
          `${name} ${i}`,
          [...Deno.readFileSync(path).subarray(offset, offset + byteLength)],
        ])
        : []
    ),
  );
}

Deno.test("another scheme and a changed source have entries of their own", () =>
  withCache(async ({ model, made, open }) => {
    for (const format of [Q4, { kind: "q8", block: 32 }, { kind: "q8", block: 64 }] as const) {
      assertEquals((await open(format))!.quantization!.format, format);
    }
    const path = `${model}/model.safetensors`;
    const bytes = Deno.readFileSync(path);
    bytes[bytes.length - 2]! ^= 1; // the last weight
    Deno.writeFileSync(path, bytes);
    await Deno.utime(path, new Date(), new Date(Date.now() + 5000));
    await open(Q4);
    assertEquals(made.length, 4);
  }));

Deno.test("a damaged entry is made again", () =>
  withCache(async ({ cache, made, open }) => {
    const codes = codesOf(weightsOf((await open(Q4))!));
    const path = (await cacheEntries(cache))[0]!.path;
    const weights = `${path}/model.safetensors`, config = `${path}/config.json`;
    const size = Deno.statSync(weights).size;
    const damages: (() => void)[] = [
      () => Deno.truncateSync(weights, size - 1),
      () => Deno.truncateSync(weights, 100),
      () => Deno.removeSync(weights),
      () => Deno.truncateSync(config, 20),
      () => Deno.writeTextFileSync(config, "{}"),
      () => {
        const text = Deno.readTextFileSync(config).replace('"version": 1', '"version": 0');
        Deno.writeTextFileSync(config, text);
      },
    ];
    for (const [i, damage] of damages.entries()) {
      damage();
      assertEquals(codesOf(weightsOf((await open(Q4))!)), codes);
      assertEquals(made.length, i + 2, `damage ${i}`);
    }
  }));

Deno.test("the entries not used for longest go first, and the cache can be cleared", () =>
  withCache(async ({ cache, open }) => {
    const pathOf = async (block: number) =>
      [...(await open({ kind: "q8", block }))!.quantization!.matrices.values()][0]!.codes.path;
    const paths = [await pathOf(16), await pathOf(32), await pathOf(64)];
    const entries = await cacheEntries(cache);
    const old = (path: string, seconds: number) => {
      const config = `${path.slice(0, path.lastIndexOf("/"))}/config.json`;
      const at = new Date(Date.now() - seconds * 1000);
      Deno.utimeSync(config, at, at);
    };
    old(paths[0]!, 30);
    old(paths[1]!, 60);
    await pathOf(32); // used again
    const total = entries.reduce((sum, { bytes }) => sum + bytes, 0);
    // An entry that another process is making counts, and stays.
    const own = `${cache}/.${"0".repeat(64)}.partial-${Deno.ppid}-00000000`;
    Deno.mkdirSync(own);
    Deno.writeFileSync(`${own}/model.safetensors`, new Uint8Array(1000));
    await open(Q4, total); // smaller than any other, so that one makes room for it
    Deno.removeSync(own, { recursive: true });
    const left = (await cacheEntries(cache)).map(({ path }) => `${path}/model.safetensors`);
    assertEquals(paths.map((path) => left.includes(path)), [false, true, true]);
    assertEquals(await open({ kind: "q8", block: 256 }, 1000), undefined, "larger than the cache");
    const bytes = (await cacheEntries(cache)).reduce((sum, { bytes }) => sum + bytes, 0);
    assertEquals(await clearCache(cache), bytes);
    assertEquals(await cacheEntries(cache), []);
  }));
