/**
 * Results of the reference solutions, and how long they take.
 *
 * They come from a run of prompt and canonical solution in the trusted sandbox child, and are kept in a
 * folder, one file a problem under a hash of all they depend on. A damaged or incomplete file is made
 * again.
 */
import { hash } from "node:crypto";
import { gunzipSync, gzipSync } from "node:zlib";
import { writeFile } from "../../../storage/write_file.ts";
import { type Job, runAll, type Sandbox } from "../../sandbox/job.ts";
import { CHECK } from "../../sandbox/runner_text.ts";
import type { CodeProblem } from "./problems.ts";
import { reasonOf } from "./reasons.ts";

/** Raised when the meaning of a kept file changes. */
const FORMAT = 2;

/** Seconds a reference solution may take: for a call, and for all. */
const PATIENCE = { call: 120, all: 600 };

/**
 * Seconds a solution gets per call: at least, relative to the reference, and at most where the
 * reference was measured again.
 */
const LIMIT = { least: 4, factor: 4, most: 60 };

/** Results longer than this together are read again each time rather than held in memory. */
const HELD_CHARACTERS = 4 << 20;

/** Reference results with which solutions of a problem are compared. */
export interface Reference {
  /** Argument lists in the form of `rule`; base inputs, then plus inputs. */
  readonly inputs: readonly string[];
  readonly rule: string;
  /** Number of base inputs among them. */
  readonly base: number;
  /** Results as the sandbox gives them. */
  readonly expected: readonly string[];
  /** Seconds each call may take. */
  readonly limits: readonly number[];
  /** Seconds the reference took for each call. */
  readonly seconds: readonly number[];
}

/** A problem that this sandbox cannot test. */
export interface Unavailable {
  /** Reason why there is none. */
  readonly unavailable: string;
}

/** Stored record: the calls a check makes (else none), the results and their times. */
interface Kept {
  readonly calls: readonly string[] | null;
  readonly texts: readonly string[];
  readonly seconds: readonly number[];
}

/** The references of one Python. */
export class References {
  readonly #folder: string;
  readonly #known = new Map<string, Promise<Reference | Unavailable>>();

  /** `sandbox` must never have run a model's program. */
  constructor(
    private readonly sandbox: Sandbox,
    private readonly pythonVersion: string,
    cacheFolder: string,
  ) {
    this.#folder = `${cacheFolder}/expected`;
  }

  /** The reference of a problem; each is made once. */
  async of(problem: CodeProblem): Promise<Reference | Unavailable> {
    const key = hash("sha256", JSON.stringify([FORMAT, this.pythonVersion, problem]));
    const path = `${this.#folder}/${key}.json.gz`;
    const made = await this.#known.getOrInsertComputed(key, () => this.#make(problem, path));
    if (!("unavailable" in made) && size(made) > HELD_CHARACTERS) this.#known.delete(key);
    return made;
  }

  async #make(problem: CodeProblem, path: string): Promise<Reference | Unavailable> {
    let kept = await readKept(path, problem);
    if (!kept) {
      const made = await compute(this.sandbox, problem);
      if ("unavailable" in made) return made;
      // Where it cannot be kept it is computed again next time.
      await writeKept(this.#folder, path, made).catch(() => {});
      kept = made;
    }
    const { tests } = problem;
    const inputs = inputsOf(problem, kept.calls);
    const asked = inputs.map((_, index) => index).filter((index) => !tooLarge(kept.texts[index]!));
    const seconds = asked.map((index) => kept.seconds[index]!);
    const base = tests.kind === "inputs" ? tests.base.length : inputs.length;
    return {
      inputs: asked.map((index) => inputs[index]!),
      rule: ruleOf(problem, kept.calls),
      base: asked.filter((index) => index < base).length,
      expected: asked.map((index) => kept.texts[index]!),
      limits: seconds.map((second) => Math.max(LIMIT.least, LIMIT.factor * second)),
      seconds,
    };
  }

  /**
   * The reference with the times of a run of now, in `sandbox`: each limit is the larger of the one
   * before and one by the new time.
   */
  async measureAgain(problem: CodeProblem, known: Reference, sandbox: Sandbox): Promise<Reference> {
    const { inputs, rule } = known;
    const source = referenceProgram(problem);
    const run = await runAll(sandbox, patiently(source, problem.entryPoint, inputs, rule));
    const seconds = known.seconds.map((second, i) => Math.max(second, run.seconds[i] ?? 0));
    const limits = known.limits.map((limit, i) =>
      Math.max(limit, Math.min(LIMIT.most, LIMIT.factor * seconds[i]!))
    );
    return { ...known, limits, seconds };
  }
}

