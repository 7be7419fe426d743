/** Carries out `parscale train`: opens or resumes the run folder, trains, reports and saves. */
import { DataError, NumericalError, UsageError } from "../../../core/base/errors.ts";
import { type JsonObject, readJsonObject } from "../../../core/base/files.ts";
import { VERSION } from "../../../core/base/version.ts";
import { BACKBONE_KEY } from "../../../core/checkpoint/config.ts";
import { lastCheckpoint } from "../../../core/checkpoint/run.ts";
import { elementCount } from "../../../core/model/parameters.ts";
import { type StepReport, train, type Validation } from "../../../core/train/loop.ts";
import { requireNoRun, RUN_SCHEMA, RunFolder } from "../../../core/train/run_folder.ts";
import { saveModel } from "../../../core/train/save_model.ts";
import { EventWriter } from "../../../core/train/tensorboard.ts";
import { Trainer, trainingFlops } from "../../../core/train/trainer.ts";
import { loadState, saveState, type TrainingState } from "../../../core/train/training_state.ts";
import type { Context } from "../../framework/context.ts";
import { LARGE_WEIGHTS } from "../../input/open_model.ts";
import { configKeys, type Invocation, toJson } from "../../output/document.ts";
import { commonFlags } from "../../framework/common.ts";
import { camelCase, formatFlag } from "../../framework/table.ts";
import { Interrupted } from "../../output/errors.ts";
import { formatDuration, Progress, ReadingProgress } from "../../output/progress.ts";
import { Report } from "../../output/report.ts";
import type { Io } from "../../output/io.ts";
import type { EndingSignal } from "../../output/signals.ts";
import { type Ranks, withRanks } from "../../ranks/ranks.ts";
import { type Extension, planTraining, type TrainPlan, type TrainValues } from "./plan.ts";
import { noRoomError, type PreparedRun, prepareRun, requireMemory } from "./prepare.ts";
import {
  describe,
  type MeasuredStep,
  metricsRow,
  progressLine,
  RunWatch,
  startText,
  writeCard,
} from "./show.ts";

/** Runs the command. */
export async function run(values: TrainValues, ctx: Context): Promise<void> {
  const { io, invocation } = ctx;
  const plan = await planTraining(values, invocation);
  if (ctx.isDryRun) ctx.end(await describe(plan, io));
  const json = invocation.format.startsWith("json");
  await withRanks(plan.values, io, json, (ranks) => runRank(plan, ranks, invocation));
}

async function runRank(plan: TrainPlan, ranks: Ranks, invocation: Invocation): Promise<void> {
  const { saved } = plan;
  using opened = new DisposableStack();
  // The primary process alone has a run folder, so that it alone writes.
  const openFolder = ranks.isPrimary ? await claimFolder(plan, invocation, opened) : undefined;
  const run = opened.use(
    await prepareRun(plan, ranks).catch((error) => {
      throw withFolder(error, saved?.folder);
    }),
  );
  if (saved) requireSameRun(saved, run, plan);
  requireMemory(run, plan);
  const folder = await openFolder?.(run);
  await trainInto(folder, run, plan, ranks, invocation).catch((error) => {
    throw noRoomError(error, run, plan);
  });
  ranks.leave(); // while the device is open
}

/** Locks the folder of a run that is resumed; that of a new one is made once the run is prepared. */
async function claimFolder(
  plan: TrainPlan,
  invocation: Invocation,
  opened: DisposableStack,
): Promise<(run: PreparedRun) => Promise<RunFolder>> {
  const { saved, values: { out, overwrite } } = plan;
  if (saved) {
    const folder = opened.use(await RunFolder.open(out));
    return async (run) => {
      await requireSameBackbone(await folder.lastCheckpoint(), run, out);
      if (plan.extension) folder.writeConfig(extendedConfig(saved, plan.extension, run));
      return folder;
    };
  }
  await requireNoRun(out, overwrite);
  return async (run) => {
    const folder = opened.use(await RunFolder.create(out, overwrite));
    folder.writeConfig(configOf(run, invocation));
    return folder;
  };
}

