/** Attack 45: however the evaluator ends, no sandbox process outlives it. */
import { assertEquals } from "@std/assert";
import { DATA } from "../cli/eval_testing.ts";
import { jsonLines } from "../cli/models.ts";
import { parscale } from "../cli/run.ts";
import { withScratch } from "../scratch.ts";
import { until } from "../cli/serve_testing.ts";

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

const ENDINGS: Readonly<Record<string, readonly Deno.Signal[]>> = {
  "kill -9": ["SIGKILL"],
  "one SIGTERM": ["SIGTERM"],
  "SIGHUP": ["SIGHUP"],
  "one SIGINT": ["SIGINT"],
  "two SIGINTs": ["SIGINT", "SIGINT"],
};

// One cache for all, since a memory snapshot takes longer to make than the rest.
const CACHE = await Deno.makeTempDir();
addEventListener("unload", () => Deno.removeSync(CACHE, { recursive: true }));

// The evaluator handles signals alike in both; bubblewrap is another parent of the process.
for (const [sandbox, count] of [["auto", 5], ["pyodide", 2]] as const) {
  for (const [name, signals] of Object.entries(ENDINGS).slice(0, count)) {
    Deno.test({
      name: `no sandbox process outlives ${name} (--sandbox ${sandbox})`,
      ignore: Deno.build.os !== "linux",
      fn: () =>
        withScratch(async (cwd) => {
          const args = ["eval", "--tasks", "humaneval", "--data", DATA, "--ids", "53"]
            .concat("--allow-code-execution", "--sandbox", sandbox, "--score", "answers.jsonl");
          const row = { task_id: "HumanEval/53", solution: "while True: pass" };
          await Deno.writeTextFile(`${cwd}/answers.jsonl`, jsonLines(row, row));
          const expected = `${CACHE}/expected`;
          await Deno.remove(expected, { recursive: true }).catch(() => {});
          const process = parscale(args, {
            cwd,
            env: { PARSCALE_CACHE: CACHE },
            stdin: "null",
            stdout: "null",
            stderr: "null",
          }).spawn();
          // References are known once the solutions' children run.
          const isBusy = async () =>
            await Deno.stat(expected).then(() => true, () => false) &&
            (await children(CACHE)).length >= 2;
          await until(isBusy, "the sandbox starts");
          await new Promise((resolve) => setTimeout(resolve, 500));
          for (const signal of signals) process.kill(signal);
          // Their programs have no end of their own.
          await until(async () => (await children(CACHE)).length === 0, "sandbox processes end");
          const { success } = await process.status;
          assertEquals(success, false);
        }),
    });
  }
}
