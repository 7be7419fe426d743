/**
 * The folder of a training run.
 *
 *     config.json         resolved flags, and what must not change
 *     metrics.jsonl       one line per step
 *     checkpoint-000500/  a model folder (or adapter) with the state of training beside it
 *     last                name of the newest checkpoint
 *     .lock               held by the process that trains
 *
 * A checkpoint is complete or absent, and `last` is replaced after it. Metrics of steps after the
 * checkpoint that is resumed are cut off, since those steps are taken again; later checkpoints stay
 * until they are written anew.
 */
import { basename, join } from "node:path";
import {
  isObject,
  type JsonObject,
  jsonValue,
  readJsonObject,
  show,
  statIfExists,
} from "../base/files.ts";
import { DataError } from "../base/errors.ts";
import { LAST_FILE, lastCheckpoint } from "../checkpoint/run.ts";
import { removeFolder, removeIfExists } from "../storage/leftovers.ts";
import { HIDDEN } from "../storage/our_files.ts";
import { RowFile } from "../storage/row_file.ts";
import { writeFile, writeJson } from "../storage/write_file.ts";
import { LOCK_FILE, lockFolder, requireFreeTarget, writeFolder } from "../storage/write_folder.ts";

/** The file that makes a folder a run. */
export const CONFIG = "config.json";
/** Schema of that file. */
export const RUN_SCHEMA = "parscale.run/1";
const METRICS = "metrics.jsonl";

const CHECKPOINT = /^checkpoint-(\d+)$/;

/** A run folder in use by this process. */
export class RunFolder implements Disposable {
  readonly #metrics: RowFile;

  private constructor(readonly path: string, private readonly lock: Deno.FsFile) {
    this.#metrics = new RowFile(join(path, METRICS));
  }

  /**
   * Makes the folder of a new run.
   * @throws {UsageError} when there is a run already, unless it may be overwritten
   */
  static async create(path: string, overwrite: boolean): Promise<RunFolder> {
    await requireNoRun(path, overwrite);
    const run = new RunFolder(path, lockFolder(path));
    if (!overwrite) return run;
    // Nothing but our files is there, and `last` goes first: what it names must be complete.
    await removeIfExists(join(path, LAST_FILE));
    for (const { name } of await Array.fromAsync(Deno.readDir(path))) {
      if (CHECKPOINT.test(name)) await removeFolder(join(path, name));
      else if (name !== LOCK_FILE) await removeIfExists(join(path, name));
    }
    return run;
  }

  /**
   * Opens the folder of a run that is to continue.
   * @throws {DataError} when there is none
   */
  static async open(path: string): Promise<RunFolder> {
    await requireRun(path);
    return new RunFolder(path, lockFolder(path));
  }

  /** Records what the run was asked to do. */
  writeConfig(config: JsonObject): void {
    writeJson(join(this.path, CONFIG), config);
  }

  /** Folder of the newest checkpoint. */
  lastCheckpoint(): Promise<string | undefined> {
    return lastCheckpoint(this.path);
  }

  /** Lets `fill` write a checkpoint, then makes it the newest; returns its folder. */
  async saveCheckpoint(step: number, fill: (folder: string) => Promise<void>): Promise<string> {
    const name = `checkpoint-${String(step).padStart(6, "0")}`;
    const target = join(this.path, name);
    await writeFolder(target, { replaces: "checkpoint" }, fill);
    writeFile(join(this.path, LAST_FILE), `${name}\n`);
    return target;
  }

  /** Removes all but the newest `keep` checkpoints up to a step; what a resumed run left is later. */
  async keepNewest(keep: number, step: number): Promise<void> {
    const old = (await checkpointsIn(this.path, step)).slice(0, -keep);
    for (const name of old) await removeFolder(join(this.path, name));
  }

  /** Appends a line of metrics. */
  appendMetrics(line: string): void {
    this.#metrics.append(line);
  }

