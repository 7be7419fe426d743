/** Protects the backbone's hash: what enters it, the worker for large models, adapters' records. */
import { assert, assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import {
  backboneHash,
  backboneTensors,
  checkAdapterBackbone,
  hashTensors,
  keptBackboneHash,
} from "../../../core/checkpoint/backbone.ts";
import { convert } from "../../../core/convert/convert.ts";
import { planConversion } from "../../../core/convert/plan.ts";
import { openCheckpoint } from "../../../core/checkpoint/open.ts";
import {
  copyModel,
  makeLargeModel,
  MODELS,
  readRaw,
  userError,
  withScratch,
  writeRaw,
} from "./testing.ts";

const LARGE = 80 << 20;

Deno.env.set("PARSCALE_CACHE", await Deno.makeTempDir({ prefix: "parscale-test-" }));
globalThis.addEventListener("unload", () => {
  Deno.removeSync(Deno.env.get("PARSCALE_CACHE")!, { recursive: true });
});

Deno.test("a worker hashes a large model as one thread would, and its errors are ours", () =>
  withScratch(async (folder) => {
    makeLargeModel(`${folder}/large`, LARGE);
    const checkpoint = await openCheckpoint(`${folder}/large`);
    assertEquals(await backboneHash(checkpoint), await hashTensors(backboneTensors(checkpoint)));

    const sizes: number[] = [];
    const kept = () => keptBackboneHash(checkpoint, (bytes) => sizes.push(bytes));
    assertEquals([await kept(), sizes], [await backboneHash(checkpoint), []]);
    {
      using file = Deno.openSync(`${folder}/large/model.safetensors`, { write: true });
      file.seekSync(-4, Deno.SeekMode.End);
      file.writeSync(new Uint8Array(4).fill(1));
    }
    const changed = await hashTensors(backboneTensors(checkpoint));
    assertEquals([await kept(), await kept()], [changed, changed]);
    assertEquals(sizes.length, 1);
    assert(sizes[0]! >= LARGE);

    const abort = new AbortController();
    const aborted = backboneHash(checkpoint, abort.signal);
    abort.abort();
    await assertRejects(() => aborted, DOMException);
    await assertRejects(() => backboneHash(checkpoint, abort.signal), DOMException);

    Deno.truncateSync(`${folder}/large/model.safetensors`, LARGE / 2);
    const error = await userError(() => backboneHash(checkpoint));
    assertEquals(error.kind, "data");
    assertStringIncludes(error.message, "is truncated: ");
    assertEquals(error.hints.length, 1);
    Deno.removeSync(`${folder}/large/model.safetensors`);
    assertEquals((await userError(() => backboneHash(checkpoint))).kind, "data");
  }));

Deno.test("a large conversion that fails leaves nothing, whichever thread saw it first", () =>
  withScratch(async (folder) => {
    const model = `${folder}/large`, out = `${folder}/out`;
    makeLargeModel(model, LARGE);
    const plan = await planConversion({ model, out, streams: 2 });
    const weights = `${model}/model.safetensors`;
    {
      using file = Deno.openSync(weights, { write: true });
      file.seekSync(plan.source.tensors.get("model.norm.weight")!.offset, Deno.SeekMode.Start);
      file.writeSync(new Uint8Array(4).fill(0xff));
    }
    assertEquals((await userError(() => convert(plan))).kind, "numerical");
    Deno.truncateSync(weights, LARGE / 2);
    assertEquals((await userError(() => convert(plan))).kind, "data");
    assertEquals([...Deno.readDirSync(folder)].map(({ name }) => name), ["large"]);
  }));

Deno.test("an adapter knows its backbone; it is only compared on request", () =>
  withScratch(async (folder) => {
    const adapter = `${folder}/adapter`, other = `${folder}/other`;
    const model = `${MODELS}/qwen2-p1-tied-f32`;
    await convert(await planConversion({ model, out: adapter, streams: 2, introducedOnly: true }));
    await checkAdapterBackbone(await openCheckpoint(model));
    await checkAdapterBackbone(await openCheckpoint(model, { adapter }));
    const deeper = `${MODELS}/qwen2-p1-untied-bf16`;
    const { message } = await userError(() => openCheckpoint(deeper, { adapter }));
    assertStringIncludes(message, "num_hidden_layers is 2, expected 3");

    copyModel("qwen2-p1-tied-f32", other);
    const { header, data } = readRaw(`${other}/model.safetensors`);
    data[header["model.norm.weight"].data_offsets[0]]! ^= 1;
    writeRaw(`${other}/model.safetensors`, header, data);

    const config = JSON.parse(Deno.readTextFileSync(`${adapter}/config.json`));
    const write = (value: unknown) =>
      Deno.writeTextFileSync(
        `${adapter}/config.json`,
        JSON.stringify({ ...config, parscale_backbone_sha256: value }),
      );
    write(undefined); // written before the record was introduced
    await checkAdapterBackbone(await openCheckpoint(other, { adapter }));
    write("abc");
    assertEquals((await userError(() => openCheckpoint(other, { adapter }))).kind, "data");
  }));
