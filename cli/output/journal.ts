/**
 * Keeps the finished rows of a command with `-o FILE` in `FILE.partial`, so that a run that was interrupted
 * or killed continues with `--resume`. The first line says what was asked, the others are
 * `{"at", "input", "rows"}`: the position in the input, a hash of what stood there, and the result rows, in
 * the order in which rows finish. A last line that was cut off is removed.
 */
import { createHash } from "node:crypto";
import { DataError, UsageError } from "../../core/base/errors.ts";
import {
  differences,
  isObject,
  type JsonObject,
  jsonValue,
  readExactlySync,
} from "../../core/base/files.ts";
import { writeAllSync } from "../../core/base/write_all.ts";
import { openLocked } from "../../core/storage/lock.ts";
import { toJson } from "./document.ts";
import { exists, isDevice } from "./sink.ts";
import type { Row } from "./table.ts";
import { orWriteError } from "./write_error.ts";

const SCHEMA = "parscale.partial/1";

/** Run of a journal, and treatment of one that is there. */
export interface JournalOptions {
  readonly out: string;
  /** Must be the same when the run continues. */
  readonly identity: Readonly<Record<string, unknown>>;
  readonly resume: boolean;
  readonly overwrite: boolean;
}

interface Entry {
  readonly input: string;
  readonly offset: number;
  readonly length: number;
}

/** Path of the journal of an output. */
export function journalOf(out: string): string {
  return `${out}.partial`;
}

/** Treatment of what an output and its journal hold. */
type Found = Pick<JournalOptions, "resume" | "overwrite"> & { readonly out: string | undefined };

/** State in which `--resume` finds an output: rows of an interrupted run, or a file that has its name. */
export type Resumed = "nothing" | "rows" | "result";

/**
 * Returns what there is to resume; undefined without `--resume`.
 * @throws {UsageError} for rows that are neither resumed nor overwritten, and to resume without a file
 */
export function checkJournal({ out, resume, overwrite }: Found): Resumed | undefined {
  if (!keepsRows(out)) {
    if (resume) throw new UsageError("`--resume` needs `-o FILE`");
    return undefined;
  }
  const path = journalOf(out), isBegun = holdsRows(path);
  if (isBegun && !resume && !overwrite) {
    const hint = "pass --resume to continue, or --overwrite to begin again";
    throw new UsageError(`"${path}" holds rows of an interrupted run`, { hints: [hint] });
  }
  if (!resume) return undefined;
  return isBegun ? "rows" : exists(out) && !overwrite ? "result" : "nothing";
}

/** Returns whether all rows are to be computed. */
export function beginsRows(resume: Resumed | undefined): boolean {
  return resume === undefined || resume === "nothing";
}

/** Returns whether an interrupted run has kept a row: there is more than its first line. */
function holdsRows(path: string): boolean {
  if (!exists(path)) return false;
  const bytes = orWriteError(path, () => Deno.readFileSync(path));
  return bytes.indexOf(10, bytes.indexOf(10) + 1) > 0;
}

/** Returns whether a command can keep rows: `-o` names a file, not stdout or a device. */
export function keepsRows(out: string | undefined): out is string {
  return out !== undefined && !isDevice(out);
}

/** The rows that are finished. */
export class Journal implements Disposable {
  readonly path: string;
  readonly #file: Deno.FsFile;
  readonly #entries = new Map<number, Entry>();
  #length = 0;
  #asked = 0;

