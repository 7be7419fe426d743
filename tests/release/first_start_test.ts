/** A standalone program waits for a second start that may still write its files. */
import { assert } from "@std/assert";
import { waitForFiles } from "../../cli/framework/first_start.ts";
import { withScratch } from "../cli/run.ts";

/** Milliseconds until files are said to be at rest. */
async function waited(folder: string): Promise<number> {
  const start = performance.now();
  await waitForFiles(new URL(`file://${folder}/`));
  return performance.now() - start;
}

Deno.test("fresh files are waited for, also when another start writes them again; old ones not", async () => {
  await withScratch(async (folder) => {
    assert(await waited(folder) < 500, "a program in memory has no files");
    await new Promise((resolve) => setTimeout(resolve, 200)); // the time that writing takes
    await Deno.writeTextFile(`${folder}/.done`, "");
    const again = setTimeout(() => Deno.writeTextFileSync(`${folder}/.done`, ""), 300);
    const first = await waited(folder);
    clearTimeout(again);
    // The mark is renewed after 0.3 s, when writing has taken 0.5 s: another second is waited.
    assert(first > 1000 && first < 12_000, `${first} ms`);
    assert(await waited(folder) < 500, "later starts go on at once");
  });
});
