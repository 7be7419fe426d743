/** Carries out `parscale train`: opens or resumes the run folder, trains, reports and saves. */
import { DataError, NumericalError, UsageError } from "../../../core/base/errors.ts";
import { countFlops } from "../../../core/graph/flops.ts";
import { elementCount } from "../../../core/model/parameters.ts";
import type { BatchFeed, StepReport } from "../../../core/train/loop.ts";
import type { RunFolder } from "../../../core/train/run_folder.ts";
import type { Trainer } from "../../../core/train/trainer.ts";
import type { TrainingState } from "../../../core/train/training_state.ts";
import { VERSION } from "../../framework/version.ts";
import { configKeys, type Invocation, toJson } from "../../output/document.ts";
import { Interrupted } from "../../output/errors.ts";
import type { Io } from "../../output/io.ts";
import { formatDuration, startProgress } from "../../output/progress.ts";
import { openReport } from "../../output/report.ts";
import { trainFlags } from "./flags.ts";
import { type PreparedRun, prepareRun } from "./open_run.ts";
import { metricsRow, progressLine, StreamWatch } from "./show_step.ts";
import type { TrainValues } from "./flags.ts";
import { resumedValues } from "./values.ts";

const SCHEMA = "parscale.run/1";

export async function runTrain(
  given: TrainValues,
  io: Io,
  invocation: Invocation,
): Promise<void> {
  const { requireNoRun, RunFolder } = await import("../../../core/train/run_folder.ts");
  if (given.resume) {
    using folder = await RunFolder.open(given.out);
    const saved = await folder.readConfig();
    const values = resumedValues(given, invocation, saved, trainFlags);
    const keys = saved.data_keys as string[] | undefined;
    using run = await prepareRun(values, io, { keys, hubData: saved.hub_data })
      .catch((error) => {
        throw withFolder(error, saved.folder);
      });
    requireSameRun(saved, run, given.out);
    await requireSameBackbone(await folder.lastCheckpoint(), run, given.out);
    return await train(run, values, folder, io, invocation);
  }
  await requireNoRun(given.out, given.overwrite);
  using run = await prepareRun(given, io, undefined);
  await requireOutside(run, given);
  using folder = await RunFolder.create(given.out, given.overwrite);
  await folder.writeConfig(await configOf(run, given, invocation));
  await train(run, given, folder, io, invocation);
}

async function train(
  run: PreparedRun,
  values: TrainValues,
  folder: RunFolder,
  io: Io,
  invocation: Invocation,
): Promise<void> {
  const { Trainer, buildPrograms } = await import("../../../core/train/trainer.ts");
  const { train } = await import("../../../core/train/loop.ts");
  const { saveModel } = await import("../../../core/train/save_model.ts");
  const { saveState } = await import("../../../core/train/training_state.ts");
  const { measurePeak } = await import("../../../core/train/peak.ts");
  const trainer = await Trainer.create(run.device, run.trainer);
  const start = await begin(run, trainer, folder, values.resume);
  const feed = values.overfitOneBatch ? sameBatches(run) : run.data.stream;
  const flops = countFlops(buildPrograms(run.trainer).gradients) * run.loop.microBatches;
  // Only the progress line compares with it.
  const peak = io.settings.quiet > 0 ? Infinity : await measurePeak(run.device);

  using report = openReport(io, invocation, {
    schema: "parscale.train/1",
    seed: values.seed,
    device: run.device.name,
  });
  using events = values.tensorboard ? await openEvents(folder.path) : undefined;
  const total = run.loop.schedule.steps;
  if (total <= start.step) io.note(`nothing to do: all ${start.step} steps are done`);
  const watch = new StreamWatch(io, run.source.config);
  let last: StepReport | undefined;
  let evalLoss: number | undefined;
  const options = { label: "Training", unit: "steps", total, from: start.step };
  using progress = startProgress(io, {
    ...options,
    everyItems: values.logEvery,
    line: (count) => progressLine(count, last, evalLoss, flops / peak),
  });
  let newest = await folder.lastCheckpoint();
  const hooks = {
    signal: io.interruption,
    onStep(step: StepReport) {
      last = step;
      evalLoss = step.evalLoss ?? evalLoss;
      const row = metricsRow(step);
      folder.appendMetrics(toJson(row) + "\n");
      if (invocation.format === "jsonl") report.row(row);
      events?.step(row);
      progress.update(step.step);
      watch.look(step);
    },
    async save(state: TrainingState) {
      newest = await folder.saveCheckpoint(state.step, async (path) => {
        const introducedOnly = values.trainParams === "introduced";
        const { reparameterize } = values;
        await saveModel(path, run.source, trainer, { introducedOnly, reparameterize });
        await saveState(path, trainer, state);
      });
      if (values.keep !== undefined) await folder.keepNewest(values.keep, state.step);
      io.detail(`saved ${newest}`);
    },
  };
  const began = performance.now();
  let end: TrainingState;
  try {
    end = await train(trainer, feed, start, run.loop, hooks);
  } catch (error) {
    throw withLastCheckpoint(error, newest);
  }
  if (io.interruption.aborted) throw interrupted(io, values.out, end);
  const results = {
    out: values.out,
    checkpoint: newest ?? null,
    steps: end.step,
    tokens: end.tokens,
    loss: last?.loss ?? null,
    loss_ema: end.lossEma ?? null,
    eval_loss: evalLoss ?? null,
    seconds: Math.round((performance.now() - began) / 100) / 10,
  };
  if (invocation.format === "jsonl") await report.finish();
  else await report.finish(results);
  if (last) io.detail(`a step took ${formatDuration(last.seconds)}`);
}

