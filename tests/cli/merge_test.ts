/** `convert --merge`, and single checkpoints of a run wherever a model is taken. */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { openCheckpoint } from "../../core/checkpoint/open.ts";
import { resolveRuns } from "../../core/checkpoint/run.ts";
import { Engine } from "../../core/generate/engine.ts";
import { maxDifference, modelFolder } from "../device/goldens.ts";
import { reference } from "../device/devices.ts";
import { assertRefusals, documentOf, jsonLines, rowsOf } from "./models.ts";
import { ROWS, withWorkplace, type Workplace } from "./train_testing.ts";
import { linkSync } from "../links.ts";

const INTRODUCED = "--train-params introduced --lr 0.05 --schedule constant --warmup 0";

/** Logits at every token of a row, in double precision, of what --model and --adapter name. */
async function logits(place: Workplace, model: string, adapter?: string): Promise<number[]> {
  const at = (path: string) => `${place.cwd}/${path}`;
  const paths = await resolveRuns(at(model), adapter && at(adapter));
  const { config, tensors } = await openCheckpoint(paths.model, paths);
  const engine = new Engine(reference, config, tensors);
  const ids = [[1, 5, 9, 20, 33, 7, 300, 12]];
  using cache = engine.createCache(1, ids[0]!.length);
  const select = ids[0]!.map((_, i) => i);
  const outputs = await engine.forward(cache, { ids, start: [0], select });
  return Array.from(outputs.get("logits")!);
}

Deno.test("an adapter run with prefixes becomes a folder that transformers opens", () =>
  withWorkplace(async (place) => {
    await place.trained(`--model p1 --streams 2 ${INTRODUCED} ${ROWS} --steps 3 --out run`);
    const { results } = await documentOf("convert --model run --merge --out merged", place);
    assertEquals([results.streams, results.prefix_tokens], [2, 48]);
    assertEquals(await logits(place, "merged"), await logits(place, "run"));
    const { model_type, parscale_n, auto_map, parscale_transforms } = place.config("merged");
    assertEquals([model_type, parscale_n, parscale_transforms], ["qwen2_parscale", 2, undefined]);
    assertStringIncludes(auto_map.AutoModelForCausalLM, "Qwen2ParScaleForCausalLM");
    for (const name of ["tokenizer.json", "modeling_parscale.py"]) {
      assert(place.names("merged").includes(name), name);
    }
    // The same with the adapter named by itself.
    await place.run("convert --model p1 --adapter run --merge --verify --out other");
    assertEquals(await logits(place, "other"), await logits(place, "run"));
  }));

Deno.test("LoRA and BitFit of one stream become a plain model with equal logits", () =>
  withWorkplace(async (place) => {
    linkSync(modelFolder("llama-p1-untied-bias-f32"), `${place.cwd}/llama`);
    const small = Array.from({ length: 8 }, (_, i) => ({ tokens: [1, 2, 3 + i, 4, 5] }));
    place.write("small.jsonl", jsonLines(...small));
    const cases = [
      ["p1", "lora", "qwen2"],
      ["p1", "bitfit", "llama"],
      ["p1", "lora,bitfit", "llama"],
      ["llama", "lora,bitfit", "llama"],
    ] as const;
    for (const [model, transform, family] of cases) {
      const name = `${model}-${transform.replace(",", "-")}`;
      const rows = model === "llama" ? ROWS.replace("rows.jsonl", "small.jsonl") : ROWS;
      await place.trained(
        `--model ${model} --streams 1 --transform ${transform} ${INTRODUCED} ${rows} --steps 3 --out ${name}`,
      );
      await place.run(`convert --model ${name} --merge --verify --out ${name}-merged`);
      const merged = place.config(`${name}-merged`);
      assertEquals([merged.model_type, merged.parscale_n], [family, undefined], name);
      const [found, expected, plain] = await Promise.all(
        [`${name}-merged`, name, model].map((each) => logits(place, each)),
      ) as [number[], number[], number[]];
      const worst = maxDifference(found, expected);
      assert(worst < 2e-5, `${name}: ${worst}`);
      assert(maxDifference(expected, plain) > 0.1, `${name}: training made no difference`);
    }
  }));

