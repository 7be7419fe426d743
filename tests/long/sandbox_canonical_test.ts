/**
 * The reference solutions of HumanEval, HumanEval+ and MBPP+ pass their own tests in the sandbox.
 *
 * By default with all base inputs and the first few plus inputs of each task, which finds a wrong
 * rebuilding or comparison, and every third of MBPP+; with `PARSCALE_LONG_TESTS=1` all of them with all
 * 165,000 inputs, which takes minutes, and beside other load.
 */
import { fileURLToPath } from "node:url";
import { assertEquals } from "@std/assert";
import type { Benchmark, CodeProblem } from "../../core/eval/grading/code/problems.ts";
import { readProblems } from "../code_problems.ts";
import { openGrader } from "../../core/eval/grading/code/grade.ts";
import { bubblewrapWorks } from "./sandbox_programs.ts";

const DATA = fileURLToPath(new URL("../../fixtures/eval/data/", import.meta.url));
const IN_FULL = Deno.env.get("PARSCALE_LONG_TESTS") === "1";
const PLUS_INPUTS = IN_FULL ? Infinity : 3;
const CACHE = await Deno.makeTempDir();
addEventListener("unload", () => Deno.removeSync(CACHE, { recursive: true }));

/** Base inputs and some plus inputs as one list, which takes one run of a solution rather than two. */
function shortened(problem: CodeProblem): CodeProblem {
  const { tests } = problem;
  if (tests.kind === "check") return problem;
  const base = [...tests.base, ...tests.plus.slice(0, PLUS_INPUTS)];
  return { ...problem, tests: { ...tests, base, plus: [] } };
}

async function grade(
  file: string,
  benchmark: Benchmark,
  shell: "none" | "bwrap" = "none",
  every = 1,
): Promise<number> {
  const problems = (await readProblems(`${DATA}${file}`, benchmark)).map(shortened);
  const chosen = problems.filter((_, index) => index % every === 0);
  await using grader = await openGrader({ shell, cacheFolder: CACHE });
  const results = await Promise.all(
    chosen.map((problem) => grader.grade(problem, problem.prompt + problem.canonicalSolution)),
  );
  const wrong = results.flatMap((result, index) =>
    result.base === "pass" ? [] : [{ task: chosen[index]!.taskId, ...result }]
  );
  assertEquals(wrong, []);
  return chosen.length;
}

const HUMANEVAL = "humaneval_plus/HumanEvalPlus.jsonl.gz";
const MBPP = "mbpp_plus/MbppPlus.jsonl.gz";

Deno.test("all 164 of HumanEval pass by their checks", async () => {
  assertEquals(await grade("humaneval/HumanEval.jsonl.gz", "humaneval"), 164);
});

Deno.test("all 164 of HumanEval+ pass", async () => {
  assertEquals(await grade(HUMANEVAL, "humaneval"), 164);
});

Deno.test("MBPP+ passes", async () => {
  const every = IN_FULL ? 1 : 3;
  assertEquals(await grade(MBPP, "mbpp", "none", every), 378 / every);
});

Deno.test("neither bubblewrap nor load on the machine changes a score", async () => {
  const busy = [1, 2].map(() =>
    new Deno.Command(Deno.execPath(), { args: ["eval", "while (true);"] }).spawn()
  );
  const shell = await bubblewrapWorks() ? "bwrap" : "none";
  const every = IN_FULL ? 1 : 8;
  try {
    await grade(HUMANEVAL, "humaneval", shell, every);
    await grade(MBPP, "mbpp", shell, every);
  } finally {
    busy.forEach((process) => process.kill("SIGKILL"));
    await Promise.all(busy.map(({ status }) => status));
  }
});
