/**
 * Every reference solution of HumanEval, HumanEval+ and MBPP+ passes its own tests in the sandbox.
 *
 * By default with all base inputs and the first few plus inputs of each task, which finds a wrong
 * rebuilding or comparison; with `PARSCALE_LONG_TESTS=1` with all 165,000, which takes minutes, and all
 * of them beside other load.
 */
import { fileURLToPath } from "node:url";
import { assertEquals } from "@std/assert";
import type { Benchmark, CodeProblem } from "../../core/eval/grading/code/problems.ts";
import { readProblems } from "../code_problems.ts";
import { openGrader } from "../../core/eval/grading/code/grade.ts";
import { bubblewrapWorks } from "./sandbox_programs.ts";

const DATA = fileURLToPath(new URL("../../fixtures/eval/data/", import.meta.url));
const IN_FULL = Deno.env.get("PARSCALE_LONG_TESTS") === "1";
const PLUS_INPUTS = IN_FULL ? Infinity : 8;
const CACHE = await Deno.makeTempDir();
addEventListener("unload", () => Deno.removeSync(CACHE, { recursive: true }));

function shortened(problem: CodeProblem): CodeProblem {
  const { tests } = problem;
  if (tests.kind === "check") return problem;
  return { ...problem, tests: { ...tests, plus: tests.plus.slice(0, PLUS_INPUTS) } };
}

async function grade(
  file: string,
  benchmark: Benchmark,
  shell: "none" | "bwrap",
  every = 1,
): Promise<number> {
  const problems = (await readProblems(`${DATA}${file}`, benchmark)).map(shortened);
  const chosen = problems.filter((_, index) => index % every === 0);
  await using grader = await openGrader({ shell, cacheFolder: CACHE });
  const results = await Promise.all(
    chosen.map((problem) => grader.grade(problem, problem.prompt + problem.canonicalSolution)),
  );
  const wrong = results.flatMap((result, index) => {
    const passed = result.base === "pass" && (result.plus ?? "pass") === "pass";
    return passed ? [] : [{ task: chosen[index]!.taskId, ...result }];
  });
  assertEquals(wrong, []);
  return chosen.length;
}

const HUMANEVAL = "humaneval_plus/HumanEvalPlus.jsonl.gz";
const MBPP = "mbpp_plus/MbppPlus.jsonl.gz";

Deno.test("all 164 of HumanEval pass by their checks", async () => {
  assertEquals(await grade("humaneval/HumanEval.jsonl.gz", "humaneval", "none"), 164);
});

Deno.test("all 164 of HumanEval+ pass", async () => {
  assertEquals(await grade(HUMANEVAL, "humaneval", "none"), 164);
});

Deno.test("all 378 of MBPP+ pass", async () => {
  assertEquals(await grade(MBPP, "mbpp", "none"), 378);
});

Deno.test("load on the machine changes no score: every fourth passes beside two busy loops", async () => {
  const busy = [1, 2].map(() =>
    new Deno.Command(Deno.execPath(), { args: ["eval", "while (true);"] }).spawn()
  );
  try {
    const every = IN_FULL ? 1 : 4;
    await grade(HUMANEVAL, "humaneval", "none", every);
    await grade(MBPP, "mbpp", "none", every);
  } finally {
    busy.forEach((process) => process.kill("SIGKILL"));
    await Promise.all(busy.map(({ status }) => status));
  }
});

const hasBubblewrap = await bubblewrapWorks();

Deno.test({
  name: "every fourth of HumanEval+ and MBPP+ passes under bubblewrap",
  ignore: !hasBubblewrap,
  fn: async () => {
    await grade(HUMANEVAL, "humaneval", "bwrap", 4);
    await grade(MBPP, "mbpp", "bwrap", 4);
  },
});
