/** `parscale help`: the manual page, and topics that leave nothing out. */
import { fileURLToPath } from "node:url";
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { flagsOf, loadAll } from "../../cli/framework/command.ts";
import { commands } from "../../cli/commands/mod.ts";
import { escapeRoff } from "../../cli/framework/man.ts";
import { parse } from "../../cli/framework/parse.ts";
import { isNegatable } from "../../cli/framework/table.ts";
import { rowsOf, succeed } from "./models.ts";
import { isInstalled, runCommand } from "./run.ts";
import { withScratch } from "../scratch.ts";

Deno.test("the manual page is plain roff, and goes to a file like any result", () =>
  withScratch(async (cwd) => {
    const stdout = await succeed("help man");
    assert(/^\.TH PARSCALE 1 /.test(stdout));
    assert(/^[\x20-\x7e\n]*$/.test(stdout), "ASCII alone");
    for (const line of stdout.match(/^['.].*$/gm)!) {
      assert(/^\.(TH|SH|SS|PP|TP|RS|RE|nf|fi|nh|ad|B|I|\\")/.test(line), line);
    }
    await succeed("help man -o parscale.1", { cwd });
    assertEquals(await Deno.readTextFile(`${cwd}/parscale.1`), stdout);
  }));

Deno.test("text that would be a request or an escape is literal", () => {
  assertEquals(escapeRoff(".TH\n'x"), "\\&.TH\n\\(aqx");
  assertEquals(escapeRoff("--a\\nb `c` 1…ρ"), "\\-\\-a\\enb \\(gac\\(ga 1...\\[u03C1]");
});

Deno.test({
  name: "groff sets the manual page without a warning; every command, flag and code is in it",
  ignore: !isInstalled("groff"),
  fn: async () => {
    const groff = "groff -man -Tascii -ww -P-c -rLL=200n".split(" ");
    const { stdout, stderr } = await runCommand(groff, { stdin: await succeed("help man") });
    assertEquals(stderr, "");
    // Bold is a letter struck twice over itself.
    // deno-lint-ignore no-control-regex -- that is what it is
    const text = stdout.replace(/.\x08/g, "");
    for (const command of await loadAll(commands)) {
      assertStringIncludes(text, `\n   ${command.name}\n`);
      for (const line of Object.values(command.examples)) assertStringIncludes(text, line);
      for (const [name, flag] of Object.entries(flagsOf(command))) {
        assertStringIncludes(text, isNegatable(flag) ? `--[no-]${name}` : `--${name}`);
      }
    }
    for (const title of ["OUTPUT FORMATS", "ENVIRONMENT", "EXIT STATUS"]) {
      assertStringIncludes(text, `\n${title}\n`);
    }
    assert(/\n +143 +terminated/.test(text));
  },
});

Deno.test("the environment topic names every variable that the program reads", async () => {
  const rows = await rowsOf("help environment");
  const listed = new Set(rows.map(({ variable }) => variable));
  assertEquals(listed.size, rows.length);
  // What locates things that exist anyway is not worth a line.
  const usual =
    ("PATH HOME DENO_DIR TMPDIR USERPROFILE LOCALAPPDATA APPDATA TEMP TMP VIRTUAL_ENV " +
      "CONDA_PREFIX CUDA_PATH DENORT_BIN").split(" ");
  const root = fileURLToPath(new URL("../../", import.meta.url));
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
