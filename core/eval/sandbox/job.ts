/**
 * Jobs of the sandbox: a program, its entry point and inputs go in, what the calls returned comes out as
 * text. The sandbox never says pass or fail: expected values stay with the caller, so a program that
 * takes over its whole process can still only answer, and has to answer right.
 */

/** One program to run. */
export interface Job {
  /** Python text. */
  readonly source: string;
  readonly entryPoint: string;
  /** Argument lists as text. */
  readonly inputs: readonly string[];
  /** Format of the values: `encoded` as in `values.py`, else JSON to be rebuilt for that MBPP task. */
  readonly rule: string;
  /** Seconds each call may take. */
  readonly limits: readonly number[];
  /** Seconds all of it may take. */
  readonly totalLimit: number;
  /**
   * Clock of the limits: by default the time that passes, or the processor time of the child, which
   * other load does not change; then at most five times the limits may pass.
   */
  readonly clock?: "wall" | "cpu";
}

/**
 * Outcome of a job: all calls made, the program did not load, a call failed (the last result says how),
 * stopped as asked, one call too slow, all too slow, too much memory, a call out of the sandbox refused,
 * or the interpreter died.
 */
export type Ending =
  | "done"
  | "load"
  | "call"
  | "stopped"
  | "input_limit"
  | "killed"
  | "memory"
  | "refused"
  | "crashed";

/** The results of some calls in a row. */
export interface Results {
  /** Index of the first. */
  readonly first: number;
  /** `=` and a value, `?` and a module that is missing, or `!` and another failure. */
  readonly texts: readonly string[];
  /** Time of each call. */
  readonly seconds: readonly number[];
}

/** The end of a job. */
export interface End {
  readonly ending: Ending;
  /** Last message of the interpreter, if any; the refused import where one was. */
  readonly detail?: string;
}

/** Runs jobs, which may overlap. */
export interface Sandbox {
  /** Runs a job; `onResults` gets results in order and returns false to end it. */
  run(job: Job, onResults: (results: Results) => boolean): Promise<End>;
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

/** Seconds that may pass on the wall for a whole job. */
export function wallLimit({ clock, totalLimit }: Job): number {
  return clock === "cpu" ? 5 * totalLimit : totalLimit;
}

function total(seconds: readonly number[]): number {
  return seconds.reduce((sum, second) => sum + second, 0);
}
