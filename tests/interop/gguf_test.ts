/**
 * GGUF against Python: blocks bit for bit with the package `gguf`, a converted folder in transformers.
 *
 *   PARSCALE_HF_PYTHON   a Python with torch, transformers and gguf
 *
 * Skipped where it is not given. `deno task test:interop` runs this file.
 */
import { fileURLToPath } from "node:url";
import { assert, assertEquals } from "@std/assert";
import { BLOCKS, type BlockType, decodeBlocks } from "../../core/quant/blocks.ts";
import { openCheckpoint } from "../../core/checkpoint/open.ts";
import { Engine } from "../../core/generate/engine.ts";
import { ReferenceDevice } from "../../core/runtime/reference/device.ts";
import { openTokenizer } from "../../core/tokenizer/tokenizer.ts";
import { runParscale } from "../cli/run.ts";
import { withScratch } from "../scratch.ts";
import { type Entry, writeGguf, writeTinyFolder } from "../gguf_model.ts";
import { mixedText } from "../unit/tokenizer/testing.ts";

const python = Deno.env.get("PARSCALE_HF_PYTHON");
const path = (name: string) => fileURLToPath(new URL(name, import.meta.url));

const IDS = [[1, 5, 9, 20, 33, 7], [3, 2, 14, 60, 41, 8]];

async function run(...args: string[]): Promise<string> {
  const { code, stdout, stderr } = await new Deno.Command(python!, { args }).output();
  assertEquals(code, 0, new TextDecoder().decode(stderr).slice(-2000));
  return new TextDecoder().decode(stdout);
}

Deno.test({
  name: "1,000 random blocks of every type decode to the bits of the Python package",
  ignore: !python,
  fn: () =>
    withScratch(async (cwd) => {
      const recipe = path("../../fixtures/golden/recipes/gguf_blocks.py");
      await run(recipe, `${cwd}/blocks.json`, "1000");
      const golden = JSON.parse(await Deno.readTextFile(`${cwd}/blocks.json`));
      assertEquals(Object.keys(golden).length, 12);
      for (const type of Object.keys(golden) as BlockType[]) {
        const values = new Float32Array(1000 * BLOCKS[type].elements);
        decodeBlocks(type, Uint8Array.fromBase64(golden[type].blocks), values);
        const expected = new Uint32Array(Uint8Array.fromBase64(golden[type].values).buffer);
        const bits = new Uint32Array(values.buffer);
        assertEquals(bits.findIndex((value, i) => value !== expected[i]), -1, type);
      }
    }),
});

for (const family of ["llama", "qwen2", "qwen3"] as const) {
  Deno.test({
    name: `a folder made of a ${family} file gives equal logits and ids in transformers`,
    ignore: !python,
    fn: () =>
      withScratch(async (cwd) => {
        await writeTinyFolder(`${cwd}/folder`, family);
        const pre = { llama: "llama-bpe", qwen2: "qwen2", qwen3: "smollm" }[family];
        const metadata: Record<string, Entry> = { "tokenizer.ggml.pre": ["string", pre] };
        await writeGguf(`${cwd}/model.gguf`, `${cwd}/folder`, { type: "Q8_0", metadata });
        const converted = ["convert", "--model", "model.gguf", "--out", "out"];
        assertEquals((await runParscale(converted, { cwd })).code, 0);
        const texts = Array.from({ length: 1000 }, (_, seed) => mixedText(seed).toWellFormed());
        await Deno.writeTextFile(`${cwd}/texts.json`, JSON.stringify(texts));
        const script = path("gguf_folder.py");
        const found = JSON.parse(
          (await run(script, `${cwd}/out`, JSON.stringify(IDS), `${cwd}/texts.json`)).trim()
            .split("\n").at(-1)!,
        );
        const tokenizer = await openTokenizer(`${cwd}/model.gguf`);
        const ids = texts.map((text) => tokenizer.encode(text, { frame: false }));
        assertEquals(ids.findIndex((own, i) => `${own}` !== `${found.ids[i]}`), -1);
        const { config, tensors } = await openCheckpoint(`${cwd}/model.gguf`);
        const engine = new Engine(new ReferenceDevice("f64"), config, tensors);
        const T = IDS[0]!.length;
        const logits = (await engine.forward(engine.createCache(IDS.length, T), {
          ids: IDS,
          start: IDS.map(() => 0),
          select: Array.from({ length: IDS.length * T }, (_, i) => i),
        })).get("logits")!;
        const worst = Math.max(...Array.from(logits).map((x, i) => Math.abs(x - found.logits[i])));
        assert(worst < 5e-5, `logits differ by ${worst}`);
      }),
  });
}
