/**
 * `deno task bump VERSION`: the version in `deno.json`, and the changes since the last one under it.
 *
 * The heading `[Unreleased]` of the changelog stays, empty, above the new one; file names in the docs that
 * carry the version follow.
 */
import { DataError, UsageError } from "../../core/base/errors.ts";
import { defineCommand } from "../framework/command.ts";
import { Report } from "../output/report.ts";
import { ROOT } from "./stage.ts";
import { runTool, type ToolRun } from "./tool.ts";

const UNRELEASED = "## [Unreleased]";
/** MAJOR.MINOR.PATCH, with a pre-release part perhaps. */
const VERSION = /^(\d+)\.(\d+)\.(\d+)(-[0-9A-Za-z.-]+)?$/;

export const command = defineCommand({
  description: "Writes the version into deno.json, CHANGELOG.md and docs/install.md, so that one " +
    "commit holds the release. `deno task release` then makes its files.",
  examples: { "The next minor version": "deno task bump 0.2.0" },
  arguments: [{ name: "VERSION", required: true, summary: "Version of the next release" }],
  flags: {},
});

const run: ToolRun<typeof command> = async ({ arguments: [version] }, io, invocation) => {
  const read = (file: string) => Deno.readTextFile(ROOT + file);
  const config = await read("deno.json"), { version: before } = JSON.parse(config);
  const files = bumped(version!, before, new Date(), {
    config,
    changelog: await read("CHANGELOG.md"),
    install: await read("docs/install.md"),
  });
  await Deno.writeTextFile(`${ROOT}deno.json`, files.config);
  await Deno.writeTextFile(`${ROOT}CHANGELOG.md`, files.changelog);
  await Deno.writeTextFile(`${ROOT}docs/install.md`, files.install);
  using report = new Report(io, invocation, { schema: "parscale.bump/1" });
  await report.finish({ before, version });
};

/** Texts of the files that carry the version. */
export interface Versioned {
  readonly config: string;
  readonly changelog: string;
  readonly install: string;
}

/**
 * The files at a new version.
 * @throws {UsageError} for a version that is not above the one before
 * @throws {DataError} for a changelog without unreleased changes
 */
export function bumped(version: string, before: string, date: Date, files: Versioned): Versioned {
  if (!VERSION.test(version)) {
    throw new UsageError(`"${version}" is not a version such as 0.2.0 or 1.0.0-rc.1`);
  }
  if (!isAbove(version, before)) throw new UsageError(`version ${version} is not above ${before}`);
  const start = files.changelog.indexOf(UNRELEASED) + UNRELEASED.length;
  const changes = files.changelog.slice(start).split(/^## /m)[0]!;
  if (start < UNRELEASED.length || !/^- /m.test(changes)) {
    throw new DataError("CHANGELOG.md has no changes under [Unreleased]");
  }
  const heading = `\n\n## [${version}] - ${date.toISOString().slice(0, 10)}`;
  const renamed = (text: string) => text.replaceAll(`parscale-${before}`, `parscale-${version}`);
  return {
    config: files.config.replace(`"version": "${before}"`, `"version": "${version}"`),
    changelog: files.changelog.slice(0, start) + heading + files.changelog.slice(start),
    install: renamed(files.install),
  };
}

/** Returns whether one version comes after another; a pre-release comes before its release. */
function isAbove(version: string, other: string): boolean {
  const [a, b] = [version, other].map((text) => VERSION.exec(text)!.slice(1, 4).map(Number));
  for (const i of [0, 1, 2]) if (a![i] !== b![i]) return a![i]! > b![i]!;
  const [pre, preOther] = [version, other].map((text) => VERSION.exec(text)![4]);
  if (pre === undefined || preOther === undefined) {
    return pre === undefined && preOther !== undefined;
  }
  return pre.localeCompare(preOther, "en", { numeric: true }) > 0;
}

if (import.meta.main) {
  await runTool("bump", "Set the version of the next release", command, run);
}
