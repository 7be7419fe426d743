/** LoRA adapters of PEFT: values are those of PyTorch with PEFT 0.21.2 (fixtures/golden/recipes/peft_lora.py). */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { readRaw, writeRaw } from "../unit/checkpoint/testing.ts";
import { withScratch } from "../scratch.ts";
import {
  assertRefusals,
  copyFolder,
  documentOf,
  jsonLines,
  MODEL,
  PLAIN_MODEL,
  rowsOf,
  succeed,
} from "./models.ts";
import { runParscale } from "./run.ts";
import { FIXTURES } from "../fixtures.ts";

const GOLDEN = `${FIXTURES}golden/peft/`;
const { ids, token_logprobs: EXPECTED } = JSON.parse(
  Deno.readTextFileSync(`${GOLDEN}expected.json`),
);
const CONFIG = JSON.parse(Deno.readTextFileSync(`${GOLDEN}all/adapter_config.json`));

/** Fails unless a model gives the tokens the log-probabilities that PyTorch gives them. */
async function assertGolden(flags: string, name: "attention" | "all", cwd?: string): Promise<void> {
  const options = { stdin: jsonLines({ tokens: ids }), ...(cwd && { cwd }) };
  const [{ token_logprobs: found }] = await rowsOf(`score ${flags}`, options);
  const off = (found as number[]).map((value, i) => Math.abs(value - EXPECTED[name][i]));
  assert(Math.max(...off) < 1e-4, `${flags}: ${Math.max(...off)}`);
}

Deno.test("an adapter of PEFT has the log-probabilities of PyTorch, with and without its base named", async () => {
  for (const name of ["attention", "all"] as const) {
    await assertGolden(`--model ${PLAIN_MODEL} --adapter ${GOLDEN}${name}`, name);
    await assertGolden(`--model ${GOLDEN}${name}`, name);
  }
  await assertGolden(`--model ${PLAIN_MODEL} --adapter ${GOLDEN}all --device reference`, "all");
});

Deno.test("convert --merge folds an adapter of PEFT into a plain model", () =>
  withScratch(async (cwd) => {
    await succeed(`convert --model ${GOLDEN}attention --merge --out attention`, { cwd });
    await succeed(`convert --model ${PLAIN_MODEL} --adapter ${GOLDEN}all --merge --out all`, {
      cwd,
    });
    for (const name of ["attention", "all"] as const) {
      await assertGolden(`--model ${name}`, name, cwd);
      const config = JSON.parse(Deno.readTextFileSync(`${cwd}/${name}/config.json`));
      assertEquals([config.model_type, config.parscale_lora], ["qwen2", undefined]);
    }
  }));

Deno.test("an adapter of PEFT is trained further with its factor and targets", () =>
  withScratch(async (cwd) => {
    Deno.writeTextFileSync(`${cwd}/rows.jsonl`, jsonLines({ tokens: ids }));
    const line = `train --model ${GOLDEN}attention --train-params introduced --data rows.jsonl`;
    const rates = "--steps 1 --batch 1 --seq-len 16 --schedule constant --warmup 0";
    const { code, stderr } = await runParscale(`${line} ${rates} --lr 1e-12 --out run`, { cwd });
    assertEquals(code, 0, stderr);
    assertStringIncludes(stderr, "training 896 of");
    await assertGolden("--model run", "attention", cwd);
  }));

Deno.test("what PEFT has besides plain LoRA is refused by name", () =>
  withScratch(async (cwd) => {
    const weights = "adapter_model.safetensors";
    const { header, data } = readRaw(`${GOLDEN}all/${weights}`);
    const odd = JSON.parse(JSON.stringify(header).replace(/model\.layers[^"]*_proj/, "lm_head"));
    const folder = async (name: string, changes: Record<string, unknown>) => {
      const text = JSON.stringify({ ...CONFIG, ...changes });
      await copyFolder(`${GOLDEN}all`, `${cwd}/${name}`, { "adapter_config.json": text });
    };
    const cases: Readonly<Record<string, unknown>> = {
      use_dora: true,
      modules_to_save: ["lm_head"],
      rank_pattern: { q_proj: 4 },
      alpha_pattern: { q_proj: 4 },
      bias: "all",
      init_lora_weights: "pissa",
      layers_to_transform: [0],
      a_field_of_tomorrow: 1,
    };
    for (const [key, value] of Object.entries(cases)) {
      await folder(key, { [key]: value });
      const words = [`of PEFT only plain LoRA is supported: ${key} is`, "hint: merge the adapter"];
      await assertRefusals([[`inspect --model ${PLAIN_MODEL} --adapter ${key}`, 3, ...words]], {
        cwd,
      });
    }
    await folder("other", { peft_type: "IA3" });
    await folder("lost", { base_model_name_or_path: null });
    await folder("head", {});
    Deno.removeSync(`${cwd}/head/${weights}`);
    writeRaw(`${cwd}/head/${weights}`, odd, data);
    const plain = `inspect --model ${PLAIN_MODEL} --adapter`;
    await assertRefusals([
      [`${plain} other`, 3, 'peft_type in "other/adapter_config.json" must be "LORA", not "IA3"'],
      [`${plain} head`, 3, '"head" has base_model.model.lm_head.lora_A.weight: LoRA of other'],
      [`inspect --model ${MODEL} --adapter ${GOLDEN}all`, 3, "needs a plain model"],
      [
        "inspect --model lost",
        3,
        '"lost" is a PEFT adapter, whose adapter_config.json names no base model',
        "hint: pass both: --model BACKBONE --adapter lost",
        "`convert --merge` makes one folder of them",
      ],
      [`convert --model ${GOLDEN}all --streams 2 --out x`, 2, "--merge makes a whole model of it"],
    ], { cwd });
    const { results } = await documentOf(`${plain} ${GOLDEN}all`, { cwd });
    assertEquals(results.streams, 1);
  }));
