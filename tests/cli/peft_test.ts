/** LoRA adapters of PEFT: values are those of PyTorch with PEFT 0.21.2 (fixtures/golden/recipes/peft_lora.py). */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { readRaw, writeRaw } from "../unit/checkpoint/testing.ts";
import { withScratch } from "../scratch.ts";
import {
  assertFailed,
  copyFolder,
  documentOf,
  jsonLines,
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

Deno.test("LoRA of other matrices than those of the layers is refused by name", () =>
  withScratch(async (cwd) => {
    const weights = "adapter_model.safetensors";
    const { header, data } = readRaw(`${GOLDEN}all/${weights}`);
    const odd = JSON.parse(JSON.stringify(header).replace(/model\.layers[^"]*_proj/, "lm_head"));
    await copyFolder(`${GOLDEN}all`, `${cwd}/head`, { [weights]: undefined });
    writeRaw(`${cwd}/head/${weights}`, odd, data);
    const line = `inspect --model ${PLAIN_MODEL} --adapter`;
    const words = '"head" has base_model.model.lm_head.lora_A.weight: LoRA of other';
    assertFailed(await runParscale(`${line} head`, { cwd }), 3, words);
    const { results } = await documentOf(`${line} ${GOLDEN}all`, { cwd });
    assertEquals(results.streams, 1);
  }));
