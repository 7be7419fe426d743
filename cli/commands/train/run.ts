/** Carries out `parscale train`: opens or resumes the run folder, trains, reports and saves. */
import { NumericalError } from "../../../core/base/errors.ts";
import type { JsonObject } from "../../../core/base/files.ts";
import { lastCheckpoint } from "../../../core/checkpoint/run.ts";
import type { DivisibleFeed } from "../../../core/collective/collective.ts";
import type { Batch } from "../../../core/data/batches.ts";
import { countFlops } from "../../../core/graph/flops.ts";
import { type StepReport, train } from "../../../core/train/loop.ts";
import { measurePeak } from "../../../core/train/peak.ts";
import { readRunConfig, requireNoRun, RunFolder } from "../../../core/train/run_folder.ts";
import { saveModel } from "../../../core/train/save_model.ts";
import { EventWriter } from "../../../core/train/tensorboard.ts";
import { buildPrograms, Trainer } from "../../../core/train/trainer.ts";
import { loadState, saveState, type TrainingState } from "../../../core/train/training_state.ts";
import { type Invocation, toJson } from "../../output/document.ts";
import { Interrupted } from "../../output/errors.ts";
import type { Io } from "../../output/io.ts";
import { formatDuration, startProgress } from "../../output/progress.ts";
import { openReport } from "../../output/report.ts";
import type { EndingSignal } from "../../output/signals.ts";
import { writeCard } from "./card.ts";
import { trainFlags, type TrainValues } from "./flags.ts";
import { type PreparedRun, prepareRun } from "./open_run.ts";
import { type Ranks, withRanks } from "./ranks.ts";
import {
  configOf,
  requireOutside,
  requireSameBackbone,
  requireSameRun,
  withFolder,
} from "./run_config.ts";
import { metricsRow, progressLine, StreamWatch } from "./show_step.ts";
import { resumedValues } from "./values.ts";

export { describe } from "./plan.ts";

/** What a process is to do. */
interface Task {
  readonly values: TrainValues;
  /** Configuration of the run that is resumed. */
  readonly saved: JsonObject | undefined;
  readonly ranks: Ranks;
  readonly invocation: Invocation;
}

export async function run(
  given: TrainValues,
  io: Io,
  invocation: Invocation,
): Promise<void> {
  await withRanks(given, io, invocation.format.startsWith("json"), async (ranks) => {
    const saved = given.resume ? await readRunConfig(given.out) : undefined;
    const values = saved ? resumedValues(given, invocation, saved, trainFlags) : given;
    await runTask({ values, saved, ranks, invocation });
  });
}

async function runTask(task: Task): Promise<void> {
  const { values, saved, ranks } = task;
  using opened = new DisposableStack();
  // The primary process alone has a run folder, so that it alone writes.
  const openFolder = ranks.isPrimary ? await claimFolder(task, opened) : undefined;
  const recorded = saved &&
    { keys: saved.data_keys as string[] | undefined, hubData: saved.hub_data };
  const run = opened.use(
    await prepareRun(values, ranks, recorded)
      .catch((error) => {
        throw withFolder(error, saved?.folder);
      }),
  );
  if (saved) requireSameRun(saved, run, values.out);
  await trainInto(await openFolder?.(run), run, task);
  ranks.leave(); // while the device is open
}

/** Locks the folder of a run that is resumed; that of a new one is made once the run is prepared. */
async function claimFolder(
  { values, saved, invocation }: Task,
  opened: DisposableStack,
): Promise<(run: PreparedRun) => Promise<RunFolder>> {
  const { out, overwrite } = values;
  if (saved) {
    const folder = opened.use(await RunFolder.open(out));
    return async (run) => {
      await requireSameBackbone(await folder.lastCheckpoint(), run, out);
      return folder;
    };
  }
  await requireNoRun(out, overwrite);
  return async (run) => {
    await requireOutside(run, values);
    const folder = opened.use(await RunFolder.create(out, overwrite));
    await folder.writeConfig(await configOf(run, values, invocation));
    return folder;
  };
}

