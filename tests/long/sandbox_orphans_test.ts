/** Attack 45: however the evaluator ends, no sandbox process outlives it. */
import { assertEquals } from "@std/assert";
import { DATA } from "../cli/eval_testing.ts";
import { jsonLines } from "../cli/models.ts";
import { parscale } from "../cli/run.ts";
import { withScratch } from "../scratch.ts";
import { until } from "../cli/serve_testing.ts";

const readProcess = async (id: number, name: string) =>
  await Deno.readTextFile(`/proc/${id}/${name}`).catch(() => "");

/** Those of `ids` that are processes of the sandbox. */
async function sandboxed(ids: readonly number[]): Promise<number[]> {
  const lines = await Promise.all(ids.map((id) => readProcess(id, "cmdline")));
  return ids.filter((_, i) => lines[i]!.includes("sandbox/child.ts"));
}

/** Processes that a process started, from any of its threads, and those that these started. */
async function descendants(id: number): Promise<number[]> {
  const threads = await Array.fromAsync(Deno.readDir(`/proc/${id}/task`)).catch(() => []);
  const lists = await Promise.all(
    threads.map(({ name }) => readProcess(id, `task/${name}/children`)),
  );
  const ids = (lists.join(" ").match(/\d+/g) ?? []).map(Number);
  return [...ids, ...(await Promise.all(ids.map(descendants))).flat()];
}

const ENDINGS: Readonly<Record<string, readonly Deno.Signal[]>> = {
  "kill -9": ["SIGKILL"],
  "one SIGTERM": ["SIGTERM"],
  "SIGHUP": ["SIGHUP"],
  "one SIGINT": ["SIGINT"],
  "two SIGINTs": ["SIGINT", "SIGINT"],
};

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
          const expected = `${cwd}/cache/expected`;
          const process = parscale(args, {
            cwd,
            env: { PARSCALE_CACHE: `${cwd}/cache` },
            stdin: "null",
            stdout: "null",
            stderr: "null",
          }).spawn();
          // References are known once the solutions' children run.
          let ids: number[] = [];
          const isBusy = async () => {
            ids = await sandboxed(await descendants(process.pid));
            return ids.length >= 2 && await Deno.stat(expected).then(() => true, () => false);
          };
          await until(isBusy, "the sandbox starts");
          await new Promise((resolve) => setTimeout(resolve, 500));
          assertEquals(await sandboxed(ids), ids);
          for (const signal of signals) process.kill(signal);
          // Their programs have no end of their own.
          await until(async () => (await sandboxed(ids)).length === 0, "sandbox processes end");
          const { success } = await process.status;
          assertEquals(success, false);
        }),
    });
  }
}
