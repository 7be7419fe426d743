/** From flags to everything a run consists of: model, data, device, trainer and schedule. */
import { learningRateFactor } from "../../../core/train/schedule.ts";
import type { Collective } from "../../../core/collective/collective.ts";
import type { LoopOptions } from "../../../core/train/loop.ts";
import { type ModelSource, openModelSource } from "../../../core/train/model_source.ts";
import type { TrainerOptions } from "../../../core/train/trainer.ts";
import { planTraining, type TrainingMemory } from "../../../core/train/training_memory.ts";
import type { Device } from "../../../core/runtime/mod.ts";
import { DataError, EnvironmentError, UsageError } from "../../../core/base/errors.ts";
import { openTokenizer, type Tokenizer } from "../../../core/tokenizer/tokenizer.ts";
import { hasTokenizer } from "../../../core/checkpoint/model_files.ts";
import { findModel } from "../../input/open_model.ts";
import type { Io } from "../../output/io.ts";
import { bytesText } from "../../output/units.ts";
import { openData, type OpenedData, type RecordedData } from "./open_data.ts";
import type { TrainValues } from "./flags.ts";
import type { Ranks } from "./ranks.ts";
import { microBatchOf, stepsOf } from "./values.ts";

/** A run ready to begin; nothing large is allocated yet. */
export interface PreparedRun extends Disposable {
  readonly source: ModelSource;
  readonly tokenizer: Tokenizer | undefined;
  readonly data: OpenedData;
  readonly device: Device;
  readonly trainer: TrainerOptions;
  readonly memory: TrainingMemory;
  readonly loop: LoopOptions;
}

/** Opens model, device and data, joins the other ranks, and plans the memory. */
export async function prepareRun(
  values: TrainValues,
  ranks: Ranks,
  recorded?: RecordedData,
): Promise<PreparedRun> {
  const { io } = ranks;
  const microBatch = microBatchOf(values, ranks.world);
  const transport = ranks.transport(values);
  const source = await openSource(values, io);
  const tokenizer = await openTokenizerIfAny(source.directory);
  const device = await ranks.openDevice(values);
  let data: OpenedData | undefined;
  try {
    const collective = await ranks.join(transport, device, values);
    data = await openData(values, io, {
      config: source.config,
      tokenizer,
      tokenizerFolder: tokenizer && source.directory,
      microBatch,
      recorded,
      ranks,
    });
    const trainer: TrainerOptions = {
      config: source.config,
      trained: source.trained,
      initial: source.initial,
      sizes: { batch: microBatch, tokens: data.tokens },
      optimizer: {
        beta1: values.beta1,
        beta2: values.beta2,
        epsilon: values.adamEpsilon,
        weightDecay: values.weightDecay,
        clip: values.clip === 0 ? Infinity : values.clip,
      },
      accumulates: microBatch * ranks.world < values.batch,
      recompute: values.checkpointActivations,
      substitute: source.substitute,
      collective,
    };
    const memory = planTraining(device, trainer);
    refuseIfTooLarge(memory, values.memoryLimit);
    const dispose = () => {
      data?.[Symbol.dispose]();
      device.close();
    };
    const loop = loopOptions(values, microBatch, data, ranks.world, collective);
    return { source, tokenizer, data, device, trainer, memory, loop, [Symbol.dispose]: dispose };
  } catch (error) {
    data?.[Symbol.dispose]();
    device.close();
    throw error;
  }
}

async function openSource(values: TrainValues, io: Io): Promise<ModelSource> {
  const { configFrom, model } = values;
  const paths = model === undefined
    ? { model, adapter: values.adapter }
    : await findModel({ model, adapter: values.adapter }, io);
  return await openModelSource({
    ...paths,
    configFrom,
    tokenizer: values.tokenizer === undefined ? undefined : await openFolder(values.tokenizer, io),
    initStd: values.initStd,
    streams: values.streams,
    transforms: values.transform.length > 0 ? values.transform : undefined,
    prefixTokens: values.prefixTokens,
    loraRank: values.loraRank,
    smoothing: values.smoothing,
    aggregation: values.aggregation,
    params: values.trainParams,
    reparameterize: values.reparameterize,
    ropeTheta: values.ropeTheta,
    context: values.context,
    saveDtype: values.saveDtype,
    seed: values.seed,
  });
}

/** A folder that has a tokenizer. */
async function openFolder(name: string, io: Io): Promise<string> {
  const { model: folder } = await findModel({ model: name }, io);
  if (await hasTokenizer(folder)) return folder;
  throw new DataError(`"${name}" has no tokenizer`, {
    hints: ["pass --tokenizer with a folder that holds tokenizer.json"],
  });
}

async function openTokenizerIfAny(directory: string | undefined): Promise<Tokenizer | undefined> {
  if (directory === undefined || !await hasTokenizer(directory)) return undefined;
  return await openTokenizer(directory);
}

function loopOptions(
  values: TrainValues,
  microBatch: number,
  { tokens, stream, evalStream }: OpenedData,
  world: number,
  collective: Collective,
): LoopOptions {
  const { lr, lrPrefix = lr, lrAggregator = lr, batch } = values;
  const steps = stepsOf(values, tokens, microBatch, stream.countBatches());
  const warmup = values.warmup ?? Math.min(2000, Math.floor(steps / 10));
  const decay = values.decaySteps ?? Math.max(1, Math.floor(steps / 10));
  if (warmup > steps) {
    throw new UsageError(`a warm-up of ${warmup} steps is longer than the run of ${steps}`, {
      hints: [`pass --warmup ${Math.floor(steps / 10)}, or train longer`],
    });
  }
  const minFactor = values.schedule === "constant" || lr === 0 ? 1 : values.lrMin / lr;
  const kind = values.schedule;
  const schedule = { kind, steps, warmup, decay, minFactor: Math.min(1, minFactor) };
  learningRateFactor(schedule, 1); // refuses phases that do not fit
  return {
    schedule,
    rates: { backbone: lr, prefix: lrPrefix, aggregator: lrAggregator },
    microBatches: batch / microBatch / world,
    evalEvery: values.evalEvery,
    saveEvery: values.saveEvery,
    evalFeed: evalStream && (() => collective.share(evalStream())),
  };
}

function refuseIfTooLarge({ total }: TrainingMemory, limit: number | undefined): void {
  if (limit === undefined || total <= limit) return;
  throw new EnvironmentError(
    `training needs ${bytesText(total)}, more than the memory limit of ${bytesText(limit)}`,
    { hints: ["lower --micro-batch or --seq-len, or add --checkpoint-activations"] },
  );
}
