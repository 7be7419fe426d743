/**
 * `deno task compile`: one file that holds the runtime, parscale, its packages and one engine.
 *
 * In: the project with an installed `node_modules`, and `denort`, the base program that Deno
 * downloads or DENORT_BIN names. Out: a program that writes its files to disk at its first start,
 * since the engine can only be loaded from there. With DENORT_BIN set to deno itself the build
 * succeeds, but the file then behaves as deno; it serves to look at what would be shipped.
 */
import { DataError, EnvironmentError, UsageError } from "../../core/base/errors.ts";
import { defineCommand } from "../framework/command.ts";
import { openReport } from "../output/report.ts";
import { bytesText, grouped } from "../output/units.ts";
import { VERSION } from "../../core/base/version.ts";
import { type Platform, platformOf, TARGET_NAMES } from "./platforms.ts";
import { readSection, type Section } from "./section.ts";
import { requireComplete, ROOT, stage } from "./stage.ts";
import { replaceWith, runProgram, runTool } from "./tool.ts";

/** Largest program. */
export const PROGRAM_LIMIT = 160e6;

/** Of it, room for the base: Deno's documentation puts a program with nothing in it at about 70 MB. */
export const BASE_LIMIT = 85e6;

export const command = defineCommand({
  name: "compile",
  summary: "Make a standalone program",
  description:
    "Compiles parscale with its packages, workers, kernels and the engine of one platform into one " +
    "file that needs neither deno nor a network. At its first start the program writes its files " +
    "next to itself or, where that is not allowed, below XDG_DATA_HOME or ~/.local/share.\n\n" +
    "Deno downloads its base program for this. Where there is no network, DENORT_BIN names a " +
    "denort of the same version and target.",
  examples: [
    { text: "For this machine", line: "deno task compile" },
    {
      text: "For another one",
      line: "deno task compile --target aarch64-apple-darwin --out dist/parscale-mac",
    },
  ],
  flags: {
    target: {
      type: "choice",
      choices: TARGET_NAMES,
      group: "Compile",
      configurable: false,
      defaultText: "this machine",
      summary: "Platform of the program",
      details: "Only x86_64-unknown-linux-gnu has been run.",
    },
    out: {
      type: "path",
      letter: "o",
      group: "Compile",
      configurable: false,
      defaultText: "dist/parscale, with .exe for Windows",
      summary: "Where the program goes",
      details: "An earlier build is replaced when the new one is whole; a failed one leaves it.",
    },
  },
  async run(values, io, invocation) {
    const platform = platformOf(values.target);
    if (platform === undefined) {
      throw new UsageError(`no engine for ${Deno.build.target}`, {
        hints: [`choose a --target: ${TARGET_NAMES.join(", ")}`],
      });
    }
    const file = `parscale${platform.name.startsWith("windows") ? ".exe" : ""}`;
    const out = values.out ?? `${ROOT}dist/${file}`;
    using report = openReport(io, invocation, { schema: "parscale.compile/1" });
    const standIn = await isStandIn(io.env("DENORT_BIN"));
    await replaceWith(out, async (folder) => {
      const parts = await stage(`${folder}/app`, platform);
      const program = `${folder}/${file}`;
      await compile(`${folder}/app`, program, platform);
      const section = await readSection(program);
      const programBytes = (await Deno.stat(program)).size;
      check(section, platform, programBytes, standIn);
      if (platform.target === Deno.build.target && !standIn) await start(program);
      for (const part of parts) report.row({ ...part });
      report.row({ part: "program", files: section.files.size, bytes: programBytes });
      return program;
    });
    report.remark(`${out} for ${platform.target}, engine ${platform.engine}`);
    await report.finish();
    if (standIn) {
      io.warn(
        "the program behaves as deno and not as parscale, since DENORT_BIN names deno",
        "set DENORT_BIN to a denort, or unset it to have deno download one",
      );
    }
  },
});

/** Whether the base is a deno, which never looks for what was compiled into it. */
async function isStandIn(base: string | undefined): Promise<boolean> {
  if (!base) return false;
  try {
    return (await runProgram(base, ["--version"])).text.startsWith("deno ");
  } catch (error) {
    // One for another platform cannot be asked.
    if (!(error instanceof Deno.errors.NotFound)) return false;
    throw new EnvironmentError(`no such file: "${base}", which DENORT_BIN names`);
  }
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
  // Deno prints the chain of causes as numbered lines, and a stack without names after them.
  const lines = text.split("\n").filter((line) => /^(error:| +\d+:) *(?! *<unknown>)/.test(line));
  const reasons = lines.map((line) => line.replace(/^(error:| +\d+:) */, ""));
  const url = text.match(/https?:\S+denort\S+\.zip/)?.[0];
  if (url === undefined) {
    const found = reasons.join(": ") || text.trim().slice(-300);
    throw new EnvironmentError(`cannot compile for ${platform.target}: ${found}`);
  }
  throw new EnvironmentError(
    `cannot download "${url}", the base of the program: ${reasons.at(-1)}`,
    {
      hints: [
        "set DENORT_BIN to the denort of that archive, fetched on a machine with network",
        "`deno task bundle` makes a release that needs no base",
      ],
    },
  );
}

/** Throws unless the program carries what it should. */
function check(section: Section, platform: Platform, bytes: number, standIn: boolean): void {
  const { self_extracting, entrypoint_key, unstable_config } = section.metadata;
  const facts = `${entrypoint_key}, ${self_extracting ? "self-extracting" : "in memory"}, ` +
    `unstable ${unstable_config.features.join(" ")}`;
  const wanted =
    "mod.ts, self-extracting, unstable lazy-dynamic-imports no-legacy-abort worker-options";
  if (facts !== wanted) {
    throw new DataError(`the program is wrong: found ${facts}, expected ${wanted}`);
  }
  requireComplete([...section.files.keys()], platform);
  // What deno itself weighs says nothing about the program, what it carries does.
  const [size, limit] = standIn
    ? [section.bytes, PROGRAM_LIMIT - BASE_LIMIT]
    : [bytes, PROGRAM_LIMIT];
  if (size <= limit) return;
  const found = `${grouped(size)} bytes${standIn ? " without its base" : ""}`;
  throw new DataError(
    `the program is too large: found ${found}, expected at most ${bytesText(limit)}`,
  );
}

/** Starts the program, which writes its files next to it, into the folder that is thrown away. */
async function start(program: string): Promise<void> {
  const { text } = await runProgram(program, ["--version"]);
  const found = text.trim().slice(0, 200);
  if (found === `parscale ${VERSION}`) return;
  throw new DataError(
    `the program is version "${found}", expected ${VERSION}`,
  );
}

if (import.meta.main) await runTool(command);
