/** Carries out `parscale train`: opens or resumes the run folder, trains, reports and saves. */
import { NumericalError } from "../../../core/base/errors.ts";
import type { JsonObject } from "../../../core/base/files.ts";
import { gatherNumbers } from "../../../core/collective/agreement.ts";
import { countFlops } from "../../../core/graph/flops.ts";
import type { BatchFeed, StepReport } from "../../../core/train/loop.ts";
import type { RunFolder } from "../../../core/train/run_folder.ts";
import type { Trainer } from "../../../core/train/trainer.ts";
import type { TrainingState } from "../../../core/train/training_state.ts";
import { type Invocation, toJson } from "../../output/document.ts";
import { Interrupted } from "../../output/errors.ts";
import type { Io } from "../../output/io.ts";
import { formatDuration, startProgress } from "../../output/progress.ts";
import { openReport } from "../../output/report.ts";
import type { EndingSignal } from "../../output/signals.ts";
import { compareRanks } from "./compare_ranks.ts";
import { trainFlags } from "./flags.ts";
import { type PreparedRun, prepareRun } from "./open_run.ts";
import { Ranks } from "./ranks.ts";
import {
  configOf,
  requireOutside,
  requireSameBackbone,
  requireSameRun,
  withFolder,
} from "./run_config.ts";
import { metricsRow, progressLine, StreamWatch } from "./show_step.ts";
import type { TrainValues } from "./flags.ts";
import { resumedValues } from "./values.ts";

/** What a rank is to do. */
interface Task {
  readonly values: TrainValues;
  /** Configuration of the run that is resumed. */
  readonly saved: JsonObject | undefined;
  readonly ranks: Ranks;
  readonly io: Io;
  readonly invocation: Invocation;
}

export async function runTrain(
  given: TrainValues,
  io: Io,
  invocation: Invocation,
): Promise<void> {
  const env = (name: string) => io.env(name);
  const json = invocation.format.startsWith("json");
  let ranks = new Ranks(given, env, json);
  const own = ranks.ioOf(io);
  const work = async () => {
    const { readRunConfig } = await import("../../../core/train/run_folder.ts");
    const saved = given.resume ? await readRunConfig(given.out) : undefined;
    const { dist, distTimeout } = given; // of this launch, whatever the run began with
    const values = saved === undefined
      ? given
      : { ...resumedValues(given, invocation, saved, trainFlags), dist, distTimeout };
    ranks = new Ranks(values, env, json);
    await runRank({ values, saved, ranks, io: own, invocation });
  };
  if (ranks.world === 1) return await work();
  try {
    await work();
  } catch (error) {
    await ranks.fail(error, own);
  }
}

/** Trains as one of the ranks; rank 0 alone touches the run folder. */
async function runRank(task: Task): Promise<void> {
  const { values, saved, ranks, io, invocation } = task;
  const { out, overwrite } = values;
  const { requireNoRun, RunFolder } = await import("../../../core/train/run_folder.ts");
  using opened = new DisposableStack();
  let folder: RunFolder | undefined;
  if (ranks.isFirst && saved) folder = opened.use(await RunFolder.open(out));
  else if (ranks.isFirst) await requireNoRun(out, overwrite);
  const recorded = saved &&
    { keys: saved.data_keys as string[] | undefined, hubData: saved.hub_data };
  const run = opened.use(
    await prepareRun(values, io, ranks, recorded)
      .catch((error) => {
        throw withFolder(error, saved?.folder);
      }),
  );
  if (saved) requireSameRun(saved, run, out);
  if (folder) await requireSameBackbone(await folder.lastCheckpoint(), run, out);
  else if (ranks.isFirst) {
    await requireOutside(run, values);
    folder = opened.use(await RunFolder.create(out, overwrite));
    await folder.writeConfig(await configOf(run, values, invocation));
  }
  await train(run, folder, task);
  ranks.leave();
}

async function train(
  run: PreparedRun,
  folder: RunFolder | undefined,
  { values, ranks, io, invocation }: Task,
): Promise<void> {
  const { Trainer, buildPrograms } = await import("../../../core/train/trainer.ts");
  const { train } = await import("../../../core/train/loop.ts");
  const { saveModel } = await import("../../../core/train/save_model.ts");
  const { writeCard } = await import("./card.ts");
  const { sendState } = await import("../../../core/train/state_reader.ts");
  const { saveState } = await import("../../../core/train/training_state.ts");
  const { lastCheckpoint } = await import("../../../core/checkpoint/run.ts");
  const { measurePeak } = await import("../../../core/train/peak.ts");
  const trainer = await Trainer.create(run.device, run.trainer);
  const { collective } = trainer;
  let newest = values.resume ? await lastCheckpoint(values.out) : undefined;
  const start = await begin(run, trainer, newest);
  await folder?.truncateMetrics(start.step);
  const removeOld = async (step: number) => {
    if (values.keep !== undefined) await folder?.keepNewest(values.keep, step);
  };
  await compareRanks(run, trainer, values);
  await removeOld(start.step); // those of a run that was killed before it removed them
  const feed = values.overfitOneBatch ? sameBatches(run) : run.data.stream;
  const flops = countFlops(buildPrograms(run.trainer).gradients) * run.loop.microBatches /
    ranks.world;
  // Only the progress line compares with it.
  const peak = io.settings.quiet > 0 ? Infinity : await measurePeak(run.device);

  using report = openReport(io, invocation, {
    schema: "parscale.train/1",
    seed: values.seed,
    device: run.device.name,
  });
  using events = values.tensorboard && folder ? await openEvents(folder.path) : undefined;
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
    signal: io.interruption,
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
      if (!folder) {
        await collective.barrier(); // the model is written
        return await sendState(trainer);
      }
      newest = await folder.saveCheckpoint(state.step, async (path) => {
        const introducedOnly = values.trainParams === "introduced";
        const { reparameterize } = values;
        await saveModel(path, run.source, trainer, { introducedOnly, reparameterize });
        await writeCard(path, run, values, state, evalLoss);
        await collective.barrier();
        await saveState(path, trainer, state);
      });
      await removeOld(state.step);
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
  const signal = await signalOfAny(ranks, io);
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
  const { loadState } = await import("../../../core/train/training_state.ts");
  const state = await loadState(checkpoint, trainer);
  run.data.stream.seek(state.cursor as typeof fresh.cursor);
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

function withLastCheckpoint(error: unknown, newest: string | undefined): unknown {
  if (!(error instanceof NumericalError)) return error;
  const saved = newest === undefined
    ? "no checkpoint was saved yet"
    : `last good checkpoint: ${newest}`;
  return new NumericalError(error.message, { hints: [saved, ...error.hints] });
}

const SIGNALS: readonly (EndingSignal | undefined)[] = [undefined, "SIGINT", "SIGTERM", "SIGHUP"];

/** The signal that reached a rank, the first of them that got one; the same on every rank. */
async function signalOfAny(
  { collective }: Ranks,
  { interruption }: Io,
): Promise<EndingSignal | undefined> {
  const own = interruption.aborted ? (interruption.reason as Interrupted).signal : undefined;
  const all = await gatherNumbers(collective, [SIGNALS.indexOf(own)]);
  return SIGNALS[all.flat().find((signal) => signal > 0) ?? 0];
}

function interrupted(signal: EndingSignal, out: string, state: TrainingState): Interrupted {
  return new Interrupted(signal, [
    `step ${state.step} is saved; resume with \`parscale train --resume --out ${out}\``,
  ]);
}
