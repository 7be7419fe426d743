/** A problem whose solution is one line, and a folder for what a grader keeps. */
import type { CodeProblem } from "../../../core/eval/grading/code/problems.ts";

export const PROBLEM: CodeProblem = {
  taskId: "HumanEval/1000",
  benchmark: "humaneval",
  prompt: "",
  entryPoint: "f",
  canonicalSolution: "def f(x):\n    return x * 31 + 7\n",
  tests: { kind: "inputs", base: ["[1]", "[2]"], plus: ["[3]"], atol: 0 },
};

/** Runs a test with a folder that is gone afterwards. */
export async function withFolder(test: (folder: string) => Promise<void>): Promise<void> {
  const folder = await Deno.makeTempDir();
  try {
    await test(folder);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}
