/** --overwrite replaces only folders that parscale wrote; train and convert have their own tests. */
import { assertEquals, assertStringIncludes } from "@std/assert";
import { EVAL, runEval } from "./eval_testing.ts";
import { assertRefused, MODEL, succeed } from "./models.ts";
import { names } from "./convert_testing.ts";
import { runParscale } from "./run.ts";
import { withScratch } from "../scratch.ts";

Deno.test("eval --overwrite replaces an evaluation, and refuses a folder that holds anything else", () =>
  withScratch(async (cwd) => {
    const work = ["--tasks", "sciq", "--limit", "2", "--out", "res", "--overwrite"];
    await Deno.mkdir(`${cwd}/res/thesis`, { recursive: true });
    await Deno.writeTextFile(`${cwd}/res/samples.jsonl`, "mine\n");
    const refused = async (reason: string) => {
      const { code, stdout, stderr } = await runParscale([...EVAL, ...work], { cwd });
      assertEquals([code, stdout], [2, ""]);
      assertStringIncludes(stderr, `error: "res" ${reason}: it is not replaced\n`);
    };
    await refused('holds "thesis/", which is not part of an evaluation');
    await Deno.remove(`${cwd}/res/thesis`);
    await refused("does not look like an evaluation");
    assertEquals(await Deno.readTextFile(`${cwd}/res/samples.jsonl`), "mine\n");
    await Deno.remove(`${cwd}/res/samples.jsonl`);
    await runEval(work, cwd);
    await runEval([...work, "--seed", "1"], cwd);
    assertEquals(names(`${cwd}/res`), [
      ...[".lock", "config.json", "results.json", "samples.jsonl", "scores.jsonl", "stats.jsonl"],
    ]);
  }));

Deno.test("export --overwrite replaces an export, and refuses a checkpoint", () =>
  withScratch(async (cwd) => {
    const args = ["export", "--model", MODEL, "--onnx", "--tokens", "4", "--capacity", "8"];
    await Deno.mkdir(`${cwd}/out`);
    await Deno.writeTextFile(`${cwd}/out/model.safetensors`, "");
    const refused = await runParscale([...args, "--out", "out", "--overwrite"], { cwd });
    const reason = '"out" holds "model.safetensors", which is not part of an export';
    assertRefused(refused, 2, `${reason}: it is not replaced`);
    await Deno.remove(`${cwd}/out/model.safetensors`);
    for (const flags of [[], ["--overwrite"]]) {
      await succeed([...args, "--out", "out", ...flags], { cwd });
    }
  }));
