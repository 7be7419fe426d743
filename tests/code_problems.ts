/** Problems of HumanEval and MBPP from their files, compressed or not. */
import { gunzipSync } from "node:zlib";
import {
  type Benchmark,
  type CodeProblem,
  parseProblems,
} from "../core/eval/grading/code/problems.ts";

export async function readProblems(path: string, benchmark: Benchmark): Promise<CodeProblem[]> {
  const bytes = await Deno.readFile(path);
  const text = new TextDecoder().decode(path.endsWith(".gz") ? gunzipSync(bytes) : bytes);
  return parseProblems(text, path, benchmark);
}
