/** The time of reading data grows with its bytes, not with their square. */
import { assertEquals } from "@std/assert";
import { Table } from "../../../core/data/parquet.ts";
import { readDocuments } from "../../../core/data/read.ts";
import { TokenWriter } from "../../../core/data/token_writer.ts";
import { manyGroups } from "../../parquet_groups.ts";
import { replaced } from "../../replaced.ts";
import { withScratch } from "../../scratch.ts";

Deno.test("reading a row group of a table visits no other group", async () => {
  const count = 50;
  const { buffer } = manyGroups(count, "a");
  const slice = (start: number, end?: number) => buffer.slice(start, end);
  const table = await Table.open({ byteLength: buffer.byteLength, slice }, "table");
  const visits = Array<number>(count).fill(0);
  table.metadata.row_groups.forEach((group, i) => {
    const { num_rows } = group;
    Object.defineProperty(group, "num_rows", { get: () => (visits[i]!++, num_rows) });
  });
  for (const group of [0, 17, 49]) {
    assertEquals(await Array.fromAsync(table.rows(group, ["text"])), [{ text: "a" }]);
    assertEquals(table.rowsBefore(group), group);
  }
  assertEquals(visits.flatMap((n, i) => n > 0 ? [i] : []), [0, 17, 49]);
});

Deno.test("a table of many row groups gives all its rows", () =>
  withScratch(async (folder) => {
    const path = `${folder}/table.parquet`;
    Deno.writeFileSync(path, manyGroups(2000, "é"));
    const documents = await Array.fromAsync(readDocuments(path));
    assertEquals(documents.length, 2000);
    assertEquals(documents.at(-1), { row: 2000, kind: "text", text: "é" });
  }));

Deno.test("the cache is searched for leftovers once, not for every file", () =>
  withScratch(async (folder) => {
    const { readDirSync } = Deno;
    let searches = 0;
    using _ = replaced(Deno as Pick<typeof Deno, "readDirSync">, {
      readDirSync: (path) => (searches++, readDirSync(path)),
    });
    for (let i = 0; i < 5; i++) {
      await using _writer = await TokenWriter.begin(folder);
    }
    assertEquals(searches, 1);
  }));