  /**
   * Begins a journal, or continues with the one that is there.
   * @throws {UsageError} as of `checkJournal`, and for a journal of other flags
   */
  constructor({ out, identity, resume, overwrite }: JournalOptions) {
    this.path = journalOf(out);
    if (checkJournal({ out, resume, overwrite }) === "rows") {
      this.#read(orWriteError(this.path, () => Deno.readFileSync(this.path)), identity);
    }
    this.#file = orWriteError(this.path, () => openLocked(this.path, this.path, "-o"));
    if (this.#length === 0) this.#append(toJson({ schema: SCHEMA, ...identity }) + "\n");
    this.#file.truncateSync(this.#length);
    this.#file.seekSync(this.#length, Deno.SeekMode.Start);
  }

  /** Number of finished rows of the input. */
  get size(): number {
    return this.#entries.size;
  }

  /**
   * Returns whether the row at a position of the input is finished.
   * @throws {DataError} when another row stood there
   */
  has(at: number, input: unknown): boolean {
    this.#asked = Math.max(this.#asked, at + 1);
    const entry = this.#entries.get(at);
    if (entry === undefined) return false;
    if (entry.input === hashOf(input)) return true;
    throw this.#otherInput(`input row ${at} differs from the one that "${this.path}" answers`);
  }

  #otherInput(message: string): DataError {
    const hints = ["resume with the same input, or begin again with --overwrite"];
    return new DataError(message, { hints });
  }

  /** Keeps the results of a row. */
  add(at: number, input: unknown, rows: readonly Row[]): void {
    if (this.#entries.has(at)) return;
    const hash = hashOf(input), offset = this.#length;
    const length = this.#append(toJson({ at, input: hash, rows }) + "\n");
    this.#entries.set(at, { input: hash, offset, length });
  }

  /** All results in the order of the input. */
  *rows(): Generator<Row> {
    const last = [...this.#entries.keys()].reduce((a, b) => Math.max(a, b), -1);
    if (last >= this.#asked) {
      const message = `the input ends before row ${last}, which "${this.path}" answers`;
      throw this.#otherInput(message);
    }
    for (const at of [...this.#entries.keys()].sort((a, b) => a - b)) {
      const { offset, length } = this.#entries.get(at)!;
      const bytes = new Uint8Array(length);
      readExactlySync(this.#file, this.path, offset, bytes);
      yield* (JSON.parse(new TextDecoder().decode(bytes)) as { rows: Row[] }).rows;
    }
  }

  /** Removes the file: the result has its own name now. */
  remove(): void {
    Deno.removeSync(this.path);
  }

  /** Closes the file; one that holds no row is removed. */
  [Symbol.dispose](): void {
    this.#file.close();
    try {
      if (this.#entries.size === 0) this.remove();
    } catch {
      // It was removed already.
    }
  }

  #append(line: string): number {
    const bytes = new TextEncoder().encode(line);
    orWriteError(this.path, () => writeAllSync(this.#file, bytes));
    this.#length += bytes.length;
    return bytes.length;
  }

  #read(bytes: Uint8Array, identity: Readonly<Record<string, unknown>>): void {
    let line = 0;
    for (let start = 0, end; (end = bytes.indexOf(10, start)) >= 0; start = end + 1) {
      const value = parse(bytes.subarray(start, end));
      const { at, input, rows } = value;
      const isWhole = Number.isSafeInteger(at) && Number(at) >= 0 && Array.isArray(rows) &&
        rows.every(isObject);
      if (line === 0) requireSame(value, identity, this.path);
      else if (isWhole && typeof input === "string") {
        this.#entries.set(at as number, { input, offset: start, length: end + 1 - start });
      } else throw damaged(this.path, line + 1);
      this.#length = end + 1;
      line++;
    }
  }
}

function parse(bytes: Uint8Array): JsonObject {
  const value = jsonValue(new TextDecoder().decode(bytes));
  return isObject(value) ? value : {};
}

function damaged(path: string, line: number): DataError {
  return new DataError(`line ${line} of "${path}" is damaged`, {
    hints: ["begin again with --overwrite"],
  });
}

function requireSame(
  { schema, ...found }: Record<string, unknown>,
  identity: Readonly<Record<string, unknown>>,
  path: string,
): void {
  if (schema !== SCHEMA) throw damaged(path, 1);
  const other = differences(found, identity);
  if (other.length === 0) return;
  throw new UsageError(`"${path}" belongs to a run that differs in ${other.join(", ")}`, {
    hints: ["resume with the same flags, or begin again with --overwrite"],
  });
}

function hashOf(input: unknown): string {
  return createHash("sha256").update(toJson(input)).digest("hex").slice(0, 16);
}
