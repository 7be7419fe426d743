/**
 * The start-up budget: help, version and misuse take at most twice the time of an empty program run
 * beside them. Completions read the tables of all commands, some forty files more than help.
 * `tests/bench/startup_bench.ts` measures the same at leisure.
 */
import { fileURLToPath } from "node:url";
import { assert } from "@std/assert";
import { ENTRY, environment } from "./run.ts";

const EMPTY = fileURLToPath(new URL("../bench/empty.ts", import.meta.url));

/** Rounds of one attempt; the least time of each is what counts. */
const ROUNDS = 8;

/** A busy machine may slow one of two programs down throughout. */
const ATTEMPTS = 5;

async function millisecondsOf(program: string, args: readonly string[]): Promise<number> {
  const command = new Deno.Command(Deno.execPath(), {
    args: ["run", "-A", "--node-modules-dir=manual", program, ...args],
    env: environment(),
    clearEnv: true,
    stdout: "null",
    stderr: "null",
  });
  const start = performance.now();
  await command.output();
  return performance.now() - start;
}

/** Least times of the empty program and of ours, which take turns. */
async function leastTimes(args: readonly string[]): Promise<readonly [number, number]> {
  let [empty, ours] = [Infinity, Infinity];
  for (let round = 0; round < ROUNDS; round++) {
    empty = Math.min(empty, await millisecondsOf(EMPTY, []));
    ours = Math.min(ours, await millisecondsOf(ENTRY, args));
  }
  return [empty, ours];
}

const BUDGETS: readonly (readonly [line: string, times: number])[] = [
  ["--help", 2],
  ["--version", 2],
  ["train --help", 2],
  ["nonsense", 2],
  ["train --nonsense", 2],
  ["completions bash", 3],
];

for (const [line, times] of BUDGETS) {
  Deno.test(`parscale ${line} starts within ${times} times an empty program`, async () => {
    const seen: string[] = [];
    for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
      const [empty, ours] = await leastTimes(line.split(" "));
      if (ours <= times * empty) return;
      seen.push(`${ours.toFixed(0)} ms beside ${empty.toFixed(0)} ms`);
    }
    assert(false, seen.join(", "));
  });
}
