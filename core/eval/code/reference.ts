/**
 * What the reference solutions answer, and how long they take.
 *
 * Comes in: a problem. Goes out: the expected results and the time limits, from a run of prompt and
 * canonical solution in the same sandbox. They are kept in a folder, one file a problem under a hash of
 * all they depend on; a damaged file is made again.
 */
import { gunzipSync, gzipSync } from "node:zlib";
import type { CodeProblem } from "./problems.ts";
import { CHECK } from "./runner_text.ts";
import { type Job, type Outcome, runAll, type Sandbox } from "./sandbox.ts";
import { sha256 } from "./snapshot.ts";
import { parseValue } from "./values.ts";

/** To be raised when the meaning of a kept file changes. */
const FORMAT = 1;

/** Seconds a reference solution may take: for a call, and for all. */
const PATIENCE = { call: 120, all: 600 };

/** Seconds a solution gets per call at least, and relative to the reference. */
const LIMIT = { least: 4, factor: 4 };

/** Results longer than this together are read again each time rather than held in memory. */
const HELD_CHARACTERS = 4 << 20;

/** What solutions of a problem are held against. */
export interface Reference {
  /** Argument lists in the form of `rule`; base inputs, then plus inputs. */
  readonly inputs: readonly string[];
  readonly rule: string;
  /** How many of them are base inputs. */
  readonly base: number;
  /** Results as the sandbox gives them. */
  readonly expected: readonly string[];
  /** Seconds each call may take. */
  readonly limits: readonly number[];
  /** What the reference took for each call, or would on a busy machine. */
  readonly seconds: readonly number[];
}

/** A problem that this sandbox cannot test. */
export interface Unavailable {
  /** What is missing or went wrong. */
  readonly unavailable: string;
}

/** What is kept: the calls a check makes (else none), the results and their times. */
interface Kept {
  readonly calls: readonly string[] | null;
  readonly texts: readonly string[];
  readonly seconds: readonly number[];
}

/** The references of one sandbox. */
export class References {
  readonly #sandbox: Sandbox;
  readonly #folder: string;
  readonly #timeScale: number;
  readonly #known = new Map<string, Promise<Reference | Unavailable>>();

  /** `timeScale` multiplies the limits. */
  constructor(sandbox: Sandbox, cacheFolder: string, timeScale: number) {
    this.#sandbox = sandbox;
    this.#timeScale = timeScale;
    this.#folder = `${cacheFolder}/expected`;
  }

  /** The reference of a problem; each is made once. */
  async of(problem: CodeProblem): Promise<Reference | Unavailable> {
    const { lane, pythonVersion } = this.#sandbox;
    const key = await sha256(JSON.stringify([FORMAT, lane, pythonVersion, problem]));
    let reference = this.#known.get(key);
    if (!reference) {
      reference = this.#make(problem, `${this.#folder}/${key}.json.gz`);
      this.#known.set(key, reference);
      const made = await reference;
      if (!("unavailable" in made) && size(made) > HELD_CHARACTERS) this.#known.delete(key);
    }
    return await reference;
  }

  async #make(problem: CodeProblem, path: string): Promise<Reference | Unavailable> {
    let kept = await readKept(path);
    if (!kept) {
      const made = await compute(this.#sandbox, problem);
      if ("unavailable" in made) return made;
      await writeKept(this.#folder, path, made);
      kept = made;
    }
    const { tests } = problem;
    const inputs = kept.calls ?? (tests.kind === "inputs" ? [...tests.base, ...tests.plus] : []);
    const asked = inputs.map((_, index) => index).filter((index) => !tooLarge(kept.texts[index]!));
    const seconds = asked.map((index) => kept.seconds[index]!);
    const scale = this.#timeScale;
    const base = tests.kind === "inputs" ? tests.base.length : inputs.length;
    return {
      inputs: asked.map((index) => inputs[index]!),
      rule: kept.calls ? "encoded" : ruleOf(problem),
      base: asked.filter((index) => index < base).length,
      expected: asked.map((index) => kept.texts[index]!),
      limits: seconds.map((second) => scale * Math.max(LIMIT.least, LIMIT.factor * second)),
      seconds: seconds.map((second) => scale * second),
    };
  }
}

function size({ expected }: Reference): number {
  return expected.reduce((sum, text) => sum + text.length, 0);
}

/** Prompt and canonical solution. */
export function referenceProgram({ prompt, canonicalSolution }: CodeProblem): string {
  return prompt + canonicalSolution;
}

/** How the inputs of a problem become arguments: the task number for MBPP. */
function ruleOf({ benchmark, taskId }: CodeProblem): string {
  return benchmark === "mbpp" ? taskId.slice(taskId.indexOf("/") + 1) : "";
}

async function compute(sandbox: Sandbox, problem: CodeProblem): Promise<Kept | Unavailable> {
  const { tests, entryPoint } = problem;
  const source = referenceProgram(problem);
  let calls: string[] | null = null;
  if (tests.kind === "check") {
    const input = JSON.stringify([source, tests.test, entryPoint]);
    const recorded = await runAll(sandbox, patiently(CHECK, "record", [input], ""));
    if (recorded.ending !== "done") return { unavailable: reasonOf(recorded) };
    calls = stringsIn(recorded.texts[0]!);
  }
  const inputs = calls ??
    (tests.kind === "inputs" ? [...tests.base, ...tests.plus] : []);
  const rule = calls ? "encoded" : ruleOf(problem);
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
  return { calls, texts, seconds };
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
): Job {
  const limits = inputs.map(() => PATIENCE.call);
  return { source, entryPoint, inputs, rule, limits, totalLimit: PATIENCE.all };
}

/** Why a job did not come to its end, in a few words. */
export function reasonOf(outcome: Outcome): string {
  const module = missingModule(outcome);
  if (module !== undefined) return `this Python has no module "${module}"`;
  return said(outcome)?.replace(/^!/, "") || REASONS[outcome.ending] || outcome.ending;
}

/** The module whose absence ended a job, if that did. */
export function missingModule(outcome: Outcome): string | undefined {
  const text = said(outcome);
  return text?.startsWith("?") ? text.slice(1) : undefined;
}

/** What the runner answered last. */
function said({ ending, detail, texts }: Outcome): string | undefined {
  return ending === "call" ? texts.at(-1) : detail;
}

const REASONS: Readonly<Record<string, string>> = {
  input_limit: "one input took too long",
  killed: "all inputs together took too long",
  crashed: "the interpreter died",
};

/** The strings of an encoded list of them. */
function stringsIn(text: string): string[] {
  const list = parseValue(text.slice(1));
  if (list.kind !== "list") return [];
  return list.items.map((item) => item.kind === "str" ? item.value : "");
}

/** A kept file is gzipped JSON, whose own checksum tells a damaged one. */
async function readKept(path: string): Promise<Kept | undefined> {
  try {
    return JSON.parse(new TextDecoder().decode(gunzipSync(await Deno.readFile(path))));
  } catch {
    return undefined;
  }
}

async function writeKept(folder: string, path: string, kept: Kept): Promise<void> {
  await Deno.mkdir(folder, { recursive: true });
  const bytes = gzipSync(JSON.stringify(kept));
  const temporary = `${path}.${crypto.randomUUID()}`;
  {
    using file = await Deno.open(temporary, { write: true, createNew: true });
    for (let done = 0; done < bytes.length;) done += await file.write(bytes.subarray(done));
    await file.sync();
  }
  await Deno.rename(temporary, path);
}
