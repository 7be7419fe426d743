/**
 * Grades programs that a model wrote. This runs model-written code: the command line opens a grader
 * only after the user gave `--allow-code-execution`.
 *
 * The sandbox knows inputs and returns results, which are compared with the expected values in another
 * process, so a solution passes only by answering right. A task whose code needs a module that the sandbox's
 * Python lacks is `unavailable`, which neither passes nor fails in silence.
 */
import type { Job, Outcome, Sandbox } from "../../sandbox/job.ts";
import { runAll, totalLimit } from "../../sandbox/job.ts";
import { openSandboxes, type Sandboxes, type SandboxOptions } from "../../sandbox/open.ts";
import { CHECK, COMPARE, SANITIZE } from "../../sandbox/runner_text.ts";
import { EnvironmentError } from "../../../base/errors.ts";
import { jsonDepth } from "../../../base/files.ts";
import { usableCores } from "../../../base/platform/mod.ts";
import type { CodeProblem } from "./problems.ts";
import { missingModule, reasonOf } from "./reasons.ts";
import { patiently, type Reference, referenceProgram, References, slice } from "./reference.ts";
import { Slots } from "./slots.ts";

/** Seconds for one comparison, which takes 0.3 for texts of 1 MiB, and for all of a solution. */
const COMPARISON = { call: 10, all: 60 };

/** Deepest nesting of a result that is read, in brackets. */
const DEEPEST = 500;

/** Result of a set of tests; only `pass` counts. */
export type Status = "pass" | "fail" | "timeout" | "unavailable";

/** The grade of one solution. */
export interface CodeResult {
  /** The base inputs, or the check of plain HumanEval. */
  readonly base: Status;
  /** Base and plus inputs together; null where there are no plus inputs. */
  readonly plus: Status | null;
  /** Reason of a result other than `pass`, as text. */
  readonly detail?: string;
}

/** Grades solutions; dispose of it to end its processes. */
export interface Grader extends AsyncDisposable {
  /** `bwrap` where the interpreter runs inside bubblewrap, else `pyodide`. */
  readonly sandbox: "pyodide" | "bwrap";
  /** Belongs into the record of results: newer versions accept other programs. */
  readonly pythonVersion: string;
  /** The program in a model's answer, by the rules of EvalPlus. */
  sanitize(text: string, entryPoint: string): Promise<string>;
  /** Runs the problem's tests on a whole program. */
  grade(problem: CodeProblem, solution: string): Promise<CodeResult>;
}

/** Options of opening a grader. */
export interface GraderOptions extends Pick<SandboxOptions, "shell"> {
  /** Folder for results of reference solutions. */
  readonly cacheFolder: string;
  /** Programs run at once; by default one for each usable core, at most eight. */
  readonly workers?: number;
}

/** Opens the sandbox. */
export async function openGrader(
  { cacheFolder, shell, workers = Math.min(8, usableCores()) }: GraderOptions,
): Promise<Grader> {
  const sandboxes = await openSandboxes({ workers, shell });
  return new SandboxGrader(sandboxes, new Slots(workers), cacheFolder);
}

class SandboxGrader implements Grader {
  readonly sandbox: "pyodide" | "bwrap";
  readonly pythonVersion: string;
  /** Model-written programs. */
  readonly #solutions: Sandbox;
  /** Everything else. */
  readonly #trusted: Sandbox;
  readonly #references: References;
  /** By problem and solution: models often answer the same. */
  readonly #graded = new Map<string, Promise<CodeResult>>();

  constructor(
    private readonly sandboxes: Sandboxes,
    private readonly slots: Slots,
    cacheFolder: string,
  ) {
    this.sandbox = sandboxes.shell === "bwrap" ? "bwrap" : "pyodide";
    this.pythonVersion = sandboxes.pythonVersion;
    // No more jobs at a time than processors: load would shift the clocks of the others.
    this.#solutions = slots.limit(sandboxes.solutions);
    this.#trusted = slots.limit(sandboxes.trusted);
    this.#references = new References(this.#trusted, this.pythonVersion, cacheFolder);
  }

  async sanitize(text: string, entryPoint: string): Promise<string> {
    const input = JSON.stringify([text, entryPoint]);
    const { ending, texts } = await runAll(
      this.#trusted,
      patiently(SANITIZE, "sanitize", [input], ""),
    );
    // A text on which even the parser dies stays as it is, and will fail its tests.
    const sanitized = ending === "done" ? JSON.parse(texts[0]!.slice(1)) : text;
    return typeof sanitized === "string" ? sanitized : text;
  }

  grade(problem: CodeProblem, solution: string): Promise<CodeResult> {
    const key = `${problem.taskId} ${solution}`;
    return this.#graded.getOrInsertComputed(key, () => this.#grade(problem, solution));
  }

  async #grade(problem: CodeProblem, solution: string): Promise<CodeResult> {
    const { tests } = problem;
    try {
      const reference = await this.#references.of(problem);
      if ("unavailable" in reference) {
        const plus = tests.kind === "inputs" ? "unavailable" : null;
        return { base: "unavailable", plus, detail: reference.unavailable };
      }
      if (tests.kind === "check") {
        const { status, detail } = await this.#check(problem, tests.test, solution, reference);
        return { base: status, plus: null, detail };
      }
      const part = (from: number, to?: number) =>
        this.#compare(problem, tests.atol, solution, slice(reference, from, to));
      const base = await part(0, reference.base);
      const plus = base.status === "pass" ? await part(reference.base) : base;
      return { base: base.status, plus: plus.status, detail: plus.detail };
    } catch (error) {
      if (error instanceof EnvironmentError) throw error;
      // An error that a program causes fails its own row only.
      const detail = `grading failed: ${error instanceof Error ? error.message : error}`;
      return { base: "fail", plus: tests.kind === "inputs" ? "fail" : null, detail };
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.sandboxes[Symbol.asyncDispose]();
  }