async function trainInto(
  folder: RunFolder | undefined,
  run: PreparedRun,
  plan: TrainPlan,
  ranks: Ranks,
  invocation: Invocation,
): Promise<void> {
  const { io } = ranks;
  const { saved, values } = plan, { out, keep, reparameterize, seed } = values;
  const trainer = await openTrainer(run, io);
  let newest = saved ? await lastCheckpoint(out) : undefined;
  const start = await begin(run, trainer, newest);
  await folder?.truncateMetrics(start.step);
  const removeOld = async (step: number) => {
    if (keep !== undefined) await folder?.keepNewest(keep, step);
  };
  await ranks.compare(run, trainer, sharedPlan(plan));
  await removeOld(start.step); // those of a run that was killed before it removed them
  const flops = trainingFlops(run.trainer) * run.loop.microBatches;

  using report = new Report(io, invocation, {
    schema: "parscale.train/1",
    seed,
    device: run.device.name,
  });
  using events = values.tensorboard && folder
    ? new EventWriter(`${folder.path}/tensorboard`)
    : undefined;
  const total = run.loop.schedule.steps;
  if (total <= start.step) io.note(`"${out}" is complete: all ${start.step} steps are done`);
  else io.note(startText(run));
  const watch = new RunWatch(io, run);
  let last: StepReport | undefined;
  let startLoss: number | undefined;
  let validation: Validation | undefined;
  const options = { label: "Training", unit: "steps", total, from: start.step };
  using progress = new Progress(io, {
    ...options,
    everyItems: values.logEvery,
    line: (count) => progressLine(count, last, run, flops),
  });
  // Ranks read equal parts, within a batch.
  const validated = run.data.evalSize && Math.ceil(run.data.evalSize.tokens / ranks.world);
  using validating = new ReadingProgress(io, "Validating");
  const write = (step: MeasuredStep) => {
    const row = metricsRow(step, ranks.world);
    folder?.appendMetrics(toJson(row) + "\n");
    if (invocation.format === "jsonl") report.row(row);
    if (events) writeEvents(events, row);
  };
  const hooks = {
    signal: ranks.signal,
    onValidate: (tokens: number) => validating.update(tokens, validated),
    onStart(validation: Validation) {
      validating.end();
      const loss = startLoss = validation.loss;
      watch.start(loss);
      progress.restart();
      write({ step: 0, tokens: 0, validation });
      io.note(`validation loss before the first step: ${loss.toFixed(4)}`);
    },
    onStep(step: StepReport) {
      validating.end();
      last = step;
      validation = step.validation ?? validation;
      write(step);
      progress.update(step.step);
      if (step.validation) {
        io.note(`validation loss after step ${step.step}: ${step.validation.loss.toFixed(4)}`);
      }
      watch.look(step);
    },
    async save(state: TrainingState) {
      if (!folder) return await saveState(undefined, trainer, state);
      newest = await folder.saveCheckpoint(state.step, async (path) => {
        const introducedOnly = run.source.params === "introduced";
        await saveModel(path, run.source, trainer, { introducedOnly, reparameterize });
        await writeCard(path, run, plan, state, validation?.loss);
        await saveState(path, trainer, state);
      });
      await removeOld(state.step);
      io.detail(`saved ${newest}`);
    },
  };
  const began = performance.now();
  let end: TrainingState;
  try {
    end = await train(trainer, trainer.collective.share(run.stream), start, run.loop, hooks);
  } catch (error) {
    throw withLastCheckpoint(error, newest);
  }
  const json = invocation.format.startsWith("json");
  const signal = await ranks.endingSignal();
  if (signal) throw interrupted(signal, out, end);
  const results = {
    out,
    checkpoint: newest ?? null,
    steps: end.step,
    tokens: end.tokens,
    loss: last?.loss ?? null,
    loss_ema: end.lossEma ?? null,
    eval_loss: validation?.loss ?? null,
    eval_loss_before: startLoss ?? null,
    // A table is followed by a line that says them.
    ...(json && { eval_stream_weights: validation?.streamWeights ?? null }),
    seconds: Math.round((performance.now() - began) / 100) / 10,
  };
  if (invocation.format === "jsonl") await report.finish();
  // A finished run that is resumed has no figures, and the note says so.
  else if (last || invocation.format !== "table") await report.finish(results);
  if (last) watch.end(validation?.streamWeights);
  if (last && invocation.format === "table") {
    io.note(`try it with \`parscale generate --model ${out} --prompt "..."\``);
  }
  if (last) io.detail(`a step took ${formatDuration(last.seconds)}`);
}

/** Reads and compiles the model, with progress where it is large. */
async function openTrainer({ device, memory, trainer }: PreparedRun, io: Io): Promise<Trainer> {
  const bytes = memory.parameters;
  const options = { label: "Opening", unit: "MB", total: bytes / 1e6 };
  using progress = bytes < LARGE_WEIGHTS ? undefined : new Progress(io, options);
  return await Trainer.create(device, trainer, (read) => progress?.update(read / 1e6));
}

/** The state to begin with: nothing done, or that of a checkpoint. */
async function begin(
  run: PreparedRun,
  trainer: Trainer,
  checkpoint: string | undefined,
): Promise<TrainingState> {
  const { cursor } = run.stream;
  const fresh = {
    step: 0,
    tokens: 0,
    lossEma: undefined,
    emaTokens: 0,
    firstLoss: undefined,
    cursor,
  };
  if (checkpoint === undefined) return fresh;
  const state = await loadState(checkpoint, trainer);
  run.stream.seek(state.cursor as typeof cursor);
  return state;
}

