/** From a plan to everything a run consists of: model, data, device, trainer and schedule. */
import { ELEMENT_BYTES } from "../../../core/base/dtype.ts";
import { cacheFolder } from "../../../core/base/cache_folder.ts";
import {
  DataError,
  EnvironmentError,
  OutOfMemoryError,
  UsageError,
} from "../../../core/base/errors.ts";
import { exactJsonText } from "../../../core/base/exact_json.ts";
import { usableCores } from "../../../core/base/platform/mod.ts";
import type { BatchStream } from "../../../core/data/batches.ts";
import {
  type DataContext,
  openData,
  type OpenedData,
  readsStdin,
  tokenizePart,
} from "../../../core/data/training_data.ts";
import type { Device } from "../../../core/runtime/mod.ts";
import { tellReading } from "../../../core/checkpoint/open.ts";
import { hasTokenizer } from "../../../core/checkpoint/model_files.ts";
import { lastCheckpoint } from "../../../core/checkpoint/run.ts";
import { isParScale } from "../../../core/model/config.ts";
import { elementCount, parameterSpecs } from "../../../core/model/parameters.ts";
import {
  openTokenizer,
  type Tokenizer,
  type TokenizerOptions,
} from "../../../core/tokenizer/tokenizer.ts";
import type { LoopOptions } from "../../../core/train/loop.ts";
import { peakRates } from "../../../core/train/rates.ts";
import { countedSlots, divisorsOf, microBatchOf, stepsOf } from "../../../core/train/run_length.ts";
import { type ModelSource, openModelSource } from "../../../core/train/model_source.ts";
import {
  defaultPhases,
  learningRateFactor,
  type ScheduleOptions,
} from "../../../core/train/schedule.ts";
import type { TrainerOptions } from "../../../core/train/trainer.ts";
import {
  fitTraining,
  type TrainingChoices,
  type TrainingMemory,
} from "../../../core/train/training_memory.ts";
import { memoryBudget, requireFreeMemory } from "../../input/limits.ts";
import { findModel, openModel } from "../../input/open_model.ts";
import { templateVariables } from "../../input/template_variables.ts";
import type { Io } from "../../output/io.ts";
import { bytesText, counted } from "../../output/units.ts";
import type { Ranks } from "../../ranks/ranks.ts";
import { DataDisplay } from "./data_display.ts";
import type { TrainPlan, TrainValues } from "./plan.ts";

/** A run ready to begin; nothing large is allocated yet. */
export interface PreparedRun extends Disposable {
  readonly source: ModelSource;
  readonly tokenizer: Tokenizer | undefined;
  readonly data: OpenedData;
  /** Micro-batches of training. */
  readonly stream: BatchStream;
  readonly device: Device;
  readonly trainer: TrainerOptions;
  readonly memory: TrainingMemory;
  /** True if the memory is to come from what is free on this machine, and no limit is given. */
  readonly takesFreeMemory: boolean;
  readonly loop: LoopOptions;
  /** Why default rates are what they are; undefined where all are given. */
  readonly rateReason: string | undefined;
}

/**
 * Opens the model, the device by which ranks join, and the data, which they tokenize together; then chooses
 * what fits the memory, and settles the schedule by what the data hold.
 */
export async function prepareRun(plan: TrainPlan, ranks: Ranks): Promise<PreparedRun> {
  const { io, world } = ranks, { values } = plan;
  const share = microBatchOf(values, world);
  const transport = ranks.transport();
  const template = templateVariables(values.templateVar);
  const source = await withTextStart(await openSource(plan, io), plan, io);
  const { files } = source;
  const tokenizer = files && await hasTokenizer(files)
    ? await openTokenizer(files, template)
    : undefined;
  using opened = new DisposableStack();
  const device = opened.adopt(await ranks.openDevice(), (device) => device.close());
  const collective = await ranks.join(transport, device);
  const data = opened.use(await openRunData(plan, ranks, source, tokenizer, template));

  const { tokens, evalBatches } = data;
  const trained = data.batches(1).trainedRows(stepsOf(values, tokens) * values.batch);
  const runs = [trained, evalBatches ? evalBatches(1).trainedRows(Infinity) : []];
  const optionsOf = (batch: number, recompute: boolean): TrainerOptions => ({
    config: source.config,
    trained: source.trained,
    initial: source.initial,
    sizes: { batch, tokens, counted: countedSlots({ batch, tokens }, runs) },
    optimizer: plan.optimizer,
    accumulates: batch * world < values.batch,
    recompute,
    substitute: source.substitute,
    collective,
  });
  const takesFreeMemory = values.memoryLimit === undefined && world === 1 &&
    !device.traits.discreteMemory;
  const limit = world === 1
    ? memoryBudget(values.memoryLimit, device)
    : values.memoryLimit ?? Infinity;
  const choices = { ...choicesOf(plan, share, world), limit };
  const { options: trainer, memory } = fitTraining(device, optionsOf, choices);
  refuseIfTooLarge(memory, values);
  noteChoice(trainer, values, share, io);

  const { batch } = trainer.sizes, stream = data.batches(batch);
  if (stream.shortened > 0) {
    const what = values.longRows === "drop" ? "left out" : "cut short";
    io.note(`${counted(stream.shortened, "document")} longer than a row ${what}`);
  }
  const given = { backbone: values.lr, prefix: values.lrPrefix, aggregator: values.lrAggregator };
  const { rates, reason: rateReason } = peakRates(given, source);
  const rows = (stream.countBatches() ?? Infinity) * batch;
  const loop = {
    schedule: scheduleOf(plan, stepsOf(values, tokens, rows)),
    rates,
    microBatches: values.batch / batch / world,
    evalEvery: values.evalEvery,
    saveEvery: values.saveEvery,
    evalFeed: evalBatches && (() => collective.share(evalBatches(batch))),
  };
  const run = { source, tokenizer, data, stream, device, trainer, memory, loop, rateReason };
  const open = opened.move();
  return { ...run, takesFreeMemory, [Symbol.dispose]: () => open.dispose() };
}

