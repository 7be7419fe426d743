/** What the folder of a run may hold besides the run itself. */
import { assertEquals } from "@std/assert";
import { requireOurs } from "../../../core/checkpoint/our_files.ts";
import { markFailed } from "../../../core/collective/peers.ts";
import { RunFolder } from "../../../core/train/run_folder.ts";

Deno.test("files of ranks that failed are ours, and go when the run is resumed or replaced", async () => {
  const folder = `${await Deno.makeTempDir()}/run`;
  const names = () => [...Deno.readDirSync(folder)].map(({ name }) => name).sort();
  const config = ".lock config.json".split(" ");
  (await RunFolder.create(folder, false).then(async (run) => {
    await run.writeConfig({ schema: "parscale.run/1" });
    return run;
  }))[Symbol.dispose]();
  markFailed(folder, 12);
  assertEquals(names(), [".lock", ".rank-12", "config.json"]);
  await requireOurs(folder, "run");
  (await RunFolder.open(folder))[Symbol.dispose]();
  assertEquals(names(), config);
  markFailed(folder, 0);
  (await RunFolder.create(folder, true))[Symbol.dispose]();
  assertEquals(names(), [".lock"]);
  await Deno.remove(`${folder}/..`, { recursive: true });
});