/** What the run starts from must not lie in the folder that is about to be replaced. */
async function requireOutside({ source }: PreparedRun, values: TrainValues): Promise<void> {
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

/** The state to begin with: nothing done, or the newest checkpoint. */
async function begin(
  run: PreparedRun,
  trainer: Trainer,
  folder: RunFolder,
  resume: boolean,
): Promise<TrainingState> {
  const fresh = { step: 0, tokens: 0, lossEma: undefined, cursor: run.data.stream.cursor };
  const last = resume ? await folder.lastCheckpoint() : undefined;
  if (last === undefined) {
    await folder.truncateMetrics(0);
    return fresh;
  }
  const { loadState } = await import("../../../core/train/training_state.ts");
  const state = await loadState(last, trainer);
  run.data.stream.seek(state.cursor as typeof fresh.cursor);
  await folder.truncateMetrics(state.step);
  return state;
}

/** The batches of the first step, for ever. */
function sameBatches(run: PreparedRun): BatchFeed {
  const count = run.loop.microBatches;
  const { cursor } = run.data.stream; // where a resumed run finds the same batches
  const batches = Array.from({ length: count }, () => run.data.stream.next())
    .filter((batch) => batch !== undefined);
  let next = 0;
  return {
    next: () => batches[next++ % Math.min(count, batches.length)],
    skip: () => next++ >= 0,
    cursor,
  };
}

async function openEvents(folder: string) {
  const { EventWriter } = await import("../../../core/train/tensorboard.ts");
  const writer = new EventWriter(`${folder}/tensorboard`);
  return {
    step(row: Readonly<Record<string, unknown>>) {
      for (const [key, value] of Object.entries(row)) {
        if (typeof value !== "number" || key === "step") continue;
        writer.scalar(`train/${key}`, row.step as number, value);
      }
    },
    [Symbol.dispose]: () => writer.close(),
  };
}

/** What `config.json` of the run records. */
async function configOf(run: PreparedRun, values: TrainValues, invocation: Invocation) {
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
function requireSameRun(
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
async function requireSameBackbone(
  checkpoint: string | undefined,
  { source }: PreparedRun,
  out: string,
): Promise<void> {
  if (checkpoint === undefined) return;
  const { readJsonObject } = await import("../../../core/base/files.ts");
  const { BACKBONE_KEY } = await import("../../../core/checkpoint/config.ts");
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
function withFolder(error: unknown, folder: unknown): unknown {
  if (!(error instanceof DataError) || typeof folder !== "string") return error;
  if (folder === Deno.cwd()) return error;
  const hint = `relative paths of this run start at "${folder}"; resume it there`;
  return new DataError(error.message, { hints: [...error.hints, hint], cause: error.cause });
}

function withLastCheckpoint(error: unknown, newest: string | undefined): unknown {
  if (!(error instanceof NumericalError)) return error;
  const saved = newest === undefined
    ? "no checkpoint was saved yet"
    : `last good checkpoint: ${newest}`;
  return new NumericalError(error.message, { hints: [saved, ...error.hints] });
}

function interrupted(io: Io, out: string, state: TrainingState): Interrupted {
  const { signal } = io.interruption.reason as Interrupted;
  return new Interrupted(signal, [
    `step ${state.step} is saved; resume with \`parscale train --resume --out ${out}\``,
  ]);
}