async function openSource({ values, saved }: TrainPlan, io: Io): Promise<ModelSource> {
  const { model, adapter, tokenizer } = values;
  const paths = model === undefined ? {} : await findModel({ model, adapter }, io);
  const source = await openModelSource({
    ...values,
    ...paths,
    tokenizer: tokenizer === undefined ? undefined : await openFolder(tokenizer, io),
  });
  noteSize(source, io);
  if (values.reparameterize > 0 && source.checkpoint?.config.prefix && saved === undefined) {
    io.note("the prefixes of the checkpoint are started anew: --reparameterize trains an MLP");
  }
  return source;
}

/**
 * Says what of a model is not read, and how large checkpoints of a GGUF file are: each holds the whole model,
 * in more bits a weight.
 */
function noteSize({ params, config, checkpoint }: ModelSource, io: Io): void {
  if (checkpoint) tellReading(checkpoint, io);
  if (params === "introduced" || !checkpoint || !checkpoint.files.isGguf) return;
  const count = parameterSpecs(config).reduce((sum, { shape }) => sum + elementCount(shape), 0);
  const size = bytesText(count * ELEMENT_BYTES[config.dtype]);
  io.note(`every checkpoint holds the whole model: ${size} in ${config.dtype}`);
}

/**
 * The source with streams that start from text, where they are added to a pretrained model: the model is
 * run once, when the first values are asked for.
 */
async function withTextStart(
  source: ModelSource,
  { saved, values: { prefixInit, reparameterize, out, threads } }: TrainPlan,
  io: Io,
): Promise<ModelSource> {
  const { config, checkpoint, files } = source;
  const adds = checkpoint !== undefined && config.prefix && !isParScale(checkpoint.config);
  const isPossible = adds && reparameterize === 0 && await hasTokenizer(files!);
  if (!isPossible && prefixInit === "text") {
    throw new UsageError(
      "`--prefix-init text` needs prefixes that are added to a checkpoint with a tokenizer, " +
        "without `--reparameterize`",
    );
  }
  const isBegun = saved !== undefined && await lastCheckpoint(out) !== undefined;
  if (!isPossible || prefixInit === "normal" || isBegun) return source;
  let values: Promise<ReadonlyMap<string, Float32Array>> | undefined;
  const compute = async () => {
    const { textStart } = await import("../../../core/session/text_start.ts");
    // As one part: training has an arena that grows otherwise.
    const whole = { model: files!.model, threads, splitAbove: Infinity, quantize: "none" } as const;
    using session = await openModel(whole, io);
    return await textStart(session, config);
  };
  const introduced = new Set(
    parameterSpecs(config).flatMap((spec) => spec.introduced ? [spec.name] : []),
  );
  return {
    ...source,
    prefixStart: "text",
    initial: async (name) =>
      (introduced.has(name) ? (await (values ??= compute())).get(name) : undefined) ??
        await source.initial(name),
  };
}

/** A folder that has a tokenizer. */
async function openFolder(name: string, io: Io): Promise<string> {
  const { model: folder } = await findModel({ model: name }, io);
  if (await hasTokenizer(folder)) return folder;
  throw new DataError(`"${name}" has no tokenizer`, {
    hints: ["pass --tokenizer with a folder that holds tokenizer.json"],
  });
}

/**
 * Ways to train within the memory. Ranks must all take the same one, and a resumed run that of its
 * start; so these have one way, as has a run whose way is given.
 */
