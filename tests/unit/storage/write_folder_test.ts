/** Folders that appear complete or not at all. */
import { assertEquals, assertRejects } from "@std/assert";
import { writeFolder } from "../../../core/storage/write_folder.ts";
import { LINKS, linkSync } from "../../links.ts";
import { namesIn, withScratch } from "../../scratch.ts";

Deno.test("a folder that cannot be replaced gets its name back", () =>
  withScratch(async (folder) => {
    const out = `${folder}/out`;
    Deno.mkdirSync(out);
    const { ino } = Deno.statSync(out);
    // Without the new folder the second rename fails, after the old one has moved.
    await assertRejects(() => writeFolder(out, {}, (partial) => Deno.remove(partial)));
    assertEquals([namesIn(folder), Deno.statSync(out).ino], [["out"], ino]);
  }));

Deno.test("a folder whose filling fails leaves no trace", () =>
  withScratch(async (folder) => {
    await assertRejects(() =>
      writeFolder(`${folder}/out`, {}, (partial) => {
        Deno.writeTextFileSync(`${partial}/file`, "half");
        return Promise.reject(new Error("no more"));
      })
    );
    assertEquals(namesIn(folder), []);
  }));

if (LINKS) {
  Deno.test("a link to a folder stays one, and the folder is filled", () =>
    withScratch(async (folder) => {
      Deno.mkdirSync(`${folder}/disk/out`, { recursive: true });
      linkSync("disk/out", `${folder}/out`);
      await writeFolder(`${folder}/out`, {}, (partial) => Deno.writeTextFile(`${partial}/a`, ""));
      assertEquals([namesIn(folder), namesIn(`${folder}/disk/out`)], [["disk", "out"], ["a"]]);
      assertEquals(Deno.lstatSync(`${folder}/out`).isSymlink, true);
    }));
}