function writeEvents(events: EventWriter, row: Readonly<Record<string, unknown>>): void {
  for (const [key, value] of Object.entries(row)) {
    if (typeof value !== "number" || key === "step") continue;
    events.scalar(`train/${key}`, row.step as number, value);
  }
}

function withLastCheckpoint(error: unknown, newest: string | undefined): unknown {
  if (!(error instanceof NumericalError)) return error;
  const saved = newest === undefined
    ? "no checkpoint was saved yet"
    : `last good checkpoint: ${newest}`;
  return new NumericalError(error.message, { hints: [saved, ...error.hints] });
}

function interrupted(signal: EndingSignal, out: string, state: TrainingState): Interrupted {
  const resume = `resume with \`parscale train --resume ${formatFlag("out", out).slice(1)}`;
  return new Interrupted(signal, [
    state.step === 0 ? "no step was done" : `step ${state.step} is saved; ${resume}`,
  ]);
}

/** Returns what `config.json` of the run records. */
function configOf(run: PreparedRun, invocation: Invocation) {
  const { sizes, recompute, accumulates } = run.trainer;
  return {
    schema: RUN_SCHEMA,
    version: VERSION,
    command: invocation.command, // makes the file a valid --config
    started_at: invocation.startedAt.toISOString(),
    device: run.device.name,
    folder: Deno.cwd(),
    steps: run.loop.schedule.steps,
    data_fingerprint: run.stream.fingerprint,
    data_keys: run.data.keys,
    hub_data: run.data.hubData,
    eval_fingerprint: run.data.evalFingerprint ?? null,
    trained: run.source.trained.map(({ name }) => name),
    trained_params: run.source.trained.reduce((sum, { shape }) => sum + elementCount(shape), 0),
    config: {
      ...configKeys(invocation.config),
      train_params: run.source.params,
      ...(run.rateReason !== undefined && {
        lr_prefix: run.loop.rates.prefix,
        lr_aggregator: run.loop.rates.aggregator,
      }),
      // As they were chosen to fit the memory.
      checkpoint_activations: recompute,
      ...(accumulates && { micro_batch: sizes.batch }),
    },
  };
}

/** The record of a run that was made longer. */
function extendedConfig(
  saved: JsonObject,
  { steps, warmup, decaySteps }: Extension,
  run: PreparedRun,
): JsonObject {
  const flags = {
    steps,
    warmup,
    tokens: null,
    epochs: null,
    ...(run.loop.schedule.kind === "wsd" && { decay_steps: decaySteps }),
  };
  const config = { ...saved.config as JsonObject, ...flags };
  return { ...saved, steps: run.loop.schedule.steps, config };
}

/** Data and trained parameters must be those the run was begun with. */
function requireSameRun(
  saved: Readonly<Record<string, unknown>>,
  run: PreparedRun,
  { values: { out }, extension }: TrainPlan,
): void {
  const trained = run.source.trained.map(({ name }) => name).join();
  const changed = saved.data_fingerprint !== run.stream.fingerprint
    ? "data"
    : saved.eval_fingerprint !== (run.data.evalFingerprint ?? null)
    ? "validation data"
    : (saved.trained as string[] | undefined)?.join() !== trained
    ? "trained parameters"
    : undefined;
  if (changed === "data" && extension && run.data.hubData.length > 0) {
    throw new UsageError(
      `"${out}" cannot become longer: it reads the hub as far as its steps need`,
      { hints: [`train on with a run of its own: --model ${out} --out NEW`] },
    );
  }
  if (changed !== undefined) throw otherThanBefore(changed, out);
}

/** Of an adapter, the checkpoint does not hold the frozen part. */
async function requireSameBackbone(
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
  return new DataError(`cannot resume "${out}": the ${what} changed since the run began`, {
    hints: ["start a new run from its last checkpoint with --model and another --out"],
  });
}

/** Relative paths of a run lead somewhere else when it is resumed in another folder. */
function withFolder(error: unknown, folder: unknown): unknown {
  if (!(error instanceof DataError) || typeof folder !== "string") return error;
  if (folder === Deno.cwd()) return error;
  const hint = `relative paths of this run start at "${folder}"; resume it there`;
  return new DataError(error.message, { hints: [...error.hints, hint], cause: error.cause });
}

/** Flags that ranks may have of their own. */
const OF_RANK = new Set(
  [...Object.keys(commonFlags), "memory-limit", "threads", "dist-timeout"].map(camelCase),
);

/** Returns what must be the same on all ranks: all flags that enter the result. */
function sharedPlan({ values }: TrainPlan): unknown {
  return Object.fromEntries(Object.entries(values).filter(([name]) => !OF_RANK.has(name)));
}
