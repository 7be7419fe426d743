/** No process of `parscale compare` outlives it, however it ends. */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { DATA, TINY } from "../cli/eval_testing.ts";
import { parscale } from "../cli/run.ts";
import { withScratch } from "../scratch.ts";
import { until } from "../cli/serve_testing.ts";

/** Process ids of the children of a process. */
function childrenOf(pid: number): number[] {
  try {
    const text = Deno.readTextFileSync(`/proc/${pid}/task/${pid}/children`);
    return text.split(" ").filter((id) => id !== "").map(Number);
  } catch {
    return [];
  }
}

/** Zombies have ended, but their exit code has not been read. */
function isAlive(pid: number): boolean {
  try {
    return !/^State:\s+Z/m.test(Deno.readTextFileSync(`/proc/${pid}/status`));
  } catch {
    return false;
  }
}

function exists(path: string): boolean {
  try {
    return Deno.statSync(path).size > 0;
  } catch {
    return false;
  }
}

/** Ends a comparison in the middle of its first evaluation. */
async function endedBy(signal: Deno.Signal) {
  return await withScratch(async (cwd) => {
    const work = ["--tasks", "gsm8k", "--data", DATA, "--max-tokens", "200", "--batch", "1"];
    const child = parscale(
      ["compare", "--model", TINY, "--beams", "4", ...work, "--out", "table"],
      { cwd, stdin: "null", stdout: "piped", stderr: "piped" },
    ).spawn();
    const output = Promise.all([
      new Response(child.stderr).text(),
      new Response(child.stdout).text(),
    ]);
    const begun = () => Promise.resolve(exists(`${cwd}/table/p1/samples.jsonl`));
    await until(begun, "the evaluation begins");
    const children = childrenOf(child.pid);
    assert(children.length > 0, "an evaluation runs in a child");
    child.kill(signal);
    const { code } = await child.status;
    await until(() => Promise.resolve(!children.some(isAlive)), "children end");
    assert(!exists(`${cwd}/table/p1/results.json`), `a child outlives ${signal}`);
    return { code, stderr: (await output)[0] };
  });
}

Deno.test({
  name: "compare ends its children on SIGINT, SIGTERM, SIGHUP and kill -9",
  ignore: Deno.build.os !== "linux",
  async fn() {
    for (const [signal, code] of [["SIGINT", 130], ["SIGTERM", 143], ["SIGHUP", 143]] as const) {
      const ended = await endedBy(signal);
      assertEquals(ended.code, code);
      const hint = "hint: finished answers are in table; run the same command again to continue";
      assertStringIncludes(ended.stderr, hint);
    }
    assertEquals((await endedBy("SIGKILL")).code, 137);
  },
});