  /** Compares each result with the reference's. */
  async #compare(
    problem: CodeProblem,
    atol: number,
    solution: string,
    reference: Reference,
  ): Promise<Graded> {
    if (reference.inputs.length === 0) return { status: "pass" };
    return await this.#runSolution(problem, solution, reference, async (run) => {
      const wrong = await this.#firstWrong(problem, atol, reference, run.texts);
      return wrong === undefined ? run : failed(`input ${wrong} is wrong`);
    });
  }

  /**
   * Returns the index of the first wrong result. Equal texts are right; the values of others are compared
   * in the trusted child, which reads them as data.
   */
  async #firstWrong(
    { entryPoint }: CodeProblem,
    atol: number,
    { inputs, expected }: Reference,
    texts: readonly string[],
  ): Promise<number | undefined> {
    const others = texts.flatMap((text, i) => isValue(text) && text !== expected[i] ? [i] : []);
    if (others.length === 0) return undefined;
    const questions = others.map((index, i) => {
      const known = expected.slice((others[i - 1] ?? -1) + 1, index + 1);
      const values = known.map((text) => text.slice(1));
      return JSON.stringify([entryPoint, atol, values, inputs[index], readable(texts[index]!)]);
    });
    const job = patiently(COMPARE, "compare", questions, "", COMPARISON);
    const compared = await runAll(this.#trusted, job);
    if (compared.ending === "done") return undefined;
    return others[compared.texts.filter(isValue).length] ?? others.at(-1);
  }

  /** Runs the solution on the calls of the check, then the check on the results. */
  async #check(
    problem: CodeProblem,
    test: string,
    solution: string,
    reference: Reference,
  ): Promise<Graded> {
    return await this.#runSolution(problem, solution, reference, async (run) => {
      if (run.ending !== "done") return run;
      const results = run.texts.map(readable);
      const input = JSON.stringify([referenceProgram(problem), test, reference.inputs, results]);
      const check = await runAll(this.#trusted, patiently(CHECK, "replay", [input], ""));
      return check.ending === "done" ? run : failed(reasonOf(check));
    });
  }

  /**
   * Runs a solution within the limits of its reference and grades it by what `test` makes of the run. One
   * that exceeds them is run again while nothing else runs, directly after its reference, with the limits
   * of that run where these are larger and in processor time: a busy machine must not change a score.
   */
  async #runSolution(
    problem: CodeProblem,
    source: string,
    reference: Reference,
    test: (run: Outcome) => Promise<Outcome>,
  ): Promise<Graded> {
    const { entryPoint } = problem;
    const { inputs, rule } = reference;
    const job = ({ limits, seconds }: Reference): Job => {
      return { source, entryPoint, inputs, rule, limits, totalLimit: totalLimit(limits, seconds) };
    };
    const run = await test(await runInOrder(this.#solutions, job(reference)));
    if (run.ending !== "input_limit" && run.ending !== "killed") return graded(run);
    const again = await this.slots.alone(async () => {
      const { solutions, trusted } = this.sandboxes;
      const now = await this.#references.measureAgain(problem, reference, trusted);
      return await runInOrder(solutions, { ...job(now), clock: "cpu" });
    });
    return graded(await test(again));
  }
}

/** Runs a job whose sandbox may lie: it is done only with a value for each input, once and in order. */
async function runInOrder(sandbox: Sandbox, job: Job): Promise<Outcome> {
  const count = job.inputs.length;
  const texts: string[] = [];
  let inOrder = true;
  const end = await sandbox.run(job, (results) => {
    inOrder &&= results.first === texts.length && texts.length + results.texts.length <= count;
    if (!inOrder) return false;
    texts.push(...results.texts);
    return true;
  });
  const isWhole = inOrder && texts.length === count && texts.every(isValue);
  return end.ending === "done" && !isWhole
    ? failed("the results are not those of the inputs")
    : { ...end, texts, seconds: [] };
}

/** Returns whether a text of the sandbox holds a value. */
function isValue(text: string): boolean {
  return text.startsWith("=");
}

/** Returns the value of a result; empty, which is wrong, where its nesting would end the interpreter. */
function readable(text: string): string {
  return jsonDepth(text) > DEEPEST ? "" : text.slice(1);
}

interface Graded {
  readonly status: Status;
  readonly detail?: string;
}

/** The outcome of a run whose last call failed. */
function failed(detail: string): Outcome {
  return { ending: "call", texts: [`!${detail}`], seconds: [] };
}

/** Returns the result of a run; it is a timeout only if the whole run was killed. */
function graded(run: Outcome): Graded {
  if (run.ending === "done") return { status: "pass" };
  const detail = reasonOf(run);
  if (run.ending === "killed") return { status: "timeout", detail };
  return { status: missingModule(run) === undefined ? "fail" : "unavailable", detail };
}
