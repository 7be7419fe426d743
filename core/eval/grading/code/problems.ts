/**
 * Reads the problems of HumanEval, HumanEval+ and MBPP+.
 *
 * Test inputs stay text. A row of HumanEval+ looks like this (shortened):
 *
 * ```json
 * {"task_id": "HumanEval/53", "prompt": "def add(x: int, y: int): ...", "entry_point": "add",
 *  "canonical_solution": "    return x + y", "base_input": [[0, 1]], "plus_input": [[0, 0]], "atol": 0}
 * ```
 *
 * Plain HumanEval has a function `check(candidate)` under `test` instead of inputs.
 */
import { DataError } from "../../../base/errors.ts";
import { jsonValue } from "../../../base/files.ts";
import { arrayTexts, objectTexts } from "./json_text.ts";

/** The benchmarks whose answers are programs. */
export type Benchmark = "humaneval" | "mbpp";

/** Tests of a solution. */
export type CodeTests =
  | {
    readonly kind: "inputs";
    /** Argument lists as JSON; results are compared with the reference solution's. */
    readonly base: readonly string[];
    readonly plus: readonly string[];
    /** Absolute tolerance; 0 for none. */
    readonly atol: number;
  }
  | {
    readonly kind: "check";
    /** Python text that defines `check(candidate)`. */
    readonly test: string;
  };

/** One problem. */
export interface CodeProblem {
  /** `HumanEval/0`, `Mbpp/2`. */
  readonly taskId: string;
  /** Decides stops and the form of inputs. */
  readonly benchmark: Benchmark;
  /** As in the file. */
  readonly prompt: string;
  /** The function that tests call. */
  readonly entryPoint: string;
  /** Follows the prompt. */
  readonly canonicalSolution: string;
  /** Tests to pass. */
  readonly tests: CodeTests;
  /** Of a user's own problem: text after every program, and the function to reduce an answer to, if any. */
  readonly own?: { readonly suffix: string; readonly needed: string };
}

const PREFIX: Readonly<Record<Benchmark, string>> = { humaneval: "HumanEval/", mbpp: "Mbpp/" };

/** Problems of a file's text; `path` names it in messages. */
export function parseProblems(file: string, path: string, benchmark: Benchmark): CodeProblem[] {
  const problems = new Map<string, CodeProblem>();
  for (const [index, text] of file.split("\n").entries()) {
    if (text.trim() === "") continue;
    const fail: Fail = (problem, hints = []) =>
      new DataError(`line ${index + 1} of "${path}" ${problem}`, { hints });
    const problem = toProblem(text, benchmark, fail);
    if (problems.has(problem.taskId)) {
      throw fail(`repeats task "${problem.taskId}"`);
    }
    problems.set(problem.taskId, problem);
  }
  if (problems.size === 0) {
    throw new DataError(`"${path}" has no problems`);
  }
  return [...problems.values()];
}

/** Makes the error about a line; `problem` is a predicate, such as "repeats task …". */
type Fail = (problem: string, hints?: readonly string[]) => DataError;

function toProblem(text: string, benchmark: Benchmark, fail: Fail): CodeProblem {
  const row = objectTexts(text);
  if (!row) throw fail("is not a JSON object");
  const column = (name: string): string => {
    const value = jsonValue(row.get(name) ?? "");
    if (typeof value !== "string") {
      const columns = [...row.keys()].map((key) => `"${key}"`).join(", ");
      throw fail(`has no text in column "${name}": its columns are ${columns}`);
    }
    return value;
  };
  const taskId = column("task_id");
  if (!taskId.startsWith(PREFIX[benchmark])) {
    throw fail(`has task "${taskId}", expected "${PREFIX[benchmark]}..."`, [
      "pass the file of the other benchmark to the other task",
    ]);
  }
  return {
    taskId,
    benchmark,
    prompt: column("prompt"),
    entryPoint: column("entry_point"),
    canonicalSolution: column("canonical_solution"),
    tests: row.has("base_input") || benchmark === "mbpp"
      ? inputTests(row, fail)
      : { kind: "check", test: column("test") },
  };
}

const EVALPLUS = ["use the file that EvalPlus publishes"];

function inputTests(row: Map<string, string>, fail: Fail): CodeTests {
  const inputs = (name: string): string[] => {
    const text = row.get(name);
    // One published row has an empty object where it has no inputs.
    const lists = text === "{}" ? [] : arrayTexts(text ?? "");
    if (!lists?.every((list) => arrayTexts(list))) {
      throw fail(`has no list of argument lists in "${name}"`, EVALPLUS);
    }
    return lists;
  };
  const atol = jsonValue(row.get("atol") ?? "");
  if (typeof atol !== "number") throw fail('has no number in "atol"', EVALPLUS);
  return { kind: "inputs", base: inputs("base_input"), plus: inputs("plus_input"), atol };
}
