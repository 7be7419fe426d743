/** Protects how words for data become files: folders, globs, weights, names that look like either. */
import { assert, assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { resolveSources } from "../../../core/data/sources.ts";
import { DataError, UsageError } from "../../../core/base/errors.ts";
import { withScratch } from "../../scratch.ts";
import { linkSync } from "../../links.ts";

const FILES = ("b.jsonl a.txt.gz c.png odd=2.jsonl deep/x.parquet deep/er/y.jsonl.zst " +
  "deep/er/model.bin .hidden/z.jsonl").split(" ");

/** Runs with a folder of the files above; `names` gives the files of each source inside it. */
const withFiles = (
  work: (folder: string, names: (...specs: string[]) => Promise<string[][]>) => Promise<void>,
) =>
  withScratch(async (folder) => {
    for (const file of FILES) {
      Deno.mkdirSync(`${folder}/${file}`.replace(/\/[^/]*$/, ""), { recursive: true });
      Deno.writeTextFileSync(`${folder}/${file}`, "{}");
    }
    await work(folder, async (...specs) => {
      const sources = await resolveSources(specs.map((spec) => spec && `${folder}/${spec}`));
      return sources.map(({ files }) => files.map((file) => file.slice(folder.length + 1)));
    });
  });

Deno.test("the hint about weights is for specs with an equals sign", async () => {
  const hints = async (spec: string) => {
    const error = await assertRejects(() => resolveSources([spec]), DataError);
    return error.hints.join();
  };
  assert(!(await hints("none.jsonl")).includes("weight"));
  assertStringIncludes(await hints("none.jsonl=x"), "a weight is a positive number after =");
});

Deno.test("a folder gives its supported files, sorted, without hidden ones", () =>
  withFiles(async (folder, names) => {
    const all = ["a.txt.gz", "b.jsonl", "deep/er/y.jsonl.zst", "deep/x.parquet", "odd=2.jsonl"];
    assertEquals(await names("."), [all]);
    assertEquals(await names("deep/"), [["deep/er/y.jsonl.zst", "deep/x.parquet"]]);
    linkSync(`${folder}/b.jsonl`, `${folder}/deep/link.jsonl`);
    assertEquals((await names("deep"))[0]!.at(1), "deep/link.jsonl");
  }));

Deno.test("globs give what they match", () =>
  withFiles(async (_, names) => {
    assertEquals(await names("*.jsonl"), [["b.jsonl", "odd=2.jsonl"]]);
    assertEquals(await names("?.*"), [["a.txt.gz", "b.jsonl", "c.png"]]);
    assertEquals(await names("**/*.jsonl*"), [["b.jsonl", "deep/er/y.jsonl.zst", "odd=2.jsonl"]]);
    assertEquals(await names("d*/*"), [["deep/x.parquet"]]);
    const deep = ["deep/er/model.bin", "deep/er/y.jsonl.zst", "deep/x.parquet"];
    assertEquals(await names("deep/**"), [deep]);
  }));

Deno.test("specs without weights are one source, with weights one each", () =>
  withFiles(async (folder, names) => {
    assertEquals(await names("c.png", "b.jsonl"), [["c.png", "b.jsonl"]]);
    const sources = await resolveSources([`${folder}/b.jsonl=2.5`, `${folder}/deep=1e-1`, "-=3"]);
    assertEquals(sources.map(({ weight }) => weight), [2.5, 0.1, 3]);
    assertEquals(sources[2], { spec: "-", files: ["-"], weight: 3 });
    assertEquals(await resolveSources(["-"]), [{ spec: "-", files: ["-"] }]);
    // An existing path is not a weight; more than that is.
    assertEquals(await names("odd=2.jsonl"), [["odd=2.jsonl"]]);
    Deno.writeTextFileSync(`${folder}/name=3`, "x");
    assertEquals(await names("name=3"), [["name=3"]]);
    assertEquals((await resolveSources([`${folder}/name=3=4`]))[0]!.weight, 4);
  }));

Deno.test("what cannot be meant is refused", () =>
  withFiles(async (folder) => {
    const at = (name: string) => `${folder}/${name}`;
    const misuse: [string[], string][] = [
      [[], "no training data given"],
      [[at("b.jsonl=2"), at("c.png")], `"${at("c.png")}" has no weight`],
      [[at("*.jsonl"), at("b.jsonl")], "twice"],
      [["-", "-"], "twice"],
    ];
    for (const [specs, words] of misuse) {
      await assertRejects(() => resolveSources(specs), UsageError, words);
    }
    for (const name of ["none.jsonl", "*.md", "none/**/*.md", "b.jsonl=0"]) {
      await assertRejects(() => resolveSources([at(name)]), DataError, "no data files match");
    }
  }));

Deno.test("a folder of other files says which, and the glob that reads them as text", () =>
  withScratch(async (folder) => {
    for (const file of ["a.py", "b.py", "c.rs"]) Deno.writeTextFileSync(`${folder}/${file}`, "x");
    const words = `"${folder}/" has no data files: it has 2 .py, 1 .rs`;
    const { hints } = await assertRejects(() => resolveSources([`${folder}/`]), DataError, words);
    assertEquals(hints.at(-1), `to read other files as text: --data "${folder}/**/*.py"`);
    const files = (await resolveSources([`${folder}/**/*.py`])).flatMap(({ files }) => files);
    assertEquals(files, [`${folder}/a.py`, `${folder}/b.py`]);
  }));
