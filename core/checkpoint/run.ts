/**
 * Checkpoints of a training run: commands that take a model also take a run or one of its checkpoints.
 *
 * A run folder has a file `last` with the name of its newest checkpoint. If that is an adapter, `backbone` in
 * the run's `config.json` names the model it belongs to, which may itself be in a run.
 */
import { basename, dirname, resolve } from "node:path";
import { DataError } from "../base/errors.ts";
import { readJsonObject, readRegularText, statIfExists } from "../base/files.ts";
import { ADAPTER_FILE, CONFIG_FILE } from "./open.ts";

/** Name of the file that points to the newest checkpoint. */
export const LAST_FILE = "last";

const CHECKPOINT_NAME = /^checkpoint-\d+$/;

/** Paths that `--model` and `--adapter` stand for. */
export interface ModelPaths {
  readonly model: string;
  readonly adapter: string | undefined;
}

/** The newest checkpoint of a run; undefined when the folder is not a run or has none yet. */
export async function lastCheckpoint(folder: string): Promise<string | undefined> {
  const path = `${folder}/${LAST_FILE}`;
  if (!(await statIfExists(path))?.isFile) return undefined;
  const name = (await readRegularText(path)).trim();
  if (CHECKPOINT_NAME.test(name)) return `${folder}/${name}`;
  throw new DataError(`"${path}" does not name a checkpoint: "${name}"`);
}

/** The run that a folder is a checkpoint of, by its name. */
function runOf(folder: string): string | undefined {
  const path = resolve(folder);
  return CHECKPOINT_NAME.test(basename(path)) ? dirname(path) : undefined;
}

/** Replaces run folders by the checkpoints they point to. */
export async function resolveRuns(
  model: string,
  adapter: string | undefined,
): Promise<ModelPaths> {
  const given = adapter === undefined ? undefined : await lastCheckpoint(adapter) ?? adapter;
  const last = await lastCheckpoint(model);
  const run = last === undefined ? runOf(model) : model;
  const chosen = last ?? model;
  if (given !== undefined || !await statIfExists(`${chosen}/${ADAPTER_FILE}`)) {
    return { model: chosen, adapter: given };
  }
  const path = `${run}/${CONFIG_FILE}`;
  // An adapter outside of a run: opening it says that it needs a backbone.
  if (run === undefined || !await statIfExists(path)) return { model: chosen, adapter: given };
  const { backbone } = await readJsonObject(path);
  if (typeof backbone === "string") return { model: backbone, adapter: chosen };
  throw new DataError(
    `run "${run}" holds an adapter, and its config.json does not name a "backbone"`,
    { hints: ["pass the backbone with `--model` and the run with `--adapter`"] },
  );
}