async function trainInto(
  folder: RunFolder | undefined,
  run: PreparedRun,
  { values, ranks, invocation }: Task,
): Promise<void> {
  const { io } = ranks;
  const trainer = await Trainer.create(run.device, run.trainer);
  let newest = values.resume ? await lastCheckpoint(values.out) : undefined;
  const start = await begin(run, trainer, newest);
  await folder?.truncateMetrics(start.step);
  const removeOld = async (step: number) => {
    if (values.keep !== undefined) await folder?.keepNewest(values.keep, step);
  };
  await ranks.compare(run, trainer, values);
  await removeOld(start.step); // those of a run that was killed before it removed them
  const microBatches = values.batch / run.trainer.sizes.batch;
  const feed = values.overfitOneBatch ? sameBatches(run, microBatches) : run.data.stream;
  const flops = countFlops(buildPrograms(run.trainer).gradients) * run.loop.microBatches;
  // Only the progress line compares with it.
  const peak = io.settings.quiet > 0 ? Infinity : await measurePeak(run.device);

  using report = openReport(io, invocation, {
    schema: "parscale.train/1",
    seed: values.seed,
    device: run.device.name,
  });
  using events = values.tensorboard && folder ? openEvents(folder.path) : undefined;
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
  const hooks = {
    signal: ranks.signal,
    onStep(step: StepReport) {
      last = step;
      evalLoss = step.evalLoss ?? evalLoss;
      const row = metricsRow(step, ranks.world);
      folder?.appendMetrics(toJson(row) + "\n");
      if (invocation.format === "jsonl") report.row(row);
      events?.step(row);
      progress.update(step.step);
      watch.look(step);
    },
    async save(state: TrainingState) {
      if (!folder) return await saveState(undefined, trainer, state);
      newest = await folder.saveCheckpoint(state.step, async (path) => {
        const introducedOnly = values.trainParams === "introduced";
        const { reparameterize } = values;
        await saveModel(path, run.source, trainer, { introducedOnly, reparameterize });
        await writeCard(path, run, values, state, evalLoss);
        await saveState(path, trainer, state);
      });
      await removeOld(state.step);
      io.detail(`saved ${newest}`);
    },
  };
  const began = performance.now();
  let end: TrainingState;
  try {
    end = await train(trainer, trainer.collective.share(feed), start, run.loop, hooks);
  } catch (error) {
    throw withLastCheckpoint(error, newest);
  }
  const signal = await ranks.endingSignal();
  if (signal) throw interrupted(signal, values.out, end);
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

/** The state to begin with: nothing done, or that of a checkpoint. */
async function begin(
  run: PreparedRun,
  trainer: Trainer,
  checkpoint: string | undefined,
): Promise<TrainingState> {
  const fresh = { step: 0, tokens: 0, lossEma: undefined, cursor: run.data.stream.cursor };
  if (checkpoint === undefined) return fresh;
  const state = await loadState(checkpoint, trainer);
  run.data.stream.seek(state.cursor as typeof fresh.cursor);
  return state;
}

/** The `count` batches of the first step, for ever. */
function sameBatches(run: PreparedRun, count: number): DivisibleFeed<Batch> {
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

function openEvents(folder: string) {
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

function withLastCheckpoint(error: unknown, newest: string | undefined): unknown {
  if (!(error instanceof NumericalError)) return error;
  const saved = newest === undefined
    ? "no checkpoint was saved yet"
    : `last good checkpoint: ${newest}`;
  return new NumericalError(error.message, { hints: [saved, ...error.hints] });
}

function interrupted(signal: EndingSignal, out: string, state: TrainingState): Interrupted {
  return new Interrupted(signal, [
    `step ${state.step} is saved; resume with \`parscale train --resume --out ${out}\``,
  ]);
}
