/**
 * `deno task compile`: one file that holds the runtime, parscale, its packages and one engine. It writes its
 * files to disk at its first start, since the engine can only be loaded from there. Needs `denort`, the base
 * program that Deno downloads or DENORT_BIN names.
 */
import { EnvironmentError, UsageError } from "../../core/base/errors.ts";
import { defineCommand } from "../framework/command.ts";
import { Report } from "../output/report.ts";
import { type Platform, platformOf, TARGET_NAMES } from "./platforms.ts";
import { filesIn, ROOT, stage } from "./stage.ts";
import {
  outFlag,
  replaceWith,
  requireSize,
  requireVersion,
  runProgram,
  runTool,
  type ToolRun,
} from "./tool.ts";
import { flagGroup } from "../framework/table.ts";

/** Largest program. */
export const PROGRAM_LIMIT = 160e6;

export const command = defineCommand({
  description:
    "Compiles parscale with its packages, workers, kernels and the engine of one platform into one " +
    "file that needs neither deno nor a network. At its first start the program writes its files " +
    "next to itself or, where that is not allowed, below XDG_DATA_HOME or ~/.local/share.\n\n" +
    "Deno downloads its base program for this. Where there is no network, DENORT_BIN names a " +
    "denort of the same version and target.",
  examples: {
    "For this machine": "deno task compile",
    "For another one": "deno task compile --target aarch64-apple-darwin --out dist/parscale-mac",
  },
  flags: flagGroup("Compile", {
    target: {
      type: "choice",
      choices: TARGET_NAMES,
      configurable: false,
      defaultText: "this machine",
      summary: "Platform of the program",
      details: "Only x86_64-unknown-linux-gnu has been run.",
    },
    out: outFlag("dist/parscale, with .exe for Windows", "Where the program goes"),
  }),
});

const run: ToolRun<typeof command> = async (values, io, invocation) => {
  const platform = platformOf(values.target);
  if (platform === undefined) {
    throw new UsageError(`no engine for ${Deno.build.target}`, {
      hints: [`choose a --target: ${TARGET_NAMES.join(", ")}`],
    });
  }
  const file = `parscale${platform.name.startsWith("windows") ? ".exe" : ""}`;
  const out = values.out ?? `${ROOT}dist/${file}`;
  using report = new Report(io, invocation, { schema: "parscale.compile/1" });
  await requireBase(io.env("DENORT_BIN"));
  await replaceWith(out, async (folder) => {
    const parts = await stage(`${folder}/app`, platform);
    const program = `${folder}/${file}`;
    await compile(`${folder}/app`, program, platform);
    if (platform.target === Deno.build.target) await requireVersion("program", program);
    const bytes = await requireSize("program", program, PROGRAM_LIMIT);
    for (const part of parts) report.row({ ...part });
    report.row({ part: "program", files: [...filesIn(`${folder}/app`)].length, bytes });
    return program;
  });
  report.remark(`${out} for ${platform.target}, engine ${platform.engine}`);
  await report.finish();
};

async function requireBase(path: string | undefined): Promise<void> {
  if (!path || await Deno.stat(path).then(() => true, () => false)) return;
  throw new EnvironmentError(`no such file: "${path}", which DENORT_BIN names`);
}

async function compile(app: string, program: string, platform: Platform): Promise<void> {
  const included = [...Deno.readDirSync(app)].map(({ name }) => name)
    .filter((name) => name !== "node_modules").sort();
  const { ok, text } = await runProgram(Deno.execPath(), [
    ...["compile", "-A", "--self-extracting", "--no-check", "--no-remote"],
    ...["--app-name", "parscale"], // not the name of a temporary file
    ...["--target", platform.target, "--output", program],
    ...included.flatMap((name) => ["--include", name]),
    "mod.ts",
  ], { cwd: app, env: { NO_COLOR: "1" } });
  if (ok) return;
  throw new EnvironmentError(`cannot compile for ${platform.target}: ${text.trim().slice(-600)}`, {
    hints: [
      "without network, set DENORT_BIN to the denort of this version and target",
      "`deno task bundle` makes a release that needs no base",
    ],
  });
}

if (import.meta.main) {
  await runTool("compile", "Make a standalone program", command, run);
}
