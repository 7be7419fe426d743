/** Files that appear complete or not at all, and files of rows. */
import { assertEquals, assertThrows } from "@std/assert";
import { RowFile } from "../../../core/storage/row_file.ts";
import { NewFile, writeFile } from "../../../core/storage/write_file.ts";
import { namesIn, withScratch } from "../../scratch.ts";

Deno.test("a file has its name once it is whole, and leaves no trace before", () =>
  withScratch((folder) => {
    const path = `${folder}/a`;
    writeFile(path, "old");
    {
      using file = new NewFile(path);
      file.write("new");
      assertEquals(Deno.readTextFileSync(path), "old");
    }
    assertEquals([namesIn(folder), Deno.readTextFileSync(path)], [["a"], "old"]);
    using file = new NewFile(path);
    file.write("new");
    file.commit((whole) => assertEquals(Deno.readTextFileSync(whole), "new"));
    assertEquals([namesIn(folder), Deno.readTextFileSync(path)], [["a"], "new"]);
    return Promise.resolve();
  }));

Deno.test("a file that cannot have its name leaves no trace", () =>
  withScratch((folder) => {
    Deno.mkdirSync(`${folder}/a/b`, { recursive: true });
    assertThrows(() => writeFile(`${folder}/a`, "new"));
    assertEquals([namesIn(folder), namesIn(`${folder}/a`)], [["a"], ["b"]]);
    return Promise.resolve();
  }));

Deno.test("a row that was cut off is removed, and the next one begins a line", () =>
  withScratch(async (folder) => {
    using rows = new RowFile(`${folder}/rows`);
    assertEquals(await rows.read(), "");
    rows.append("1\n2");
    assertEquals(await rows.read(), "1\n");
    rows.append("3\n");
    assertEquals(await rows.read(), "1\n3\n");
  }));
