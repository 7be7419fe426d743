/** Problems of HumanEval+ and MBPP+, and what EvalPlus says of them. */
import type { Benchmark, CodeProblem } from "../../../../core/eval/grading/code/problems.ts";
import { readProblems } from "../../../code_problems.ts";
import { fixtureRows, FIXTURES } from "../../../fixtures.ts";

export const FILES: Readonly<Record<Benchmark, string>> = {
  humaneval: `${FIXTURES}eval/data/humaneval_plus/HumanEvalPlus.jsonl.gz`,
  mbpp: `${FIXTURES}eval/data/mbpp_plus/MbppPlus.jsonl.gz`,
};
export const PLAIN = `${FIXTURES}eval/data/humaneval/HumanEval.jsonl.gz`;

/** Rows of a golden file. */
export const golden = (name: string) => fixtureRows(`golden/eval/cases_evalplus_${name}.jsonl`);

const PROBLEMS = {
  humaneval: await readProblems(FILES.humaneval, "humaneval"),
  mbpp: await readProblems(FILES.mbpp, "mbpp"),
};

/** A problem by its id. */
export function find(benchmark: Benchmark, taskId: string): CodeProblem {
  return PROBLEMS[benchmark].find((problem) => problem.taskId === taskId)!;
}
