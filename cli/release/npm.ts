/**
 * `deno task npm`: the package in the form of the npm registry.
 *
 * Holds the sources, the lock file, and a start file for Node that runs them on the deno of the npm
 * package `deno`, its only dependency. The name is not published; the archive is installed by path.
 */
import { EnvironmentError } from "../../core/base/errors.ts";
import { defineCommand } from "../framework/command.ts";
import { VERSION } from "../../core/base/version.ts";
import { openReport } from "../output/report.ts";
import start from "./npm_start.mjs" with { type: "text" };
import { LEFT_BEHIND, SOURCES } from "./shipped_files.ts";
import { filesIn, ROOT } from "./stage.ts";
import { replaceWith, runProgram, runTool } from "./tool.ts";

/** The deno that the package depends on. */
export const DENO_VERSION = "2.9.6";

export const command = defineCommand({
  name: "npm",
  summary: "Make a package for npm",
  description:
    "Packs the sources with a start file for Node that runs them on the deno of its npm package. " +
    "`npm install -g FILE` installs it. The first start fetches what parscale imports.",
  examples: [{ text: "Make and install it", line: "deno task npm" }],
  flags: {
    out: {
      type: "path",
      letter: "o",
      group: "Package",
      configurable: false,
      defaultText: "dist/parscale-VERSION.tgz",
      summary: "Where the package goes",
      details: "An earlier one is replaced when the new one is whole.",
    },
  },
  async run(values, io, invocation) {
    const out = values.out ?? `${ROOT}dist/parscale-${VERSION}.tgz`;
    using report = openReport(io, invocation, { schema: "parscale.npm/1" });
    await replaceWith(out, async (folder) => {
      const root = `${folder}/package`;
      await copySources(root);
      await Deno.writeTextFile(`${root}/parscale.mjs`, start);
      await Deno.writeTextFile(`${root}/package.json`, JSON.stringify(manifest(), null, 2) + "\n");
      await Deno.writeTextFile(`${root}/deno.json`, await configuration());
      const { ok, text } = await runProgram("npm", ["pack", "--silent"], { cwd: root });
      const archive = `${root}/parscale-${VERSION}.tgz`;
      if (!ok) throw new EnvironmentError(`npm cannot pack: ${text.trim().split("\n")[0]}`);
      const { size } = await Deno.stat(archive);
      report.row({ part: "archive", files: [...filesIn(root)].length - 1, bytes: size });
      return archive;
    });
    report.remark(out);
    await report.finish();
  },
});

async function copySources(root: string): Promise<void> {
  for (const source of [...SOURCES, "README.md", "deno.lock"]) {
    const { isDirectory } = await Deno.stat(ROOT + source);
    const files = isDirectory ? [...filesIn(ROOT + source)].map((file) => `${source}/${file}`) : [
      source,
    ];
    for (const file of files) {
      if (LEFT_BEHIND.some((folder) => file.startsWith(`${folder}/`))) continue;
      const path = `${root}/${file}`;
      await Deno.mkdir(path.slice(0, path.lastIndexOf("/")), { recursive: true });
      await Deno.copyFile(ROOT + file, path);
    }
  }
}

function manifest() {
  return {
    name: "parscale",
    version: VERSION,
    description: "Parallel scaling of language models",
    license: "MIT",
    type: "module",
    bin: { parscale: "parscale.mjs" },
    engines: { node: ">=18" },
    dependencies: { deno: DENO_VERSION },
  };
}

/** The project's `deno.json` without what only developers need; imports as the lock file has them. */
async function configuration(): Promise<string> {
  const own = JSON.parse(await Deno.readTextFile(`${ROOT}deno.json`));
  const { name, version, license, exports, allowScripts, unstable, imports } = own;
  const kept = { name, version, license, exports, allowScripts, unstable, imports };
  return JSON.stringify(kept, null, 2) + "\n";
}

if (import.meta.main) await runTool(command);
