/** The cache of quantized weights: what is kept, what is made again, and what goes first. */
import { assertEquals } from "@std/assert";
import { openCheckpoint, weightsOf } from "../../../core/checkpoint/open.ts";
import {
  cacheEntries,
  clearCache,
  openFromCache,
} from "../../../core/checkpoint/quantized_cache.ts";
import type { QuantizedFormat } from "../../../core/quant/codes.ts";
import { copyModel, withScratch } from "./testing.ts";

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
    await open(Q4, total); // smaller than any other, so that one makes room for it
    const left = (await cacheEntries(cache)).map(({ path }) => `${path}/model.safetensors`);
    assertEquals(paths.map((path) => left.includes(path)), [false, true, true]);
    assertEquals(await open({ kind: "q8", block: 256 }, 1000), undefined, "larger than the cache");
    assertEquals((await clearCache(cache)).length, 3);
    assertEquals(await cacheEntries(cache), []);
  }));
