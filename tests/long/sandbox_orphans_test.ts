/** Attack 45: however the evaluator ends, no sandbox process outlives it. */
import { assert, assertEquals } from "@std/assert";
import { DATA } from "../cli/eval_testing.ts";
import { jsonLines } from "../cli/models.ts";
import { parscale, withScratch } from "../cli/run.ts";

/** Processes of the sandbox, by the cache folder that they may read. */
async function children(cache: string): Promise<number[]> {
  const found: number[] = [];
  for await (const { name } of Deno.readDir("/proc")) {
    if (!/^\d+$/.test(name)) continue;
    const line = await Deno.readTextFile(`/proc/${name}/cmdline`).catch(() => "");
    if (line.includes("sandbox/child.ts") && line.includes(cache)) found.push(Number(name));
  }
  return found;
}

async function until(condition: () => Promise<boolean>, seconds: number): Promise<boolean> {
  for (const end = Date.now() + 1000 * seconds; Date.now() < end;) {
    if (await condition()) return true;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  return false;
}

const ENDINGS: Readonly<Record<string, readonly Deno.Signal[]>> = {
  "kill -9": ["SIGKILL"],
  "SIGHUP": ["SIGHUP"],
  "one SIGINT": ["SIGINT"],
  "one SIGTERM": ["SIGTERM"],
  "two SIGINTs": ["SIGINT", "SIGINT"],
};

for (const sandbox of ["pyodide", "auto"]) {
  for (const [name, signals] of Object.entries(ENDINGS)) {
    Deno.test({
      name: `no sandbox process outlives ${name} (--sandbox ${sandbox})`,
      ignore: Deno.build.os !== "linux",
      fn: () =>
        withScratch(async (cwd) => {
          const cache = `${cwd}/cache`;
          const args = ["eval", "--tasks", "humaneval", "--data", DATA, "--ids", "53"]
            .concat("--allow-code-execution", "--sandbox", sandbox, "--score", "answers.jsonl");
          const rows = Array.from({ length: 4 }, () => {
            return { task_id: "HumanEval/53", solution: "while True: pass" };
          });
          await Deno.writeTextFile(`${cwd}/answers.jsonl`, jsonLines(...rows));
          const process = parscale(args, {
            cwd,
            env: { PARSCALE_CACHE: cache },
            stdin: "null",
            stdout: "null",
            stderr: "null",
          }).spawn();
          // References are known once the solutions' children run.
          const isBusy = async () =>
            await Deno.stat(`${cache}/expected`).then(() => true, () => false) &&
            (await children(cache)).length >= 2;
          assert(await until(isBusy, 60), "the sandbox did not start");
          await new Promise((resolve) => setTimeout(resolve, 1000));
          for (const signal of signals) process.kill(signal);
          const ended = until(async () => (await children(cache)).length === 0, 2);
          assert(await ended, "a sandbox process is alive two seconds later");
          const { success } = await process.status;
          assertEquals(success, false);
        }),
    });
  }
}
