/** Rows of an interrupted run, as a later run finds them. */
import { assertEquals, assertThrows } from "@std/assert";
import { checkJournal, Journal, type JournalOptions } from "../../../cli/output/journal.ts";
import { DataError, EnvironmentError, UsageError } from "../../../core/base/errors.ts";
import { withScratch } from "../../scratch.ts";

/** Begins a journal with two rows, appends `torn`, and passes on the options to resume it. */
async function interrupted(torn: string, body: (options: JournalOptions) => void): Promise<void> {
  await withScratch((folder) => {
    const options = {
      out: `${folder}/rows`,
      identity: { seed: 1 },
      resume: false,
      overwrite: false,
    };
    {
      using journal = new Journal(options);
      journal.add(1, "b", [{ id: 1 }]);
      journal.add(0, "a", [{ id: 0 }]);
    }
    Deno.writeTextFileSync(`${options.out}.partial`, torn, { append: true });
    body({ ...options, resume: true });
    return Promise.resolve();
  });
}

Deno.test("a torn last line is removed, and its row is computed again", () =>
  interrupted(`{"at":2,"input":"x`, (options) => {
    {
      using journal = new Journal(options);
      assertEquals([0, 1, 2].map((at) => journal.has(at, "abc"[at])), [true, true, false]);
      assertEquals(Deno.readTextFileSync(journal.path).at(-1), "\n");
      journal.add(2, "c", [{ id: 2 }]);
    }
    using again = new Journal(options);
    assertEquals([0, 1, 2].map((at) => again.has(at, "abc"[at])), [true, true, true]);
    assertEquals([...again.rows()], [{ id: 0 }, { id: 1 }, { id: 2 }]);
  }));

Deno.test("a folder in place of the file is an error of the system", () =>
  interrupted("", (options) => {
    Deno.removeSync(`${options.out}.partial`);
    Deno.mkdirSync(`${options.out}.partial`);
    const message = `cannot write "${options.out}.partial"`;
    assertThrows(() => new Journal(options), EnvironmentError, message);
  }));

Deno.test("a damaged line, other flags and other input are refused", async () => {
  const lines = ["", '"at":2', '"at":2,"rows":[null]', '"at":2,"rows":{}', '"at":-1,"rows":[]'];
  for (const fields of lines) {
    const line = fields === "" ? "{}" : `{"input":"x",${fields}}`;
    await interrupted(`${line}\n`, (options) => {
      assertThrows(() => new Journal(options), DataError, "line 4");
    });
  }
  await interrupted("", (options) => {
    const other = { ...options, identity: { seed: 2 } };
    assertThrows(() => new Journal(other), UsageError, "differs in seed");
    using journal = new Journal(options);
    assertThrows(() => journal.has(0, "z"), DataError, "input row 0 differs");
    journal.has(0, "a");
    assertThrows(() => [...journal.rows()], DataError, "the input ends before row 1");
  });
});

Deno.test("--resume begins where no row is kept yet, and ends where the result is complete", () =>
  withScratch(async (folder) => {
    const out = `${folder}/rows`, path = `${out}.partial`;
    const resumed = { out, identity: { seed: 1 }, resume: true, overwrite: false };
    const other = { ...resumed, identity: { seed: 2 }, resume: false };
    for (
      const left of [undefined, "", '{"schema":', '{"schema":"parscale.partial/1","seed":1}\n']
    ) {
      if (left !== undefined) await Deno.writeTextFile(path, left);
      for (const [options, state] of [[resumed, "nothing"], [other, undefined]] as const) {
        assertEquals(checkJournal(options), state);
        using journal = new Journal(options);
        assertEquals(journal.size, 0);
        if (left !== undefined) Deno.writeTextFileSync(path, left);
      }
    }
    await Deno.writeTextFile(out, "");
    assertEquals(checkJournal(resumed), "result");
    assertEquals(checkJournal({ ...resumed, overwrite: true }), "nothing");
    await Deno.writeTextFile(path, "{}\n{}\n");
    assertEquals(checkJournal(resumed), "rows");
    assertThrows(() => checkJournal(other), UsageError, "holds rows of an interrupted run");
  }));
