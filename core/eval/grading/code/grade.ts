/**
 * Grades programs that a model wrote. This runs model-written code: the command line opens a grader
 * only after the user gave `--allow-code-execution`.
 *
 * The sandbox knows inputs and returns results; expected values are compared here, in another process,
 * so a solution passes only by answering right. A task whose code needs a module that the sandbox's
 * Python lacks is `unavailable`, which neither passes nor fails in silence.
 */
import type { End, Job, Outcome, Results, Sandbox } from "../../sandbox/job.ts";
import { runAll, totalLimit } from "../../sandbox/job.ts";
import { openSandboxes, type Sandboxes, type SandboxOptions } from "../../sandbox/open.ts";
import { CHECK, SANITIZE } from "../../sandbox/runner_text.ts";
import { EnvironmentError } from "../../../base/errors.ts";
import { usableCores } from "../../../base/platform/mod.ts";
import { compareWith } from "./comparison.ts";
import type { CodeProblem } from "./problems.ts";
import { missingModule, reasonOf } from "./reasons.ts";
import { patiently, type Reference, referenceProgram, References, slice } from "./reference.ts";
import { Slots } from "./slots.ts";

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
export interface GraderOptions extends Pick<SandboxOptions, "cacheFolder" | "shell"> {
  /** Programs run at once; by default one for each usable core, at most eight. */
  readonly workers?: number;
}

/** Opens the sandbox. */
export async function openGrader(
  { cacheFolder, shell, workers = Math.min(8, usableCores()) }: GraderOptions,
): Promise<Grader> {
  const sandboxes = await openSandboxes({ workers, cacheFolder, shell });
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

  async grade(problem: CodeProblem, solution: string): Promise<CodeResult> {
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
      // Whatever a program brings about, it fails its own row only.
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
    const { entryPoint } = problem;
    const { inputs, expected } = reference;
    if (inputs.length === 0) return { status: "pass" };
    const values = expected.map((text) => text.slice(1));
    let right = 0;
    let wrong: string | undefined;
    const end = await this.#runSolution(problem, solution, reference, () => {
      [right, wrong] = [0, undefined];
      const isRight = compareWith({ entryPoint, atol, inputs, expected: values });
      return ({ first, texts }) => {
        for (const [offset, text] of texts.entries()) {
          if (wrong !== undefined) return false;
          // Each input once and in order, whatever the sandbox says.
          const isNext = first + offset === right && right < inputs.length;
          if (isNext && text.startsWith("=") && holds(isRight, right, text.slice(1))) right++;
          else wrong = text;
        }
        return wrong === undefined;
      };
    });
    if (right === inputs.length && wrong === undefined && end.ending === "done") {
      return { status: "pass" };
    }
    if (wrong?.startsWith("=")) return { status: "fail", detail: `input ${right} is wrong` };
    return graded({ ...end, texts: [wrong ?? ""], seconds: [] });
  }

  /** Runs the solution on the calls of the check, then the check on the results. */
  async #check(
    problem: CodeProblem,
    test: string,
    solution: string,
    reference: Reference,
  ): Promise<Graded> {
    const { inputs } = reference;
    const texts: string[] = [];
    const end = await this.#runSolution(problem, solution, reference, () => {
      texts.length = 0;
      return (results) => {
        texts.push(...results.texts);
        return true;
      };
    });
    if (end.ending !== "done" || texts.length !== inputs.length) {
      return graded({ ...end, texts, seconds: [] });
    }
    const results = texts.map((text) => text.slice(1));
    const input = JSON.stringify([referenceProgram(problem), test, inputs, results]);
    const check = await runAll(this.#trusted, patiently(CHECK, "replay", [input], ""));
    return check.ending === "done"
      ? { status: "pass" }
      : { status: "fail", detail: reasonOf(check) };
  }

  /**
   * Runs a solution within the limits of its reference. One that exceeds them is run again while nothing
   * else runs, directly after its reference, with the limits of that run where these are larger and in
   * processor time: a busy machine must not change a score. `listen` makes a listener for each run.
   */
  async #runSolution(
    problem: CodeProblem,
    source: string,
    reference: Reference,
    listen: () => (results: Results) => boolean,
  ): Promise<End> {
    const { entryPoint } = problem;
    const { inputs, rule } = reference;
    const job = ({ limits, seconds }: Reference): Job => {
      return { source, entryPoint, inputs, rule, limits, totalLimit: totalLimit(limits, seconds) };
    };
    const end = await this.#solutions.run(job(reference), listen());
    if (end.ending !== "input_limit" && end.ending !== "killed") return end;
    return await this.slots.alone(async () => {
      const { solutions, trusted } = this.sandboxes;
      const now = await this.#references.measureAgain(problem, reference, trusted);
      return await solutions.run({ ...job(now), clock: "cpu" }, listen());
    });
  }
}

/** Returns whether a comparison holds; a text that the encoder does not write is wrong. */
function holds(isRight: ReturnType<typeof compareWith>, index: number, text: string): boolean {
  try {
    return isRight(index, text);
  } catch {
    return false;
  }
}

interface Graded {
  readonly status: Status;
  readonly detail?: string;
}

/** Returns the result of an unfinished run: only one that was ended as a whole is a timeout. */
function graded(run: Outcome): Graded {
  const detail = reasonOf(run);
  if (run.ending === "killed") return { status: "timeout", detail };
  return { status: missingModule(run) === undefined ? "fail" : "unavailable", detail };
}
