/**
 * Every reference solution of HumanEval, HumanEval+ and MBPP+ passes its own tests in the sandbox.
 *
 * By default with all base inputs and the first few plus inputs of each task, which finds a wrong
 * rebuilding or comparison; with `PARSCALE_LONG_TESTS=1` with all 165,000, which takes minutes.
 */
import { assertEquals } from "@std/assert";
import {
  type Benchmark,
  type CodeProblem,
  openGrader,
  readProblems,
} from "../../core/eval/code/mod.ts";

const DATA = new URL("../../fixtures/eval/data/", import.meta.url).pathname;
const PLUS_INPUTS = Deno.env.get("PARSCALE_LONG_TESTS") === "1" ? Infinity : 8;
const CACHE = await Deno.makeTempDir();
addEventListener("unload", () => Deno.removeSync(CACHE, { recursive: true }));

function shortened(problem: CodeProblem): CodeProblem {
  const { tests } = problem;
  if (tests.kind === "check") return problem;
  return { ...problem, tests: { ...tests, plus: tests.plus.slice(0, PLUS_INPUTS) } };
}

async function grade(file: string, benchmark: Benchmark, lane: "pyodide" | "bwrap", every = 1) {
  const problems = (await readProblems(`${DATA}${file}`, benchmark)).map(shortened);
  const chosen = problems.filter((_, index) => index % every === 0);
  // The machine may be busy with other tests.
  await using grader = await openGrader({ lane, cacheFolder: CACHE, timeScale: 10 });
  const verdicts = await Promise.all(
    chosen.map((problem) => grader.grade(problem, problem.prompt + problem.canonicalSolution)),
  );
  const wrong = verdicts.flatMap((verdict, index) => {
    const passed = verdict.base === "pass" && (verdict.plus ?? "pass") === "pass";
    return passed ? [] : [{ task: chosen[index]!.taskId, ...verdict }];
  });
  assertEquals(wrong, []);
  return chosen.length;
}

Deno.test("all 164 of HumanEval pass by their checks", async () => {
  assertEquals(await grade("humaneval/HumanEval.jsonl.gz", "humaneval", "pyodide"), 164);
});

Deno.test("all 164 of HumanEval+ pass", async () => {
  assertEquals(await grade("humaneval_plus/HumanEvalPlus.jsonl.gz", "humaneval", "pyodide"), 164);
});

Deno.test("all 378 of MBPP+ pass", async () => {
  assertEquals(await grade("mbpp_plus/MbppPlus.jsonl.gz", "mbpp", "pyodide"), 378);
});

const hasBubblewrap = await openGrader({ lane: "bwrap", workers: 1, cacheFolder: CACHE }).then(
  async (grader) => (await grader[Symbol.asyncDispose](), true),
  () => false,
);

Deno.test({
  name: "every fourth of HumanEval+ and MBPP+ passes under bubblewrap",
  ignore: !hasBubblewrap,
  fn: async () => {
    await grade("humaneval_plus/HumanEvalPlus.jsonl.gz", "humaneval", "bwrap", 4);
    await grade("mbpp_plus/MbppPlus.jsonl.gz", "mbpp", "bwrap", 4);
  },
});
