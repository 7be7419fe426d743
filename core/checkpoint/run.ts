/**
 * Checkpoints of a training run: commands that take a model also take a run or one of its checkpoints. A run
 * folder has a file `last` with the name of its newest checkpoint.
 */
import { DataError, UsageError } from "../base/errors.ts";
import { readRegularText, statIfExists } from "../base/files.ts";
import { baseOf } from "./adapter_base.ts";

/** Name of the file that points to the newest checkpoint. */
export const LAST_FILE = "last";

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
  if (/^checkpoint-\d+$/.test(name)) return `${folder}/${name}`;
  throw new DataError(`"${path}" does not name a checkpoint: "${name}"`);
}

/**
 * Replaces run folders by the checkpoints they point to, and an adapter given as the model by its backbone,
 * a path or a name on the hub, and itself.
 */
export async function resolveRuns(model: string, adapter: string | undefined): Promise<ModelPaths> {
  const given = adapter === undefined ? undefined : await lastCheckpoint(adapter) ?? adapter;
  const chosen = await lastCheckpoint(model) ?? model;
  const base = await baseOf(chosen);
  if (base === undefined) return { model: chosen, adapter: given };
  if (given === undefined) return { model: base, adapter: chosen };
  throw new UsageError(`"${model}" is an adapter, over which \`--adapter\` cannot lay another`, {
    hints: [`leave out one of them, or pass the backbone: --model ${base} --adapter ${adapter}`],
  });
}
