/**
 * Grades programs that a model wrote. This runs model-written code: the command line opens a grader
 * only after the user gave `--allow-code-execution`.
 *
 * Comes in: problems and solutions, many at once. Goes out: verdicts. The sandbox knows inputs and
 * returns results; expected values are compared here, in another process, so a solution passes only
 * by answering right. A task whose code needs a module that the lane's Python lacks is `unavailable`,
 * which is no pass but no silent fail either.
 */
import { openBubblewrap } from "./bwrap_lane.ts";
import { judge } from "./judge.ts";
import type { CodeProblem } from "./problems.ts";
import { openPyodide } from "./pyodide_lane.ts";
import {
  missingModule,
  patiently,
  reasonOf,
  type Reference,
  referenceProgram,
  References,
} from "./reference.ts";
import { CHECK, SANITIZE } from "./runner_text.ts";
import {
  type Lane,
  type Outcome,
  type Results,
  runAll,
  type Sandbox,
  totalLimit,
} from "./sandbox.ts";

/** How a set of tests went; only `pass` counts. */
export type Status = "pass" | "fail" | "timeout" | "unavailable";

/** The grade of one solution. */
export interface CodeVerdict {
  /** The base inputs, or the check of plain HumanEval. */
  readonly base: Status;
  /** Base and plus inputs together; null where there are no plus inputs. */
  readonly plus: Status | null;
  /** Why it is not `pass`, for people. */
  readonly detail?: string;
}

/** Grades solutions in one lane; dispose of it to end its processes. */
export interface Grader extends AsyncDisposable {
  /** Where programs run. */
  readonly lane: Lane;
  /** Belongs into the record of results: newer versions accept other programs. */
  readonly pythonVersion: string;
  /** The program in a model's answer, by the rules of EvalPlus. */
  sanitize(text: string, entryPoint: string): Promise<string>;
  /** Runs the problem's tests on a whole program. */
  grade(problem: CodeProblem, solution: string): Promise<CodeVerdict>;
}

/** How to open a grader. */
export interface GraderOptions {
  /** Where programs run. */
  readonly lane: Lane;
  /** Where snapshots and expected results are kept. */
  readonly cacheFolder: string;
  /** Programs run at once; by default one for each processor, at most eight. */
  readonly workers?: number;
  /** Memory limit of a program; by default 512 MiB, and 4 GiB under bubblewrap. */
  readonly memoryBytes?: number;
  /** Multiplies all time limits, for a machine that is busy with other work; 1 by default. */
  readonly timeScale?: number;
}

/** Opens the lane and its first interpreter. */
export async function openGrader(options: GraderOptions): Promise<Grader> {
  const workers = options.workers ?? Math.min(8, navigator.hardwareConcurrency);
  const { cacheFolder } = options;
  const sandbox = options.lane === "pyodide"
    ? await openPyodide({
      workers,
      memoryBytes: options.memoryBytes ?? 512 * 2 ** 20,
      cacheFolder,
    })
    : await openBubblewrap({ workers, memoryBytes: options.memoryBytes ?? 4 * 2 ** 30 });
  return new SandboxGrader(sandbox, new References(sandbox, cacheFolder, options.timeScale ?? 1));
}

class SandboxGrader implements Grader {
  readonly #sandbox: Sandbox;
  readonly #references: References;

  constructor(sandbox: Sandbox, references: References) {
    this.#sandbox = sandbox;
    this.#references = references;
  }

  get lane(): Lane {
    return this.#sandbox.lane;
  }

  get pythonVersion(): string {
    return this.#sandbox.pythonVersion;
  }

  async sanitize(text: string, entryPoint: string): Promise<string> {
    const input = JSON.stringify([text, entryPoint]);
    const job = patiently(SANITIZE, "sanitize", [input], "");
    const { ending, texts } = await runAll(this.#sandbox, job);
    // A text on which even the parser dies stays as it is, and will fail its tests.
    const sanitized = ending === "done" ? JSON.parse(texts[0]!.slice(1)) : text;
    return typeof sanitized === "string" ? sanitized : text;
  }

  async grade(problem: CodeProblem, solution: string): Promise<CodeVerdict> {
    const { tests } = problem;
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
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#sandbox[Symbol.asyncDispose]();
  }

  /** Compares each result with the reference's. */
  async #compare(
    { entryPoint }: CodeProblem,
    atol: number,
    solution: string,
    { inputs, rule, expected, limits, seconds }: Reference,
  ): Promise<Judged> {
    if (inputs.length === 0) return { status: "pass" };
    const values = expected.map((text) => text.slice(1));
    const judgeResult = judge({ entryPoint, atol, inputs, expected: values });
    const isRight = (index: number, text: string) => {
      try {
        return judgeResult(index, text);
      } catch {
        return false; // not a text that the runner writes
      }
    };
    let right = 0;
    let wrong: string | undefined;
    const onResults = ({ first, texts }: Results) => {
      for (const [offset, text] of texts.entries()) {
        if (wrong !== undefined) return false;
        const index = first + offset;
        // Each input once and in order, whatever the sandbox says.
        if (index === right && text.startsWith("=") && isRight(index, text.slice(1))) right++;
        else wrong = text;
      }
      return wrong === undefined;
    };
    const job = { source: solution, entryPoint, inputs, rule, limits };
    const end = await this.#sandbox.run(
      { ...job, totalLimit: totalLimit(limits, seconds) },
      onResults,
    );
    if (right === inputs.length) return { status: "pass" };
    if (wrong?.startsWith("=")) return { status: "fail", detail: `input ${right} is wrong` };
    return judged({ ...end, texts: [wrong ?? ""], seconds: [] });
  }

  /** Runs the solution on the calls of the check, then the check on the results. */
  async #check(
    problem: CodeProblem,
    test: string,
    solution: string,
    { inputs, rule, limits, seconds }: Reference,
  ): Promise<Judged> {
    const { entryPoint } = problem;
    const job = { source: solution, entryPoint, inputs, rule, limits };
    const run = await runAll(this.#sandbox, { ...job, totalLimit: totalLimit(limits, seconds) });
    if (run.ending !== "done") return judged(run);
    const results = run.texts.map((text) => text.slice(1));
    const input = JSON.stringify([referenceProgram(problem), test, inputs, results]);
    const check = await runAll(this.#sandbox, patiently(CHECK, "replay", [input], ""));
    return check.ending === "done"
      ? { status: "pass" }
      : { status: "fail", detail: reasonOf(check) };
  }
}

interface Judged {
  readonly status: Status;
  readonly detail?: string;
}

/** What an unfinished run counts as: only one that was killed as a whole is a timeout. */
function judged(run: Outcome): Judged {
  const detail = reasonOf(run);
  if (run.ending === "killed") return { status: "timeout", detail };
  return { status: missingModule(run) === undefined ? "fail" : "unavailable", detail };
}

function slice(reference: Reference, from: number, to?: number): Reference {
  return {
    ...reference,
    inputs: reference.inputs.slice(from, to),
    expected: reference.expected.slice(from, to),
    limits: reference.limits.slice(from, to),
    seconds: reference.seconds.slice(from, to),
  };
}