  /** Cuts off metrics after a step, and a last line that a crash left unfinished. */
  async truncateMetrics(step: number): Promise<void> {
    const text = await this.#metrics.read();
    const kept = text.split("\n").filter((line) => {
      const row = jsonValue(line);
      return isObject(row) && Number(row.step) <= step;
    }).map((line) => line + "\n").join("");
    if (kept !== text) writeFile(this.#metrics.path, kept);
  }

  [Symbol.dispose](): void {
    this.#metrics[Symbol.dispose]();
    this.lock.close();
  }
}

/** Names of the checkpoints of a run up to a step, the oldest first. */
async function checkpointsIn(path: string, upTo = Infinity): Promise<string[]> {
  const step = (name: string) => Number(CHECKPOINT.exec(name)?.[1] ?? NaN);
  const names = await Array.fromAsync(Deno.readDir(path), ({ name }) => name);
  return names.filter((name) => step(name) <= upTo).sort((a, b) => step(a) - step(b));
}

/**
 * The configuration of a run that is to continue, as `writeConfig` left it.
 * @throws {DataError} when there is none, it names no trained tensors, or the newest checkpoint lacks a file
 */
export async function readRunConfig(path: string): Promise<JsonObject> {
  await requireRun(path);
  const config = await readJsonObject(join(path, CONFIG));
  const { schema, trained = [] } = config;
  if (schema !== RUN_SCHEMA) {
    const problem = `has ${show(schema)} in "schema", expected "${RUN_SCHEMA}"`;
    throw new DataError(`"${join(path, CONFIG)}" ${problem}`, {
      hints: ["resume with the version of parscale that began the run"],
    });
  }
  await requireState(path);
  if (Array.isArray(trained) && trained.every((name) => typeof name === "string")) return config;
  throw new DataError(
    `"${join(path, CONFIG)}" has ${show(trained)} in "trained", expected a list of names`,
    { hints: ["begin again with --overwrite, or copy config.json back"] },
  );
}

/** Throws where the newest checkpoint lacks its state; a hint goes back to the one before. */
async function requireState(path: string): Promise<void> {
  const files = ["training_state.json", "training_state.safetensors"];
  const lacking = async (name: string) => {
    for (const file of files) if (!await statIfExists(join(path, name, file))) return file;
  };
  const last = basename(await lastCheckpoint(path) ?? "");
  const file = last && await lacking(last);
  if (!file) return;
  let before: string | undefined;
  for (const name of await checkpointsIn(path)) {
    if (name === last) break;
    if (!await lacking(name)) before = name;
  }
  const hint = before === undefined
    ? "begin again with --overwrite"
    : `go back to the checkpoint before: \`echo ${before} > ${join(path, LAST_FILE)}\``;
  const folder = join(path, last);
  throw new DataError(`"${folder}" lacks ${file}: training cannot continue`, { hints: [hint] });
}

async function requireRun(path: string): Promise<void> {
  if (await statIfExists(join(path, CONFIG))) return;
  throw new DataError(`"${path}" holds no training run: it has no ${CONFIG}`, {
    hints: ["pass `--data` and `--model` to start one"],
  });
}

/**
 * Throws unless a new run may be put at `path`; for a look before anything is opened. One that ended before
 * its first step leaves nothing to keep.
 */
export async function requireNoRun(path: string, overwrite: boolean): Promise<void> {
  const hasStep = await statIfExists(join(path, METRICS)) !== undefined ||
    await statIfExists(join(path, LAST_FILE)) !== undefined;
  const isOfRun = async (name: string) =>
    name === CONFIG && (await readJsonObject(join(path, name))).schema === RUN_SCHEMA;
  await requireFreeTarget(path, overwrite ? "run" : undefined, {
    ignores: async (name) =>
      name === LOCK_FILE || !hasStep && (HIDDEN.test(name) || await isOfRun(name)),
    hint: "pass `--resume` or `--overwrite`, or choose another `--out`",
  });
}
