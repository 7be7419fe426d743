/** What a run folder records of its run, and what must not change when it is resumed. */
import { DataError, UsageError } from "../../../core/base/errors.ts";
import { readJsonObject } from "../../../core/base/files.ts";
import { BACKBONE_KEY } from "../../../core/checkpoint/config.ts";
import { elementCount } from "../../../core/model/parameters.ts";
import { VERSION } from "../../../core/base/version.ts";
import { configKeys, type Invocation } from "../../output/document.ts";
import type { TrainValues } from "./flags.ts";
import type { PreparedRun } from "./open_run.ts";

const SCHEMA = "parscale.run/1";

/** What `config.json` of the run records. */
export async function configOf(run: PreparedRun, values: TrainValues, invocation: Invocation) {
  const { directory, checkpoint } = run.source;
  return {
    schema: SCHEMA,
    version: VERSION,
    command: invocation.command, // makes the file a valid --config
    started_at: invocation.startedAt.toISOString(),
    device: run.device.name,
    folder: Deno.cwd(),
    backbone: checkpoint && directory ? await realPath(directory) : null,
    steps: run.loop.schedule.steps,
    data_fingerprint: run.data.stream.fingerprint,
    data_keys: run.data.keys,
    hub_data: run.data.hubData,
    eval_fingerprint: run.data.evalFingerprint ?? null,
    trained: run.source.trained.map(({ name }) => name),
    trained_params: run.source.trained.reduce((sum, { shape }) => sum + elementCount(shape), 0),
    overfit_one_batch: values.overfitOneBatch,
    config: configKeys(invocation.config),
  };
}

/** Data and trained parameters must be those the run was begun with. */
export function requireSameRun(
  saved: Readonly<Record<string, unknown>>,
  run: PreparedRun,
  out: string,
): void {
  const trained = run.source.trained.map(({ name }) => name).join();
  const changed = saved.data_fingerprint !== run.data.stream.fingerprint
    ? "data"
    : saved.eval_fingerprint !== (run.data.evalFingerprint ?? null)
    ? "validation data"
    : (saved.trained as string[] | undefined)?.join() !== trained
    ? "trained parameters"
    : undefined;
  if (changed !== undefined) throw otherThanBefore(changed, out);
}

/** Of an adapter, the checkpoint does not hold the frozen part. */
export async function requireSameBackbone(
  checkpoint: string | undefined,
  { source }: PreparedRun,
  out: string,
): Promise<void> {
  if (checkpoint === undefined) return;
  const before = (await readJsonObject(`${checkpoint}/config.json`))[BACKBONE_KEY];
  if (before === undefined || before === await source.backboneSha256()) return;
  throw otherThanBefore("backbone", out);
}

function otherThanBefore(what: string, out: string): DataError {
  return new DataError(
    `cannot resume "${out}": the ${what} changed since the run began`,
    { hints: ["start a new run from its last checkpoint with --model and another --out"] },
  );
}

/** Relative paths of a run lead somewhere else when it is resumed in another folder. */
export function withFolder(error: unknown, folder: unknown): unknown {
  if (!(error instanceof DataError) || typeof folder !== "string") return error;
  if (folder === Deno.cwd()) return error;
  const hint = `relative paths of this run start at "${folder}"; resume it there`;
  return new DataError(error.message, { hints: [...error.hints, hint], cause: error.cause });
}

/** What the run starts from must not lie in the folder that is about to be replaced. */
export async function requireOutside({ source }: PreparedRun, values: TrainValues): Promise<void> {
  const { out, configFrom } = values;
  const target = await realPath(out);
  for (const path of [source.directory, source.checkpoint?.adapter?.directory, configFrom]) {
    if (path === undefined) continue;
    const start = await realPath(path);
    if (start !== target && !start.startsWith(`${target}/`)) continue;
    throw new UsageError(
      `"${out}" holds the model to start from`,
      { hints: ["pass another --out"] },
    );
  }
}

/** The path as the system knows it; one that leads nowhere stays as it is. */
function realPath(path: string): Promise<string> {
  return Deno.realPath(path).catch(() => path);
}
