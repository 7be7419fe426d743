/**
 * `deno task setup`: a launcher that starts this clone from any folder, and from scripts.
 *
 * It calls deno itself: through npx a start takes a second or more.
 */
import { join } from "node:path";
import { EnvironmentError, UsageError } from "../../core/base/errors.ts";
import { homeFolder, PLATFORM } from "../../core/base/platform/mod.ts";
import { defineCommand } from "../framework/command.ts";
import { Report } from "../output/report.ts";
import { ROOT } from "./stage.ts";
import { requireVersion, runTool, type ToolRun } from "./tool.ts";

const command = defineCommand({
  description:
    "Writes a launcher to ~/.local/bin or another folder. It runs the files of this clone with the " +
    "deno that runs this task, so it changes with `git pull` and ends when the clone is removed.",
  examples: {
    "For your user": "deno task setup",
    "In another folder": "deno task setup --folder bin",
  },
  flags: {
    folder: {
      type: "output",
      placeholder: "FOLDER",
      defaultText: "~/.local/bin",
      summary: "Folder of the launcher",
      details: "It should be on the PATH.",
    },
  },
});

/** Marks what may be replaced. */
const MARK = "Starts parscale from its clone; written by `deno task setup`.";

const run: ToolRun<typeof command> = async ({ folder: asked, overwrite }, io, invocation) => {
  const home = homeFolder(io.env);
  const target = asked ?? (home && join(home, ".local", "bin"));
  if (target === undefined) throw new UsageError("there is no HOME: `setup` needs `--folder`");
  const isWindows = PLATFORM.name === "windows";
  await Deno.mkdir(target, { recursive: true });
  const folder = await Deno.realPath(target);
  const path = join(folder, isWindows ? "parscale.cmd" : "parscale");
  if (!overwrite) await requireOurs(path);
  // A link there would be written through.
  await Deno.remove(path).catch(() => {});
  const text = isWindows ? windowsLauncher() : launcher();
  await Deno.writeTextFile(path, text, { mode: 0o755 });
  await requireVersion("program", path);
  using report = new Report(io, invocation, { schema: "parscale.setup/1" });
  report.remark(`parscale is ${path}`);
  const onPath = (io.env("PATH") ?? "").split(isWindows ? ";" : ":")
    .some((path) => path === folder || path === target);
  if (!onPath) report.remark(`put it on the PATH: export PATH="${folder}:$PATH"`);
  await report.finish();
};

async function requireOurs(path: string): Promise<void> {
  let text: string;
  try {
    text = await Deno.readTextFile(path);
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return;
    throw new EnvironmentError(`"${path}" cannot be replaced`, { cause: error });
  }
  if (text.includes(MARK)) return;
  throw new UsageError(`"${path}" already exists and is another program`, {
    hints: ["pass --overwrite, or another --folder"],
  });
}

function launcher(): string {
  const quote = (word: string) => `'${word.replaceAll("'", `'\\''`)}'`;
  return `#!/bin/sh
# ${MARK}
export DENO_NO_UPDATE_CHECK=1
# deno reads .npmrc in HOME and ends where that is a file; system users have /dev/null
[ ! -e "\${HOME:-/}" ] || [ -d "\${HOME:-/}" ] || unset HOME
deno=${quote(Deno.execPath())}
if [ -x "$deno" ]; then set -- "$deno" ${ARGS.map(quote).join(" ")} "$@"
else set -- npx -y deno@${Deno.version.deno} ${ARGS.map(quote).join(" ")} "$@"; fi
exec "$@"
`;
}

function windowsLauncher(): string {
  const words = [Deno.execPath(), ...ARGS].map((word) => `"${word}"`);
  return `@rem ${MARK}\r\n@set DENO_NO_UPDATE_CHECK=1\r\n@${words.join(" ")} %*\r\n`;
}

const ARGS = ["run", "-A", "--node-modules-dir=manual", `${ROOT}mod.ts`];

if (import.meta.main) {
  await runTool("setup", "Make the command parscale, which runs this clone", command, run);
}
