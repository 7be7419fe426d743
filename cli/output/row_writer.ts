/**
 * Writes the rows of `generate` and `score` in input order, each as soon as all before it are known,
 * or keeps them in a journal until all are there. Where they go to a file, an interruption keeps what
 * is done and says how to continue.
 */
import { letSignalsThrough } from "../../core/base/abortable.ts";
import type { Invocation } from "./document.ts";
import { Interrupted } from "./errors.ts";
import { Finished } from "./finished.ts";
import type { Io } from "./io.ts";
import { Journal, keepsRows, type Resumed } from "./journal.ts";
import { Report, type ReportOptions } from "./report.ts";
import type { Row } from "./table.ts";

/** Flags that change neither the rows nor, beyond rounding, the numbers in them. */
export const FREE_FLAGS: readonly string[] = [
  ...["out", "overwrite", "format", "quiet", "verbose", "color", "progress", "log-every"],
  ...["threads", "memory-limit", "weight-cache", "cache-limit", "on-error"],
];

/** The identity of a run has what these stand for. */
const IDENTIFIED = ["model", "adapter", "device", "batch"];

/**
 * Rows of a result: a table has one for each of several sequences, with their times, JSON one with all of
 * them.
 */
export function rowsIn(format: Invocation["format"], result: Row): Row[] {
  if (format.startsWith("json")) return [result];
  const { sequences, stats, ...others } = result;
  const row = { ...others, ...stats as Row | undefined };
  if (!Array.isArray(sequences)) return [row];
  return sequences.map((one: Row, sequence) => ({ ...row, sequence, ...one }));
}

/** Identity of a run besides its flags, which a resumed run must share. */
export interface RunIdentity {
  readonly model: string;
  readonly device: string;
  /** Sequences computed together, where they decide which rows are computed. */
  readonly batch?: number | undefined;
  /** Content of the file that the flag names. */
  readonly "json-schema"?: unknown;
}

/** Resumption of a run. */
export interface RowOptions {
  readonly resume: Resumed | undefined;
  readonly identity: () => RunIdentity;
}

/** Flags and identity of a run, without the flags in `FREE_FLAGS`. */
function identityOf({ config }: Invocation, own: RunIdentity): Record<string, unknown> {
  const free = [...FREE_FLAGS, ...IDENTIFIED];
  const flags = Object.entries(config).filter(([name]) => !free.includes(name));
  return { ...Object.fromEntries(flags), ...own };
}

/** Record of a result that is a file; it is kept with `--resume`. */
export function recordFor(
  invocation: Invocation,
  { resume, identity }: RowOptions,
): Finished | undefined {
  const { out, format } = invocation;
  if (!keepsRows(out)) return undefined;
  return new Finished(out, resume && { ...identityOf(invocation, identity()), format });
}

/** Rows on their way to a report. */
export class RowWriter implements Disposable {
  /** Rows of the input that an interrupted run has finished. */
  readonly resumed: number = 0;
  readonly #journal: Journal | undefined;
  readonly #finished: Finished | undefined;
  /** Last check of a result that an earlier run has finished. */
  readonly #requireSameInput: (() => void) | undefined;
  readonly #options: ReportOptions;
  #report: Report | undefined;
  readonly #waiting = new Map<number, readonly Row[]>();
  #written = 0;
  #failed = 0;

  constructor(
    readonly io: Io,
    readonly invocation: Invocation,
    { resume, identity, ...options }: ReportOptions & RowOptions,
  ) {
    const { out, overwrite } = invocation;
    let known: RunIdentity | undefined;
    const own = () => known ??= identity(); // it reads the start of every tensor
    this.#finished = recordFor(invocation, { resume, identity: own });
    this.#options = { ...options, onWhole: (path) => this.#finished?.keep(path) };
    this.#report = new Report(io, invocation, this.#options);
    if (!keepsRows(out)) return;
    this.#closeReport(); // it could be opened; the rows come later
    if (resume === "result") this.#requireSameInput = this.#finished!.require();
    if (this.#requireSameInput) return;
    const all = identityOf(invocation, own());
    this.#journal = new Journal({ out, identity: all, resume: resume !== undefined, overwrite });
    this.resumed = this.#journal.size;
    if (resume === "rows") io.note(`resuming "${out}": ${this.resumed} rows done`);
  }

  /** Returns whether an earlier run has finished the row at this position; asked of each row in order. */
  has(at: number, input: unknown): boolean {
    this.#finished?.add(input);
    return this.#requireSameInput !== undefined || (this.#journal?.has(at, input) ?? false);
  }

  /** Leaves out the row at a position of the input, which another process computes. */
  skip(at: number): void {
    if (this.#journal === undefined) this.add(at, undefined, []);
  }

  /** Takes the results of the row at a position of the input; positions come in any order. */
  add(at: number, input: unknown, rows: readonly Row[]): void {
    if (this.#journal !== undefined) return this.#journal.add(at, input, rows);
    this.#waiting.set(at, rows);
    for (let next; (next = this.#waiting.get(this.#written)); this.#written++) {
      this.#waiting.delete(this.#written);
      next.forEach((row) => this.#write(row));
    }
  }

  /** Completes the result; the number is the exit code: 1 when rows failed. */
  async finish(): Promise<number> {
    if (this.#requireSameInput !== undefined) {
      this.#requireSameInput();
      this.io.note(`"${this.invocation.out}" is complete`);
      return 0;
    }
    const report = this.#report ??= new Report(this.io, this.invocation, this.#options);
    for (const row of this.#journal?.rows() ?? []) this.#write(row);
    await report.finish();
    this.#journal?.remove();
    return this.#failed > 0 ? 1 : 0;
  }

  /** Lets signals arrive, and throws once one has come. */
  async pause(): Promise<void> {
    await letSignalsThrough();
    this.#throwIfInterrupted();
  }

  #throwIfInterrupted(): void {
    const { reason, aborted } = this.io.interruption;
    if (!aborted) return;
    if (this.#journal === undefined || !(reason instanceof Interrupted)) throw reason;
    const { size, path } = this.#journal;
    const hint = size === 0
      ? "no row was finished; run the same command again"
      : `${size} rows are in ${path}; run the same command with --resume to continue`;
    throw new Interrupted(reason.signal, [hint]);
  }

  /** Passes on what comes from a source, which ends with an error when a signal comes. */
  async *untilInterrupted<T>(source: Iterable<T> | AsyncIterable<T>): AsyncGenerator<T> {
    try {
      yield* source;
    } catch (error) {
      this.#throwIfInterrupted(); // it says where the rows are
      throw error;
    }
  }

  /** Gives up an unfinished result; finished rows stay in the journal. */
  [Symbol.dispose](): void {
    this.#closeReport();
    this.#journal?.[Symbol.dispose]();
  }

  #closeReport(): void {
    this.#report?.[Symbol.dispose]();
    this.#report = undefined;
  }

  #write(row: Row): void {
    if ("error" in row) this.#failed++;
    for (const one of rowsIn(this.invocation.format, row)) this.#report!.row(one);
  }
}