/** A part of a reference's inputs. */
export function slice(reference: Reference, from: number, to?: number): Reference {
  return {
    ...reference,
    inputs: reference.inputs.slice(from, to),
    expected: reference.expected.slice(from, to),
    limits: reference.limits.slice(from, to),
    seconds: reference.seconds.slice(from, to),
  };
}

function size({ expected }: Reference): number {
  return expected.reduce((sum, text) => sum + text.length, 0);
}

/** Prompt and canonical solution. */
export function referenceProgram({ prompt, canonicalSolution }: CodeProblem): string {
  return prompt + canonicalSolution;
}

/** Returns the rule that turns inputs of a problem into arguments: the task number for MBPP. */
function ruleOf({ benchmark, taskId }: CodeProblem, calls: Kept["calls"]): string {
  if (calls) return "encoded";
  return benchmark === "mbpp" ? taskId.slice(taskId.indexOf("/") + 1) : "";
}

/** All inputs of a problem: the calls of its check, or base and plus inputs. */
function inputsOf({ tests }: CodeProblem, calls: readonly string[] | null): readonly string[] {
  return calls ?? (tests.kind === "inputs" ? [...tests.base, ...tests.plus] : []);
}

async function compute(sandbox: Sandbox, problem: CodeProblem): Promise<Kept | Unavailable> {
  const { tests, entryPoint } = problem;
  const source = referenceProgram(problem);
  let calls: string[] | null = null;
  if (tests.kind === "check") {
    const input = JSON.stringify([source, tests.test, entryPoint]);
    const recorded = await runAll(sandbox, patiently(CHECK, "record", [input], ""));
    if (recorded.ending !== "done") return { unavailable: reasonOf(recorded) };
    // A list of strings crosses as JSON, and one that is too long as its hash.
    const list: unknown = JSON.parse(recorded.texts[0]!.slice(1));
    if (!Array.isArray(list)) return { unavailable: "the check makes too many calls" };
    calls = list;
  }
  const inputs = inputsOf(problem, calls);
  const rule = ruleOf(problem, calls);
  const texts: string[] = [];
  const seconds: number[] = [];
  while (texts.length < inputs.length) {
    const rest = inputs.slice(texts.length);
    const outcome = await runAll(sandbox, patiently(source, entryPoint, rest, rule));
    texts.push(...outcome.texts);
    seconds.push(...outcome.seconds);
    if (outcome.ending === "done") break;
    if (outcome.ending !== "call" || !tooLarge(texts.at(-1)!)) {
      return { unavailable: reasonOf(outcome) };
    }
  }
  const made = { calls, texts, seconds };
  return isComplete(made, problem)
    ? made
    : { unavailable: "the reference gave no complete answer" };
}

/** Returns whether every input has its result and its time. */
function isComplete({ calls, texts, seconds }: Kept, problem: CodeProblem): boolean {
  const count = inputsOf(problem, calls).length;
  return (calls !== null) === (problem.tests.kind === "check") &&
    texts.length === count && seconds.length === count && seconds.every(Number.isFinite) &&
    texts.every((text) => text.startsWith("=") || tooLarge(text));
}

/** An input whose result does not fit into the sandbox's memory; solutions are not asked for it. */
function tooLarge(text: string): boolean {
  return text.startsWith("!MemoryError");
}

/** A job that is trusted with time. */
export function patiently(
  source: string,
  entryPoint: string,
  inputs: readonly string[],
  rule: string,
  { call, all } = PATIENCE,
): Job {
  return { source, entryPoint, inputs, rule, limits: inputs.map(() => call), totalLimit: all };
}

/** Reads a kept file, gzipped JSON; undefined where it is missing, damaged or incomplete. */
async function readKept(path: string, problem: CodeProblem): Promise<Kept | undefined> {
  try {
    const text = new TextDecoder().decode(gunzipSync(await Deno.readFile(path)));
    const kept: Kept = JSON.parse(text);
    return isComplete(kept, problem) ? kept : undefined;
  } catch {
    return undefined;
  }
}

async function writeKept(folder: string, path: string, kept: Kept): Promise<void> {
  await Deno.mkdir(folder, { recursive: true });
  writeFile(path, gzipSync(JSON.stringify(kept)));
}
