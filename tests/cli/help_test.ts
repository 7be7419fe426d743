/** `parscale help`: topics that leave nothing out. */
import { assert, assertEquals } from "@std/assert";
import { loadAll } from "../../cli/framework/command.ts";
import { commands } from "../../cli/commands/mod.ts";
import { parse } from "../../cli/framework/parse.ts";
import { rowsOf } from "./models.ts";
import { ROOT } from "../fixtures.ts";

Deno.test("the environment topic names every variable that the program reads", async () => {
  const rows = await rowsOf("help environment");
  const listed = new Set(rows.map(({ variable }) => variable));
  assertEquals(listed.size, rows.length);
  // What locates things that exist anyway is not worth a line.
  const usual =
    ("PATH HOME DENO_DIR TMPDIR USERPROFILE LOCALAPPDATA APPDATA TEMP TMP VIRTUAL_ENV " +
      "CONDA_PREFIX CUDA_PATH DENORT_BIN").split(" ");
  const root = ROOT;
  const read = [...sources(`${root}core`), ...sources(`${root}cli`)].flatMap((text) =>
    [...text.matchAll(/\b(?:env(?:\.get)?\(|env, |path\(|variable: )"([A-Z_]+)"/g)]
      .map(([, name]) => name!)
  );
  assert(read.includes("HF_TOKEN") && read.includes("PARSCALE_NVRTC"));
  assertEquals(read.filter((name) => !listed.has(name) && !usual.includes(name)), []);
});

function* sources(folder: string): Generator<string> {
  for (const { name, isDirectory } of Deno.readDirSync(folder)) {
    if (isDirectory) yield* sources(`${folder}/${name}`);
    else if (name.endsWith(".ts")) yield Deno.readTextFileSync(`${folder}/${name}`);
  }
}

Deno.test("presets and formats are complete, values of presets as they are typed", async () => {
  const presets = await rowsOf("help presets");
  const loaded = await loadAll(commands);
  const expected = loaded.flatMap(({ name, presets = {} }) =>
    Object.keys(presets).map((preset) => [name, preset])
  );
  for (const { command, values } of presets) {
    const { flags } = loaded.find(({ name }) => name === command)!;
    const { problems, positionals } = parse(values.split(" "), flags);
    assertEquals([problems, positionals], [[], []], values);
  }
  assertEquals(presets.map(({ command, preset }) => [command, preset]), expected);
  assert(expected.length >= 5);
  const formats = await rowsOf("help formats");
  assertEquals(formats.map(({ format }) => format), ["table", "json", "jsonl", "csv", "md"]);
});
