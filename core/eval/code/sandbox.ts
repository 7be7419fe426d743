/**
 * What a sandbox does, whichever lane it is.
 *
 * Comes in: a program, its entry point and inputs. Goes out: what the calls returned, as text. It never
 * says pass or fail: expected values stay with the caller, so a program that takes over its whole
 * sandbox can still only answer, and has to answer right.
 */

/** Names of the lanes. */
export type Lane = "pyodide" | "bwrap";

/** One program to run. */
export interface Job {
  /** Python text. */
  readonly source: string;
  readonly entryPoint: string;
  /** Argument lists as text. */
  readonly inputs: readonly string[];
  /** How they are written: `encoded` as in `values.ts`, else JSON to be rebuilt for that MBPP task. */
  readonly rule: string;
  /** Seconds each call may take. */
  readonly limits: readonly number[];
  /** Seconds all of it may take. */
  readonly totalLimit: number;
}

/**
 * How a job ended: all calls made, the program did not load, a call failed (the last result says
 * how), stopped as asked, one call too slow, all too slow, or the interpreter died.
 */
export type Ending = "done" | "load" | "call" | "stopped" | "input_limit" | "killed" | "crashed";

/** The results of some calls in a row. */
export interface Results {
  /** Index of the first. */
  readonly first: number;
  /** `=` and a value, `?` and a module that is missing, or `!` and another failure. */
  readonly texts: readonly string[];
  /** What each call took. */
  readonly seconds: readonly number[];
}

/** The end of a job. */
export interface End {
  readonly ending: Ending;
  /** What the interpreter said, where it said something. */
  readonly detail?: string;
}

/** A place where model-written code runs; jobs may overlap. */
export interface Sandbox extends AsyncDisposable {
  readonly lane: Lane;
  /** As `sys.version` begins: `3.14.2`. */
  readonly pythonVersion: string;
  /** Runs a job; `onResults` gets results in order and returns false to end it. */
  run(job: Job, onResults: (results: Results) => boolean): Promise<End>;
}

/** Ends a process that may have ended already. */
export function endProcess(process: Deno.ChildProcess): void {
  try {
    process.kill("SIGKILL");
  } catch {
    // It has.
  }
}

/** Results and end of a job that is run to its end. */
export interface Outcome extends End {
  readonly texts: readonly string[];
  readonly seconds: readonly number[];
}

/** Runs a job and gathers everything. */
export async function runAll(sandbox: Sandbox, job: Job): Promise<Outcome> {
  const texts: string[] = [];
  const seconds: number[] = [];
  const end = await sandbox.run(job, (results) => {
    texts.push(...results.texts);
    seconds.push(...results.seconds);
    return true;
  });
  return { ...end, texts, seconds };
}

/**
 * Seconds that a job of these calls may take: the sum of their limits, at most a minute, and two for
 * the start. Where the reference itself needs half a minute, as it may on a slower interpreter, twice
 * its time.
 */
export function totalLimit(limits: readonly number[], reference: readonly number[]): number {
  return Math.max(Math.min(60, total(limits)), 2 * total(reference)) + 2;
}

function total(seconds: readonly number[]): number {
  return seconds.reduce((sum, second) => sum + second, 0);
}
