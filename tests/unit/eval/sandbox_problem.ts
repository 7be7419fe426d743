/** A problem whose solution is one line. */
import type { CodeProblem } from "../../../core/eval/grading/code/problems.ts";

export const PROBLEM: CodeProblem = {
  taskId: "HumanEval/1000",
  benchmark: "humaneval",
  prompt: "",
  entryPoint: "f",
  canonicalSolution: "def f(x):\n    return x * 31 + 7\n",
  tests: { kind: "inputs", base: ["[1]", "[2]"], plus: ["[3]"], atol: 0 },
};
