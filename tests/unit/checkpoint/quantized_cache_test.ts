/** The cache of quantized weights: what is kept, what is made again, and what goes first. */
import { assertEquals } from "@std/assert";
import { openCheckpoint, weightsOf } from "../../../core/checkpoint/open.ts";
import {
  cacheEntries,
  clearCache,
  openFromCache,
} from "../../../core/checkpoint/quantized_cache.ts";
import {
  planQuantization,
  quantizeCheckpoint,
} from "../../../core/checkpoint/quantize_checkpoint.ts";
import { linearSpecs } from "../../../core/model/parameters.ts";
import { copyModel, withScratch } from "./testing.ts";

const Q4 = { kind: "q4", block: 32 } as const;
const MODEL = "qwen2-p2-tied-f32";

/** A cache that takes small models, and how often it made an entry. */
function cacheIn(folder: string, limitBytes = Infinity) {
  const made: number[] = [];
  const onMake = (bytes: number) => void made.push(bytes);
  return { made, cache: { folder: `${folder}/weights`, limitBytes, leastBytes: 0, onMake } };
}

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

Deno.test("kept codes are those of convert --quantize, and are made once", () =>
  withScratch(async (folder) => {
    const model = `${folder}/model`;
    copyModel(MODEL, model);
    const { made, cache } = cacheIn(folder);
    const first = await openFromCache(await openCheckpoint(model), Q4, cache);
    const again = await openFromCache(await openCheckpoint(model), Q4, cache);
    assertEquals(made.length, 1);
    assertEquals(again, first);
    const out = `${folder}/q4`;
    await quantizeCheckpoint(await planQuantization({ model, out, format: Q4 }));
    const written = await openCheckpoint(out, { quantized: true });
    const codes = codesOf(weightsOf(first!));
    assertEquals(Object.keys(codes).length, 2 * linearSpecs(written.config).length);
    assertEquals(codes, codesOf(weightsOf(written)));
    assertEquals(first!.config, written.config);
  }));

Deno.test("another scheme and a changed source have entries of their own", () =>
  withScratch(async (folder) => {
    const model = `${folder}/model`;
    copyModel(MODEL, model);
    const { made, cache } = cacheIn(folder);
    const open = async (format: typeof Q4 | { kind: "q8"; block: number }) =>
      (await openFromCache(await openCheckpoint(model), format, cache))!.quantization!;
    await open(Q4);
    assertEquals((await open({ kind: "q8", block: 32 })).format.kind, "q8");
    assertEquals((await open({ kind: "q8", block: 64 })).format.block, 64);
    const path = `${model}/model.safetensors`;
    const bytes = Deno.readFileSync(path);
    bytes[bytes.length - 2]! ^= 1; // the last weight
    Deno.writeFileSync(path, bytes);
    await Deno.utime(path, new Date(), new Date(Date.now() + 5000));
    await open(Q4);
    assertEquals(made.length, 4);
  }));

Deno.test("a damaged entry is made again", () =>
  withScratch(async (folder) => {
    const model = `${folder}/model`;
    copyModel(MODEL, model);
    const { made, cache } = cacheIn(folder);
    const open = async () => (await openFromCache(await openCheckpoint(model), Q4, cache))!;
    const codes = codesOf(weightsOf(await open()));
    const path = (await cacheEntries(cache.folder))[0]!.path;
    const weights = `${path}/model.safetensors`, config = `${path}/config.json`;
    const size = Deno.statSync(weights).size;
    const damages: (() => void)[] = [
      () => Deno.truncateSync(weights, size - 1),
      () => Deno.truncateSync(weights, 100),
      () => Deno.removeSync(weights),
      () => Deno.truncateSync(config, 20),
      () => Deno.writeTextFileSync(config, "{}"),
      () =>
        Deno.writeTextFileSync(
          config,
          Deno.readTextFileSync(config).replace('"version": 1', '"version": 0'),
        ),
    ];
    for (const [i, damage] of damages.entries()) {
      damage();
      assertEquals(codesOf(weightsOf(await open())), codes);
      assertEquals(made.length, i + 2, `damage ${i}`);
    }
  }));

Deno.test("the entries not used for longest go first, and the cache can be cleared", () =>
  withScratch(async (folder) => {
    const model = `${folder}/model`;
    copyModel(MODEL, model);
    const { cache } = cacheIn(folder);
    const open = async (block: number, limitBytes = Infinity, kind: "q8" | "q4" = "q8") =>
      await openFromCache(await openCheckpoint(model), { kind, block }, { ...cache, limitBytes });
    const pathOf = async (block: number) =>
      [...(await open(block))!.quantization!.matrices.values()][0]!.codes.path;
    const paths = [await pathOf(16), await pathOf(32), await pathOf(64)];
    const entries = await cacheEntries(cache.folder);
    const old = (path: string, seconds: number) => {
      const config = `${path.slice(0, path.lastIndexOf("/"))}/config.json`;
      const at = new Date(Date.now() - seconds * 1000);
      Deno.utimeSync(config, at, at);
    };
    old(paths[0]!, 30);
    old(paths[1]!, 60);
    await pathOf(32); // used again
    const total = entries.reduce((sum, { bytes }) => sum + bytes, 0);
    await open(32, total, "q4"); // smaller than any other, so that one makes room for it
    const left = (await cacheEntries(cache.folder)).map(({ path }) => `${path}/model.safetensors`);
    assertEquals(paths.map((path) => left.includes(path)), [false, true, true]);
    assertEquals(await open(256, 1000), undefined, "larger than the cache");
    assertEquals((await clearCache(cache.folder)).length, 3);
    assertEquals(await cacheEntries(cache.folder), []);
  }));
