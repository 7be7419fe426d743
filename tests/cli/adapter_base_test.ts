/** An adapter is a model wherever one is taken: it names its backbone, whose hash decides. */
import { assertEquals, assertStringIncludes } from "@std/assert";
import { openModel } from "../../mod.ts";
import { writeGguf } from "../gguf_model.ts";
import { withScratch } from "../scratch.ts";
import { copyModel, readRaw, writeRaw } from "../unit/checkpoint/testing.ts";
import { assertRefusals, jsonLines, PLAIN_MODEL, rowsOf, succeed } from "./models.ts";
import { TestServer } from "./serve_testing.ts";
import { runParscale } from "./run.ts";
import { ROWS, withWorkplace, type Workplace } from "./train_testing.ts";

const NAME = "base_model_name_or_path";
const ADAPTER = "--introduced-only --prefix-init normal";

/** A pair in a folder: `pair/base`, and `pair/p2` with two streams over it. */
async function makePair(cwd: string): Promise<void> {
  copyModel("qwen2-p1-tied-f32", `${cwd}/pair/base`);
  const line = `convert --model pair/base --streams 2 ${ADAPTER} --out pair/p2`;
  await succeed(line, { cwd });
}

const configOf = (folder: string) => JSON.parse(Deno.readTextFileSync(`${folder}/config.json`));

async function scores(cwd: string, model: string): Promise<unknown> {
  const stdin = jsonLines({ tokens: [1, 2, 3, 5, 8] }, { prompt: "a", continuation: " b" });
  return await rowsOf(`score --model ${model}`, { cwd, stdin });
}

Deno.test("every command takes an adapter as the model, with results as over its backbone", () =>
  withWorkplace(async (place) => {
    const { cwd } = place;
    await makePair(cwd);
    assertEquals(configOf(`${cwd}/pair/p2`)[NAME], "../base");
    const own = await scores(cwd, "pair/base --adapter pair/p2");
    assertEquals(await scores(cwd, "pair/p2"), own);
    place.write("gsm8k.jsonl", jsonLines({ question: "1 + 1", answer: "It is 2.\n#### 2" }));
    const tasks = "--tasks gsm8k --shots 0 --data gsm8k.jsonl --max-tokens 4";
    const lines = [
      "generate --model pair/p2 --prompt a --max-tokens 2",
      "inspect --model pair/p2 --check",
      "inspect --model pair/p2 --tokenize a",
      "cost --model pair/p2",
      `eval --model pair/p2 ${tasks} --out results`,
      `compare --model pair/base --parscale pair/p2 ${tasks} --latency-rows 1`,
      "visualize --model pair/p2 --text ab",
      "export --model pair/p2 --out onnx",
      "bench --model pair/p2 --context 4 --steps 1 --rounds 1",
      "convert --model pair/p2 --merge --out merged",
      `train --model pair/p2 --train-params introduced ${ROWS} --steps 2 --save-every 1 --out run`,
    ];
    for (const line of lines) await place.run(line);
    assertEquals(await scores(cwd, "merged"), own);
    using model = await openModel(`${cwd}/pair/p2`, { device: "cpu" });
    assertEquals(model.config.streams, 2);

    // So is each checkpoint of a run, which may be moved with its backbone.
    const checkpoint = "run/checkpoint-000001";
    assertEquals(place.config(checkpoint)[NAME], "../../pair/base");
    const over = await scores(cwd, `pair/base --adapter ${checkpoint}`);
    assertEquals(await scores(cwd, checkpoint), over);
    assertEquals(await scores(`${cwd}/pair`, `../${checkpoint}`), over);
    assertEquals(await scores(`${cwd}/${checkpoint}`, "."), over);
    await serves(place);
  }));

/** Further adapters lie over the same backbone in commands that take several. */
async function serves({ cwd }: Workplace): Promise<void> {
  await using server = await TestServer.start("--model pair/p2 --adapter other=run", {}, { cwd });
  const { data } = await (await fetch(`${server.url}/v1/models`)).json();
  const streams = data.map(({ id, parent }: Record<string, string>) => [id, parent]);
  assertEquals(streams, [["p2", null], ["other", "p2"]]);
}

