/**
 * The reference solutions of HumanEval, HumanEval+ and MBPP+ pass their own tests in the sandbox.
 *
 * By default with all base inputs and the first few plus inputs of each task, which finds a wrong
 * rebuilding or comparison, of every other task of HumanEval and every third of MBPP+; with
 * `PARSCALE_LONG_TESTS=1` all of them with all 165,000 inputs, which takes minutes, and beside other load.
 */
import { assertEquals } from "@std/assert";
import type { Benchmark, CodeProblem } from "../../core/eval/grading/code/problems.ts";
import { readProblems } from "../code_problems.ts";
import { openGrader } from "../../core/eval/grading/code/grade.ts";
import { bubblewrapWorks } from "./sandbox_programs.ts";
import { FIXTURES } from "../fixtures.ts";

const DATA = `${FIXTURES}eval/data/`;
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

/** File, its benchmark and the number of its tasks. */
type Tasks = readonly [file: string, benchmark: Benchmark, tasks: number];
const HUMANEVAL: Tasks = ["humaneval/HumanEval.jsonl.gz", "humaneval", 164];
const HUMANEVAL_PLUS: Tasks = ["humaneval_plus/HumanEvalPlus.jsonl.gz", "humaneval", 164];
const MBPP_PLUS: Tasks = ["mbpp_plus/MbppPlus.jsonl.gz", "mbpp", 378];

/** Grades one task in `every`. */
async function grade(
  [file, benchmark, tasks]: Tasks,
  every: number,
  shell: "none" | "bwrap" = "none",
): Promise<void> {
  const problems = (await readProblems(`${DATA}${file}`, benchmark)).map(shortened);
  assertEquals(problems.length, tasks);
  const chosen = problems.filter((_, index) => IN_FULL || index % every === 0);
  await using grader = await openGrader({ shell, cacheFolder: CACHE });
  const results = await Promise.all(
    chosen.map((problem) => grader.grade(problem, problem.prompt + problem.canonicalSolution)),
  );
  const wrong = results.flatMap((result, index) =>
    result.base === "pass" ? [] : [{ task: chosen[index]!.taskId, ...result }]
  );
  assertEquals(wrong, []);
}

Deno.test("HumanEval passes by its checks", () => grade(HUMANEVAL, 2));

Deno.test("HumanEval+ passes", () => grade(HUMANEVAL_PLUS, 1));

Deno.test("MBPP+ passes", () => grade(MBPP_PLUS, 3));

Deno.test("neither bubblewrap nor load on the machine changes a score", async () => {
  const busy = [1, 2].map(() =>
    new Deno.Command(Deno.execPath(), { args: ["eval", "while (true);"] }).spawn()
  );
  const shell = await bubblewrapWorks() ? "bwrap" : "none";
  try {
    await grade(HUMANEVAL_PLUS, 16, shell);
    await grade(MBPP_PLUS, 24, shell);
  } finally {
    busy.forEach((process) => process.kill("SIGKILL"));
    await Promise.all(busy.map(({ status }) => status));
  }
});