Deno.test("LoRA of one stream with a prefix keeps the prefix", () =>
  withWorkplace(async (place) => {
    const transform = "--streams 1 --transform prefix,lora --prefix-tokens 4";
    await place.trained(`--model p1 ${transform} ${INTRODUCED} ${ROWS} --steps 3 --out run`);
    await place.run("convert --model run --merge --out merged");
    assertEquals(place.config("merged").parscale_transforms, ["prefix"]);
    assert(maxDifference(await logits(place, "merged"), await logits(place, "run")) < 2e-5);
  }));

Deno.test("what cannot be merged is refused, and a whole model is copied", () =>
  withWorkplace(async (place) => {
    const lora = "--model p1 --streams 2 --transform prefix,lora";
    await place.trained(`${lora} ${INTRODUCED} ${ROWS} --steps 1 --out two`);
    for (const name of ["qwen3", "qwen35"]) {
      linkSync(modelFolder(`${name}-p1-tied-f32`), `${place.cwd}/${name}`);
      const bitfit = `--model ${name} --streams 1 --transform bitfit`;
      await place.trained(`${bitfit} ${INTRODUCED} ${ROWS} --steps 1 --out ${name}-bitfit`);
    }
    const two = place.last("two").replace(place.cwd + "/", "");
    const no = "--merge --out no", cannot = "error: cannot merge", hint = "hint: run it as it is";
    await assertRefusals([
      [`convert --model two ${no}`, 3, `${cannot} "${two}": its 2 streams have LoRA`, hint],
      ...["qwen3", "qwen35"].map((name) =>
        [
          `convert --model ${name}-bitfit ${no}`,
          3,
          `${cannot} "${name}-bitfit/checkpoint-000001": BitFit has`,
          hint,
        ] as const
      ),
      [
        "convert --model two --streams 4 --out no",
        2,
        'error: "two" is an adapter, not a whole model\n',
        "hint: --merge makes a whole model of it",
      ],
    ], place);
    assert(!place.exists("no"));
    const { stderr } = await place.run("convert --model p2 --merge --out copy");
    assertStringIncludes(stderr, '"p2" is self-contained already; copy is a copy of it');
    assertEquals(await logits(place, "copy"), await logits(place, "p2"));
  }));

Deno.test("--model RUN/checkpoint-000002 is that checkpoint of an adapter run, and of a whole one", () =>
  withWorkplace(async (place) => {
    const steps = `${ROWS} --steps 4 --save-every 2`;
    await Promise.all([
      place.trained(`--model p1 --streams 2 ${INTRODUCED} ${steps} --out adapter`),
      place.trained(`--model p2 --lr 0.01 ${steps} --out whole`),
    ]);
    const first = await logits(place, "p1", "adapter/checkpoint-000002");
    assertEquals(await logits(place, "adapter/checkpoint-000002"), first);
    assertEquals(await logits(place, "adapter/checkpoint-000002/"), first);
    assert(maxDifference(await logits(place, "adapter"), first) > 1e-3);
    const early = await logits(place, "whole/checkpoint-000002");
    assert(maxDifference(early, await logits(place, "whole")) > 1e-3);
    const stdin = jsonLines({ tokens: [1, 5, 9] });
    const score = (model: string) => rowsOf(`score --model ${model}`, { ...place, stdin });
    const own = await score("adapter/checkpoint-000002");
    assertEquals(await score("p1 --adapter adapter/checkpoint-000002"), own);
    await Promise.all([
      place.run("inspect --model adapter/checkpoint-000002"),
      place.run("cost --model adapter/checkpoint-000002"),
      place.run("convert --model adapter/checkpoint-000002 --merge --out merged"),
      place.trained(`--model adapter/checkpoint-000002 ${INTRODUCED} ${ROWS} --steps 1 --out next`),
    ]);
    assertEquals(await logits(place, "merged"), first);
  }));
