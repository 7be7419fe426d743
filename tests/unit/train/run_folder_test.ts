/** Files in the folder of a run besides the run itself. */
import { assertEquals, assertRejects } from "@std/assert";
import { UsageError } from "../../../core/base/errors.ts";
import { requireNoRun, RunFolder } from "../../../core/train/run_folder.ts";
import { namesIn, withScratch } from "../../scratch.ts";

Deno.test("the folder of a run that ended before its first step is used again, and no other", () =>
  withScratch(async (scratch) => {
    const folder = `${scratch}/run`;
    for (const steps of [0, 1]) {
      using run = await RunFolder.create(folder, false);
      run.writeConfig({ schema: "parscale.run/1" });
      if (steps > 0) run.appendMetrics(`{"step":1}\n`);
    }
    await assertRejects(() => requireNoRun(folder, false), UsageError, "already exists");
    await Deno.remove(`${folder}/metrics.jsonl`);
    // What a kill leaves while the configuration is written.
    await Deno.writeTextFile(`${folder}/.config.json.partial-1-00000000`, "{");
    await requireNoRun(folder, false);
    await Deno.writeTextFile(`${folder}/config.json`, `{"model_type": "qwen2"}`);
    await assertRejects(() => requireNoRun(folder, false), UsageError, "already exists");
  }));

Deno.test("metrics of later steps and a torn last line are cut off at a resume", () =>
  withScratch(async (folder) => {
    using run = await RunFolder.create(folder, true);
    const lines = [1, 2, 3].map((step) => `{"step":${step}}\n`);
    for (const line of [...lines, `{"step":2,"lo`]) run.appendMetrics(line);
    await run.truncateMetrics(2);
    assertEquals(await Deno.readTextFile(`${folder}/metrics.jsonl`), lines.slice(0, 2).join(""));
  }));

Deno.test("the newest checkpoints are kept, and those that a resumed run left", () =>
  withScratch(async (folder) => {
    using run = await RunFolder.create(folder, true);
    for (const step of [2, 10, 4, 6]) await run.saveCheckpoint(step, () => Promise.resolve());
    assertEquals(await run.lastCheckpoint(), `${folder}/checkpoint-000006`);
    await run.keepNewest(2, 6);
    assertEquals(namesIn(folder).filter((name) => name.startsWith("checkpoint")), [
      "checkpoint-000004",
      "checkpoint-000006",
      "checkpoint-000010",
    ]);
  }));