function choicesOf(
  { saved, values: { microBatch, checkpointActivations: recompute } }: TrainPlan,
  share: number,
  world: number,
): Omit<TrainingChoices, "limit"> {
  if (world > 1 || saved) return { batches: [share], recompute: [recompute] };
  const batches = microBatch === undefined ? divisorsOf(share) : [share];
  return { batches, recompute: recompute ? [true] : [false, true] };
}

/** Names the flags that fit the run into the memory. */
function noteChoice(
  { sizes: { batch }, recompute }: TrainerOptions,
  values: TrainValues,
  share: number,
  io: Io,
): void {
  const flags = [
    ...(batch === share ? [] : [`--micro-batch ${batch}`]),
    ...(recompute === values.checkpointActivations ? [] : ["--checkpoint-activations"]),
  ];
  if (flags.length > 0) io.note(`to take less memory: ${flags.join(" ")}`);
}

/** Opens the data; machines that share a cache tokenize a part each, and the ranks of a machine once. */
async function openRunData(
  { data, saved, values }: TrainPlan,
  ranks: Ranks,
  { config, files }: ModelSource,
  tokenizer: Tokenizer | undefined,
  { templateVariables }: TokenizerOptions,
): Promise<OpenedData> {
  const { io } = ranks, { endToken, threads, batch } = values;
  if (readsStdin(data)) ranks.refuseStdin();
  using reporter = new DataDisplay(io);
  const named = tokenizer?.idOf("<|endoftext|>") ?? tokenizer?.idOf("<|end_of_text|>");
  const end = endToken ?? named ?? config.eosTokenIds[0];
  const { steps = Infinity, tokens = Infinity } = values;
  const context: DataContext = {
    context: config.maxPositionEmbeddings,
    vocabSize: config.vocabSize,
    cacheFolder: `${cacheFolder(io.env)}/tokens`,
    threads: threads ?? usableCores(),
    signal: io.interruption,
    ...(tokenizer && files !== undefined ? { tokenizerFolder: files.model } : {}),
    ...(templateVariables && { templateVariables: exactJsonText(templateVariables) }),
    ...(end === undefined ? {} : { endToken: end }),
    tokensNeeded: (rowTokens) => Math.min(tokens, steps * batch * rowTokens),
    recorded: saved &&
      { keys: saved.data_keys as string[] | undefined, hubData: saved.hub_data },
    env: io.env,
    stdin() {
      io.requireInput();
      return io.system.stdin();
    },
    reporter,
  };
  return await ranks.firstOnMachine(
    () => openData(data, context),
    (part) => tokenizePart(data, context, part),
  );
}

/** The schedule of a run of `steps` steps. @throws {UsageError} for phases that do not fit it */
function scheduleOf({ schedule: shape }: TrainPlan, steps: number): ScheduleOptions {
  const phases = defaultPhases(steps);
  const { warmup = phases.warmup, decay = phases.decay } = shape;
  if (warmup > steps) {
    throw new UsageError(`a warm-up of ${warmup} steps is longer than the run of ${steps}`, {
      hints: [`pass --warmup ${Math.floor(steps / 10)}, or train longer`],
    });
  }
  const schedule = { ...shape, steps, warmup, decay };
  learningRateFactor(schedule, 1); // refuses phases that do not fit
  return schedule;
}

function refuseIfTooLarge({ total }: TrainingMemory, values: TrainValues): void {
  const { memoryLimit: limit } = values;
  if (limit === undefined || total <= limit) return;
  throw new EnvironmentError(
    `training needs ${bytesText(total)}, more than the memory limit of ${bytesText(limit)}`,
    { hints: [smallerHint(values)] },
  );
}

/** The error of a GPU without room, with what the run needs and what makes it smaller. */
export function noRoomError(
  error: unknown,
  { memory }: PreparedRun,
  { values }: TrainPlan,
): unknown {
  if (!(error instanceof OutOfMemoryError)) return error;
  const { total, runtime: _, ...sections } = memory;
  const parts = Object.entries(sections).map(([name, bytes]) => `${name} ${bytesText(bytes)}`);
  return new EnvironmentError(error.message, {
    cause: error,
    hints: [
      `the run needs ${bytesText(total)}: ${parts.join(", ")}`,
      `${smallerHint(values)}, or pass --checkpoint-activations`,
    ],
  });
}

/** Flags that make a run smaller. */
function smallerHint({ microBatch }: TrainValues): string {
  return microBatch === undefined ? "lower --seq-len" : "lower --micro-batch or --seq-len";
}

/** Refuses a run for which this machine has too little memory free. */
export function requireMemory(
  { memory, takesFreeMemory }: PreparedRun,
  { values }: TrainPlan,
): void {
  if (!takesFreeMemory) return;
  const hint = `${smallerHint(values)}; --memory-limit begins all the same`;
  requireFreeMemory(memory.total, "training", hint);
}
