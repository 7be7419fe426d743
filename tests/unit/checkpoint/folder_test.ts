/** Folders that appear complete or not at all. */
import { assertEquals, assertRejects } from "@std/assert";
import { writeFolder } from "../../../core/checkpoint/folder.ts";
import { withScratch } from "./testing.ts";

const names = (folder: string) => [...Deno.readDirSync(folder)].map(({ name }) => name);

Deno.test("a folder that cannot be replaced gets its name back", () =>
  withScratch(async (folder) => {
    const out = `${folder}/out`;
    Deno.mkdirSync(out);
    const { ino } = Deno.statSync(out);
    // Without the new folder the second rename fails, after the old one has moved.
    await assertRejects(() => writeFolder(out, {}, (partial) => Deno.remove(partial)));
    assertEquals([names(folder), Deno.statSync(out).ino], [["out"], ino]);
  }));

Deno.test("a folder whose filling fails leaves no trace", () =>
  withScratch(async (folder) => {
    await assertRejects(() =>
      writeFolder(`${folder}/out`, {}, (partial) => {
        Deno.writeTextFileSync(`${partial}/file`, "half");
        return Promise.reject(new Error("no more"));
      })
    );
    assertEquals(names(folder), []);
  }));
