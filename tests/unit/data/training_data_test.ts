/** Protects what the files of a run share: one tokenizer, one hash of it; messages name each file. */
import { assert, assertEquals, assertRejects } from "@std/assert";
import { DataError } from "../../../core/base/errors.ts";
import {
  type DataContext,
  type DataPlan,
  type DataReporter,
  openData,
} from "../../../core/data/training_data.ts";
import { withScratch } from "../../scratch.ts";
import { jsonLines, TOKENIZER } from "./testing.ts";

const planOf = (data: string[]): DataPlan => ({
  data,
  evalData: [],
  evalSplit: undefined,
  evalTokens: undefined,
  selection: { where: [] },
  seqLen: 16,
  epochs: 1,
  skipBadFiles: false,
  pack: true,
  longRows: "error",
  shuffle: false,
  seed: 1,
});

const contextOf = (
  folder: string,
  { tokens = () => {}, ...more }: Partial<DataContext & DataReporter> = {},
): DataContext => ({
  context: 64,
  cacheFolder: `${folder}/cache`,
  tokenizerFolder: TOKENIZER,
  tokensNeeded: () => Infinity,
  recorded: undefined,
  env: () => undefined,
  stdin: () => new ReadableStream(),
  reporter: { tokens, skipped() {}, tables() {}, wait() {}, commit() {} },
  ...more,
});

/** Writes files of one row each. */
function writeFiles(folder: string, texts: readonly string[]): string[] {
  return texts.map((text, i) => {
    const path = `${folder}/${i}.jsonl`;
    Deno.writeTextFileSync(path, jsonLines([{ text }]));
    return path;
  });
}

Deno.test("the tokenizer is opened and hashed once, however many files a run has", () =>
  withScratch(async (folder) => {
    const files = writeFiles(folder, ["the cat", "sat", "on a mat"]);
    using expected = await openData(planOf(files), contextOf(folder));
    const tokenizerFolder = `${folder}/tokenizer`;
    Deno.mkdirSync(tokenizerFolder);
    for (const { name } of Deno.readDirSync(TOKENIZER)) {
      Deno.copyFileSync(`${TOKENIZER}/${name}`, `${tokenizerFolder}/${name}`);
    }
    let isThere = true;
    const tokens = () => {
      if (isThere) Deno.removeSync(tokenizerFolder, { recursive: true });
      isThere = false;
    };
    const own = { cacheFolder: `${folder}/own`, tokenizerFolder, tokens };
    using data = await openData(planOf(files), contextOf(folder, own));
    assertEquals(data.keys, expected.keys);
    assertEquals(data.batches(1).fingerprint, expected.batches(1).fingerprint);
  }));

Deno.test("bytes of all files count for the time left, but those that were tokenized before", () =>
  withScratch(async (folder) => {
    const files = writeFiles(folder, ["the cat", "sat", "on a mat ".repeat(9)]);
    const [a, b, c] = files.map((file) => Deno.statSync(file).size) as [number, number, number];
    const worksOf = async (paths: string[]) => {
      const works: unknown[] = [];
      const tokens: DataReporter["tokens"] = (_file, _tokens, _detail, work) =>
        works.push([work!.done, work!.total]);
      using _data = await openData(planOf(paths), contextOf(folder, { tokens }));
      return works;
    };
    assertEquals(await worksOf(files.slice(1, 2)), [[b, b], [b, b]]);
    assertEquals(await worksOf(files), [
      ...[[a, a + b + c], [a, a + b + c]],
      ...[[a + c, a + c], [a + c, a + c]],
    ]);
  }));

Deno.test("the validation data says its rows and tokens, in one epoch of them", () =>
  withScratch(async (folder) => {
    const files = writeFiles(folder, ["the cat ".repeat(20), "sat", "on a mat ".repeat(9)]);
    for (const pack of [true, false]) {
      const plan = { ...planOf([files[0]!]), evalData: files, seqLen: 64, pack };
      using data = await openData(plan, contextOf(folder));
      const stream = data.evalBatches!(2), read = { rows: 0, tokens: 0 };
      for (let batch = stream.next(); batch; batch = stream.next()) {
        read.rows += batch.filledRows;
        read.tokens += batch.used;
      }
      assertEquals(data.evalSize, read);
    }
    using none = await openData(planOf(files), contextOf(folder));
    assertEquals(none.evalSize, undefined);
  }));

Deno.test("a validation reads its first rows up to --eval-tokens, and not all of a long split", () =>
  withScratch(async (folder) => {
    const files = writeFiles(folder, [
      "the cat sat on a mat ".repeat(20_000),
      "sat ".repeat(20_000),
    ]);
    const sizeOf = async (changes: Partial<DataPlan>) => {
      using data = await openData({ ...planOf(files), seqLen: 64, ...changes }, contextOf(folder));
      return data.evalSize;
    };
    const bounded = { rows: 256, tokens: 16_384 };
    assertEquals(await sizeOf({ evalSplit: 0.5 }), bounded);
    assertEquals(await sizeOf({ evalSplit: 0.5, evalTokens: 100 }), { rows: 2, tokens: 128 });
    assertEquals(await sizeOf({ evalData: files, evalTokens: 64 }), { rows: 1, tokens: 64 });
    assert((await sizeOf({ evalData: files }))!.tokens > 2 * bounded.tokens);
  }));

Deno.test("errors name their file where files share workers", () =>
  withScratch(async (folder) => {
    const files = writeFiles(folder, ["the cat ".repeat(1 << 18), "sat"]);
    Deno.writeTextFileSync(files[1]!, jsonLines([{ messages: [{ role: "user", content: 7 }] }]));
    const open = () => openData(planOf(files), contextOf(folder, { threads: 2 }));
    await assertRejects(open, DataError, files[1]!);
  }));
