/**
 * `deno task release`: all files of a release in one folder, with their SHA-256.
 *
 * The archive for this machine, and a program for every platform whose base can be had.
 * Each tool checks what it makes; a platform that fails is reported and the rest is made.
 */
import { hashFile } from "../../core/data/hash.ts";
import { defineCommand } from "../framework/command.ts";
import { VERSION } from "../../core/base/version.ts";
import { Report } from "../output/report.ts";
import { platformOf, TARGET_NAMES } from "./platforms.ts";
import { ROOT } from "./stage.ts";
import { outFlag, runProgram, runTool, type ToolRun } from "./tool.ts";

/** One file of a release, and the tool that makes it. */
interface Piece {
  readonly file: string;
  readonly tool: string;
  readonly args: readonly string[];
}

/** All files for this version; an archive can be made for the machine's own platform alone. */
export function pieces(): Piece[] {
  const name = `parscale-${VERSION}`, own = platformOf();
  const isLinux = own?.name.startsWith("linux-") ?? false;
  return [
    ...(isLinux ? [{ file: `${name}-${own!.name}.tar.xz`, tool: "bundle", args: [] }] : []),
    ...TARGET_NAMES.map((target) => {
      const { name: platform } = platformOf(target)!;
      const ending = platform.startsWith("windows") ? ".exe" : "";
      return { file: `${name}-${platform}${ending}`, tool: "compile", args: ["--target", target] };
    }),
  ];
}

export const command = defineCommand({
  description: "Runs `bundle` and, for every platform, `compile`, and writes SHA256SUMS. Set the " +
    "version with `deno task bump` first. Exit code 1 tells that a file could not be made.",
  examples: { "Everything for the version in deno.json": "deno task release" },
  flags: { out: outFlag("dist/VERSION", "Folder of the files") },
});

const run: ToolRun<typeof command> = async (values, io, invocation) => {
  const out = values.out ?? `${ROOT}dist/${VERSION}`;
  await Deno.mkdir(out, { recursive: true });
  using report = new Report(io, invocation, { schema: "parscale.release/1" });
  const sums: string[] = [];
  let failed = false;
  for (const { file, tool, args } of pieces()) {
    const script = `${ROOT}cli/release/${tool}.ts`, path = `${out}/${file}`;
    const all = ["run", "-A", script, ...args, "--out", path, "--quiet"];
    const { ok, text } = await runProgram(Deno.execPath(), all);
    const sha256 = ok ? (await hashFile(path)).sha256 : null;
    if (ok) sums.push(`${sha256}  ${file}\n`);
    else io.warn(`${file} was not made: ${text.trim().split("\n")[0]}`);
    failed ||= !ok;
    report.row({ file, bytes: ok ? (await Deno.stat(path)).size : null, sha256 });
  }
  await Deno.writeTextFile(`${out}/SHA256SUMS`, sums.join(""));
  await report.finish();
  return failed ? 1 : 0;
};

if (import.meta.main) {
  await runTool("release", "Make all files of a release", command, run);
}
