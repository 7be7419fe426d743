/** Hidden folders after a kill; a checkpoint loses its name before its files. */
import { assertEquals } from "@std/assert";
import { clearLeftovers } from "../../../core/storage/leftovers.ts";
import { hold } from "../../../core/storage/lock.ts";
import { writeFolder } from "../../../core/storage/write_folder.ts";
import { RunFolder } from "../../../core/train/run_folder.ts";
import { replaced } from "../../replaced.ts";
import { namesIn, withScratch } from "../../scratch.ts";

/** Ends the name of what a process left whose id is larger than any system gives. */
const DEAD = `${2 ** 30 - 1}-00000000`;

function makeFolder(path: string, ...files: string[]): void {
  Deno.mkdirSync(path, { recursive: true });
  for (const file of files) Deno.writeTextFileSync(`${path}/${file}`, "{}");
}

/** Calls `body` as if the process were killed at its first deletion. */
async function killedAtRemoval(body: () => Promise<unknown>): Promise<void> {
  using _ = replaced(Deno as Pick<typeof Deno, "remove">, {
    async remove(path) {
      await Deno.lstat(path);
      throw new Error(`killed before ${path} is removed`);
    },
  });
  await body().catch(() => {});
}

Deno.test("a checkpoint that is pruned when the process dies is complete or absent", () =>
  withScratch(async (folder) => {
    const path = `${folder}/run`, files = ["config.json", "model.safetensors"];
    makeFolder(path, "config.json");
    {
      using run = await RunFolder.open(path);
      for (const step of [1, 2]) {
        await run.saveCheckpoint(step, (target) => Promise.resolve(makeFolder(target, ...files)));
      }
      await killedAtRemoval(() => run.keepNewest(1, 2));
      assertEquals(namesIn(path).filter((name) => name.startsWith("checkpoint")), [
        "checkpoint-000002",
      ]);
    }
    using _ = await RunFolder.open(path);
    assertEquals(namesIn(path), [".lock", "checkpoint-000002", "config.json", "last"]);
    assertEquals(namesIn(`${path}/checkpoint-000002`), files);
  }));

Deno.test("two writers of one process id do not mix their files", () =>
  withScratch(async (folder) => {
    const write = (text: string) =>
      writeFolder(`${folder}/out`, { replaces: "checkpoint" }, async (partial) => {
        await Deno.writeTextFile(`${partial}/config.json`, text);
        await new Promise((resolve) => setTimeout(resolve, 20));
        await Deno.writeTextFile(`${partial}/model.safetensors`, text);
      });
    await Promise.allSettled(["a", "b"].map(write));
    const [config, weights] = ["config.json", "model.safetensors"].map((name) =>
      Deno.readTextFileSync(`${folder}/out/${name}`)
    );
    assertEquals(config, weights);
    assertEquals(namesIn(folder), ["out"]);
  }));

Deno.test("leftovers of dead processes go, those of live ones and of others stay", () =>
  withScratch((folder) => {
    const gone = [`.a.partial-${DEAD}`, `.a.removed-${DEAD}`], goneFile = `.f.partial-${DEAD}`;
    const live = `.b.partial-${Deno.ppid}-00000000`, held = `.c.partial-${DEAD}`;
    const foreign = `.d.partial-${DEAD}`, file = ".e.partial-12";
    for (const name of [...gone, live, held]) makeFolder(`${folder}/${name}`, "config.json");
    makeFolder(`${folder}/${foreign}`, "thesis.tex");
    makeFolder(folder, goneFile, file);
    const lock = hold(`${folder}/${held}`);
    clearLeftovers(folder);
    lock?.close();
    // Not every system can lock a folder.
    assertEquals(namesIn(folder), [live, ...(lock ? [held] : []), foreign, file].sort());
    clearLeftovers(folder);
    assertEquals(namesIn(folder), [live, foreign, file].sort());
    return Promise.resolve();
  }));

Deno.test("a folder whose replacement never came gets its name back", () =>
  withScratch((folder) => {
    makeFolder(`${folder}/.out.replaced-${DEAD}`, "config.json", "model.safetensors");
    makeFolder(`${folder}/.out.partial-${DEAD}`, "config.json");
    clearLeftovers(folder);
    assertEquals(namesIn(folder), ["out"]);
    assertEquals(namesIn(`${folder}/out`), ["config.json", "model.safetensors"]);
    makeFolder(`${folder}/.out.replaced-${DEAD}`, "config.json");
    clearLeftovers(folder);
    assertEquals(namesIn(folder), ["out"], "the new folder has the name");
    return Promise.resolve();
  }));
