/**
 * The start-up budget, in modules: help, version and misuse load few, since what a start takes is
 * mostly reading and compiling them. `tests/bench/startup_bench.ts` measures the time at leisure.
 */
import { assert } from "@std/assert";
import { ENTRY, environment } from "./run.ts";
import { withScratch } from "../scratch.ts";

/** Modules of ours that a run may load; completions read the tables of all commands. */
const BUDGETS: readonly (readonly [line: string, modules: number])[] = [
  ["--help", 36],
  ["--version", 36],
  ["train --help", 40],
  ["nonsense", 36],
  ["train --nonsense", 42],
  ["completions bash", 72],
];

/** Modules that a run loads, counted by their coverage. */
async function modulesOf(args: readonly string[], coverage: string): Promise<number> {
  await new Deno.Command(Deno.execPath(), {
    args: ["run", "-A", "--node-modules-dir=manual", `--coverage=${coverage}`, ENTRY, ...args],
    env: environment(),
    clearEnv: true,
    stdout: "null",
    stderr: "null",
  }).output();
  return [...Deno.readDirSync(coverage)].filter(({ name }) => name.endsWith(".json")).length;
}

for (const [line, budget] of BUDGETS) {
  Deno.test(`parscale ${line} loads at most ${budget} modules`, () =>
    withScratch(async (folder) => {
      const modules = await modulesOf(line.split(" "), `${folder}/coverage`);
      assert(modules > 5 && modules <= budget, `${modules} modules`);
    }));
}
