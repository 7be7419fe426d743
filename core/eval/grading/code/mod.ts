/**
 * Python problems: reading them, asking for solutions, and grading these in a sandbox.
 *
 * Nothing here runs model-written code until `openGrader` is called.
 */
export {
  type CodeResult,
  type Grader,
  type GraderOptions,
  openGrader,
  type Status,
} from "./grade.ts";
export { type Benchmark, type CodeProblem, type CodeTests, readProblems } from "./problems.ts";
export { CODE_TOKENS, codePrompt, codeStops, truncate } from "./prompts.ts";