Deno.test("a pair that is moved opens; an adapter alone and one of another backbone do not", () =>
  withScratch(async (cwd) => {
    await makePair(cwd);
    const own = await scores(cwd, "pair/p2");
    await Deno.mkdir(`${cwd}/deep/er`, { recursive: true });
    await Deno.rename(`${cwd}/pair`, `${cwd}/deep/er/moved`);
    assertEquals(await scores(cwd, "deep/er/moved/p2"), own);

    const base = `${cwd}/deep/er/moved/base`;
    await Deno.mkdir(`${cwd}/alone`);
    await Deno.rename(`${cwd}/deep/er/moved/p2`, `${cwd}/alone/p2`);
    const needs = 'error: cannot open the backbone of adapter "alone/p2": ';
    const flags = "hint: pass the backbone it was made from: --model BACKBONE --adapter alone/p2\n";
    const gone = `${needs}no such folder: "${await Deno.realPath(cwd)}/alone/base"\n`;
    await assertRefusals([
      ["generate --model alone/p2 --prompt a", 3, gone, flags],
      ["convert --model alone/p2 --merge --out no", 3, gone, flags],
      ["serve --model alone/p2", 3, gone, flags],
    ], { cwd });
    assertEquals(await scores(cwd, `${base} --adapter alone/p2`), own);

    // Quantized weights have the hash of what they were made from.
    await succeed(`convert --model ${base} --quantize q8 --out alone/base`, { cwd });
    assertEquals(await scores(cwd, "alone/p2"), await scores(cwd, "alone/base --adapter alone/p2"));
    await Deno.remove(`${cwd}/alone/base`, { recursive: true });

    // Another model of the same shape, whose last weight differs by one bit.
    copyModel("qwen2-p1-tied-f32", `${cwd}/alone/base`);
    const path = `${cwd}/alone/base/model.safetensors`;
    const { header, data } = readRaw(path);
    data[data.length - 4]! ^= 1;
    writeRaw(path, header, data);
    const { parscale_backbone_sha256: sha256 } = configOf(`${cwd}/alone/p2`);
    const other = 'error: adapter "alone/p2" was not made from "';
    for (const line of ["generate --prompt a", "inspect", "train --data no.jsonl --out no"]) {
      const { code, stderr } = await runParscale(`${line} --model alone/p2`, { cwd });
      assertEquals(code, 3, stderr);
      for (const words of [other, "/alone/base", `, expected ${sha256}\n`, flags]) {
        assertStringIncludes(stderr, words);
      }
    }

    // One of another shape.
    await Deno.remove(`${cwd}/alone/base`, { recursive: true });
    copyModel("qwen2-p1-untied-bf16", `${cwd}/alone/base`);
    const shape = `${needs}adapter "alone/p2" does not fit "`;
    await assertRefusals([["score --model alone/p2", 3, shape, flags]], { cwd });
  }));

Deno.test("an adapter that names no backbone, and one over another adapter, are refused", () =>
  withScratch(async (cwd) => {
    await makePair(cwd);
    const pair = await Deno.realPath(`${cwd}/pair`);
    const two = 'error: "pair/p2" is an adapter, over which `--adapter` cannot lay another\n';
    const hint = `hint: leave out one of them, or pass the backbone: --model ${pair}/base`;
    const line = "score --model pair/p2 --adapter pair/p2";
    await assertRefusals([[line, 2, two, `${hint} --adapter pair/p2\n`]], { cwd });
    const { [NAME]: _, ...older } = configOf(`${cwd}/pair/p2`);
    Deno.writeTextFileSync(`${cwd}/pair/p2/config.json`, JSON.stringify(older));
    const alone = "hint: this is an adapter folder: pass it with `--adapter`";
    await assertRefusals([["score --model pair/p2", 3, 'error: "pair/p2" has', alone]], { cwd });
  }));

Deno.test("a backbone far away is named by its whole path, and a GGUF file by its own", () =>
  withScratch(async (cwd) => {
    await Deno.mkdir(`${cwd}/a/b/c`, { recursive: true });
    await writeGguf(`${cwd}/model.gguf`, PLAIN_MODEL, { type: "Q8_0" });
    const root = await Deno.realPath(cwd);
    const cases = [
      ["model.gguf", "p2", "../model.gguf"],
      ["model.gguf", "a/p2", "../../model.gguf"],
      ["model.gguf", "a/b/p2", `${root}/model.gguf`],
      ["model.gguf", "a/b/c/p2", `${root}/model.gguf`],
      [PLAIN_MODEL, "a/b/c/p4", await Deno.realPath(PLAIN_MODEL)],
    ];
    for (const [model, out, name] of cases) {
      await succeed(`convert --model ${model} --streams 2 ${ADAPTER} --out ${out}`, { cwd });
      assertEquals(configOf(`${cwd}/${out}`)[NAME], name);
      assertEquals(await scores(cwd, out!), await scores(cwd, `${model} --adapter ${out}`));
    }
  }));
