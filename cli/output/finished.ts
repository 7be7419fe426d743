/**
 * Keeps what made the result of a command with `--resume -o NAME` in `.NAME.resume` beside it: the flags, a
 * hash of the input, and one of the result. Repeated, the same command finds its result complete; any other
 * file of that name is refused.
 */
import { createHash } from "node:crypto";
import { basename, dirname, join } from "node:path";
import { UsageError } from "../../core/base/errors.ts";
import { differences, isObject, jsonValue } from "../../core/base/files.ts";
import { writeFile } from "../../core/storage/write_file.ts";
import { toJson } from "./document.ts";
import { exists } from "./sink.ts";
import { orWriteError } from "./write_error.ts";

const CHUNK_BYTES = 1 << 20;

/** Path of the record of a result. */
export function recordOf(out: string): string {
  return join(dirname(out), `.${basename(out)}.resume`);
}

/** Identity of a result, and the record of it that an earlier run left. */
export class Finished {
  readonly #input = createHash("sha256");

  /** `identity` must be the same when the command is repeated; undefined keeps no record. */
  constructor(
    private readonly out: string,
    private readonly identity: Readonly<Record<string, unknown>> | undefined,
  ) {}

  /** Takes the next row of the input. */
  add(input: unknown): void {
    this.#input.update(toJson(input) + "\n");
  }

  /** Records the result, whose whole text is in the file `whole` and gets its name next. */
  keep(whole: string): void {
    const path = recordOf(this.out);
    if (this.identity === undefined) {
      if (exists(path)) Deno.removeSync(path);
      return;
    }
    const input = this.#input.digest("hex"), output = hashOf(whole);
    const text = toJson({ run: this.identity, input, output }) + "\n";
    orWriteError(path, () => writeFile(path, text));
  }

  /**
   * Refuses a result that has no record, differs from it, or was made by other flags. Returns the last check,
   * for when all rows of the input were added.
   * @throws {UsageError}
   */
  require(): () => void {
    const { run, input, output } = readRecord(this.out);
    if (output === undefined) throw this.#refused("was not written by this command with --resume");
    if (output !== hashOf(this.out)) throw this.#refused("has changed since it was written");
    const other = differences(isObject(run) ? run : {}, this.identity!);
    if (other.length > 0) {
      throw this.#refused(`belongs to a run that differs in ${other.join(", ")}`);
    }
    return () => {
      if (input !== this.#input.digest("hex")) throw this.#refused("answers another input");
    };
  }

  #refused(problem: string): UsageError {
    return new UsageError(`"${this.out}" ${problem}`, {
      hints: ["pass --overwrite to replace it, or another -o"],
    });
  }
}

function readRecord(out: string): Record<string, unknown> {
  try {
    const value = jsonValue(Deno.readTextFileSync(recordOf(out)));
    return isObject(value) ? value : {};
  } catch {
    return {};
  }
}

function hashOf(path: string): string {
  const hash = createHash("sha256"), chunk = new Uint8Array(CHUNK_BYTES);
  orWriteError(path, () => {
    using file = Deno.openSync(path);
    for (let count; (count = file.readSync(chunk));) hash.update(chunk.subarray(0, count));
  });
  return hash.digest("hex");
}
