/**
 * `deno task bundle`: an archive that runs where there is neither deno nor network nor HOME. It holds the deno
 * that runs this, a launcher and the files that the standalone program carries. Equal sources give equal
 * bytes, since names are sorted and owners and dates are fixed. Needs GNU tar and xz.
 */
import { EnvironmentError, UsageError } from "../../core/base/errors.ts";
import { defineCommand } from "../framework/command.ts";
import { Report } from "../output/report.ts";
import { VERSION } from "../../core/base/version.ts";
import launcher from "./launcher.sh" with { type: "text" };
import { NOTICES_FILE } from "./notices.ts";
import { platformOf } from "./platforms.ts";
import { DATE, filesIn, ROOT, stage } from "./stage.ts";
import {
  outFlag,
  replaceWith,
  requireSize,
  requireVersion,
  runProgram,
  runTool,
  type ToolRun,
} from "./tool.ts";

/** Largest archive. */
export const BUNDLE_LIMIT = 60e6;

export const command = defineCommand({
  description:
    "Packs deno, a launcher, parscale, its packages and the engine of this machine's platform. " +
    "Unpacked anywhere, bin/parscale runs without network and without HOME. It keeps what deno " +
    "translates in PARSCALE_CACHE, XDG_CACHE_HOME/parscale, ~/.cache/parscale or a folder in TMPDIR, " +
    "the first that can be written, and runs without any where none can.",
  examples: { "For this machine": "deno task bundle" },
  flags: { out: outFlag("dist/parscale-VERSION-PLATFORM.tar.xz", "Where the archive goes") },
});

const run: ToolRun<typeof command> = async (values, io, invocation) => {
  const platform = platformOf();
  if (platform === undefined || Deno.build.os !== "linux") {
    throw new UsageError(`bundles run on Linux only, not on ${Deno.build.target}`);
  }
  const name = `parscale-${VERSION}-${platform.name}`;
  const out = values.out ?? `${ROOT}dist/${name}.tar.xz`;
  using report = new Report(io, invocation, { schema: "parscale.bundle/1" });
  await replaceWith(out, async (folder) => {
    const root = `${folder}/${name}`;
    await Deno.mkdir(`${root}/bin`, { recursive: true });
    for (const part of await stage(`${root}/app`, platform)) report.row({ ...part });
    await Deno.copyFile(Deno.execPath(), `${root}/bin/deno`);
    await Deno.writeTextFile(`${root}/bin/parscale`, launcher);
    await Deno.rename(`${root}/app/${NOTICES_FILE}`, `${root}/${NOTICES_FILE}`);
    for (const file of ["LICENSE", "README.md"]) {
      await Deno.copyFile(ROOT + file, `${root}/${file}`);
    }
    for (const file of ["bin/deno", "bin/parscale"]) await Deno.chmod(`${root}/${file}`, 0o755);
    report.row({ part: "deno", files: 1, bytes: (await Deno.stat(`${root}/bin/deno`)).size });
    const env = { PARSCALE_CACHE: `${folder}/cache` };
    await requireVersion("bundle", `${root}/bin/parscale`, env);
    const archive = await pack(folder, name);
    const bytes = await requireSize("bundle", archive, BUNDLE_LIMIT);
    report.row({ part: "archive", files: [...filesIn(root)].length, bytes });
    return archive;
  });
  report.remark(out);
  await report.finish();
};

/** Packs the folder `name` in `folder` and returns the archive's path. */
async function pack(folder: string, name: string): Promise<string> {
  const archive = `${folder}/${name}.tar`;
  const tar = [
    ...["--create", "--format=ustar", "--sort=name", `--mtime=@${DATE.getTime() / 1000}`],
    ...["--owner=0", "--group=0", "--numeric-owner", "--mode=go=rX,u+rw"],
    ...["--directory", folder, "--file", archive, name],
  ];
  await mustRun("tar", tar);
  // Blocks of one size, so that the bytes do not depend on the number of threads. XZ_OPT sets another preset.
  await mustRun("xz", ["--threads=2", "--block-size=24MiB", archive]);
  return `${archive}.xz`;
}

async function mustRun(program: string, args: readonly string[]): Promise<void> {
  const { ok, text } = await runProgram(program, args).catch((cause) => ({
    ok: false,
    text: String(cause.message),
  }));
  if (ok) return;
  throw new EnvironmentError(`cannot pack the bundle: ${text.trim().split("\n")[0]}`, {
    hints: ["GNU tar and xz are needed"],
  });
}

if (import.meta.main) {
  await runTool("bundle", "Make a portable archive", command, run);
}
