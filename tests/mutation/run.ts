/**
 * Changes the product in small ways, one at a time, and requires that the named tests fail under each.
 *
 * Works on a copy of the tracked files. `--only TEXT` takes the mutations with that text in name or file.
 */
import { parseArgs } from "@std/cli/parse-args";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { type Mutation, MUTATIONS } from "./mutations.ts";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));

/** A run of tests that does not end in this time has not told anything. */
const LIMIT_MS = 300_000;

type Outcome = "passed" | "failed" | "does not parse" | "does not end";

const { only = "" } = parseArgs(Deno.args, { string: ["only"] });
const chosen = MUTATIONS.filter(({ name, file }) => name.includes(only) || file.includes(only));
if (chosen.length === 0) {
  console.error(`error: no mutation has "${only}" in its name or file`);
  Deno.exit(2);
}
Deno.exit(await runMutations(chosen) ? 0 : 1);

/** Runs mutations and reports them; returns whether all were killed. */
async function runMutations(mutations: readonly Mutation[]): Promise<boolean> {
  const began = performance.now();
  const folder = await Deno.makeTempDir({ prefix: "parscale-mutation-" });
  try {
    await copyTree(folder);
    const files = [...new Set(mutations.flatMap(({ tests }) => tests))].sort();
    const before = await runTests(folder, files, ["--parallel"]);
    if (before !== "passed") {
      console.error(`error: without a mutation, the tests of ${files.length} files: ${before}`);
      return false;
    }
    let survivors = 0;
    for (const mutation of mutations) {
      const outcome = await tryMutation(folder, mutation);
      if (outcome !== "killed") survivors++;
      console.log(`${outcome.padEnd(8)}  ${mutation.file}: ${mutation.name}`);
    }
    const seconds = Math.round((performance.now() - began) / 1000);
    console.log(`${mutations.length} mutations, ${survivors} not killed, ${seconds} s`);
    return survivors === 0;
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

/** Copies the tracked files as they are in the working tree; packages are shared by a link. */
async function copyTree(folder: string): Promise<void> {
  const { stdout } = await new Deno.Command("git", { args: ["ls-files", "-z"], cwd: ROOT })
    .output();
  for (const path of new TextDecoder().decode(stdout).split("\0").filter(Boolean)) {
    await Deno.mkdir(dirname(join(folder, path)), { recursive: true });
    await Deno.copyFile(join(ROOT, path), join(folder, path));
  }
  await Deno.symlink(join(ROOT, "node_modules"), join(folder, "node_modules"), { type: "dir" });
}

async function tryMutation(
  folder: string,
  { file, from, to, tests }: Mutation,
): Promise<string> {
  const path = join(folder, file);
  const source = await Deno.readTextFile(path);
  const count = source.split(from).length - 1;
  if (count !== 1) return `found ${count} times`;
  await Deno.writeTextFile(path, source.replace(from, () => to));
  const outcome = await runTests(folder, tests, ["--fail-fast"]);
  await Deno.writeTextFile(path, source);
  if (outcome === "failed") return "killed";
  return outcome === "passed" ? "survived" : outcome;
}

async function runTests(
  cwd: string,
  files: readonly string[],
  flags: readonly string[],
): Promise<Outcome> {
  const signal = AbortSignal.timeout(LIMIT_MS);
  const { success, stdout, stderr } = await new Deno.Command("deno", {
    args: ["test", "-A", "--no-check", ...flags, ...files],
    cwd,
    signal,
    env: { NO_COLOR: "1", DENO_NO_UPDATE_CHECK: "1" },
  }).output();
  if (success) return "passed";
  if (signal.aborted) return "does not end";
  const [out, errors] = [stdout, stderr].map((bytes) => new TextDecoder().decode(bytes));
  if (/could not be parsed/.test(errors + out!)) return "does not parse";
  if (flags.includes("--parallel")) console.error(out);
  return "failed";
}
