/**
 * The training loop: batches in, updated parameters and a report per step out.
 *
 * It owns the order of things (accumulate, update, validate, report, save) and nothing else: numbers
 * are the trainer's, rows are `core/data`'s, and files and progress lines are the caller's. An abort
 * takes effect between steps, after a save. Where several processes train together, each is given its own
 * batches and a signal that aborts in all of them at once; decisions depend on sums over all.
 */
import type { Feed } from "../collective/collective.ts";
import type { Batch } from "../data/batches.ts";
import { learningRateFactor, type ScheduleOptions } from "./schedule.ts";
import type { RateKind } from "./trainable.ts";
import type { Trainer } from "./trainer.ts";
import type { TrainingState } from "./training_state.ts";

/** Decay of the smoothed loss. */
export const EMA = 0.95;

/** Steps whose mean says how high the loss is: that of one short row says little. */
export const MEAN_STEPS = 5;

/** Options of a run. */
export interface LoopOptions {
  readonly schedule: ScheduleOptions;
  /** Peak learning rates. */
  readonly rates: Readonly<Record<RateKind, number>>;
  /** Micro-batches of this process per step. */
  readonly microBatches: number;
  /** Steps between validations, and between checkpoints. */
  readonly evalEvery: number;
  readonly saveEvery: number;
  /** Batches of the validation data, from the first; undefined without such data. */
  readonly evalFeed: (() => Feed<Batch>) | undefined;
}

/** Report of one step. */
export interface StepReport {
  /** Counted from 1. */
  readonly step: number;
  /** Tokens read since the run began, padding not counted. */
  readonly tokens: number;
  /** Mean over predicted tokens in nats, before the update. */
  readonly loss: number;
  /** Loss smoothed over steps by `EMA`, with equal weight for each token. */
  readonly lossEma: number;
  /** Mean over the first `MEAN_STEPS` steps of the run, or those so far. */
  readonly firstLoss: number;
  /** Before clipping. */
  readonly gradNorm: number;
  readonly clipScale: number;
  readonly rates: Readonly<Record<RateKind, number>>;
  /** Mean aggregation weight of each stream; undefined with one stream. */
  readonly streamWeights: readonly number[] | undefined;
  readonly tokensPerSecond: number;
  readonly seconds: number;
  /** Share of the time spent waiting for data. */
  readonly dataWait: number;
  /** After the update. */
  readonly validation: Validation | undefined;
}

/** Means over the validation data. */
export interface Validation {
  /** In nats per predicted token. */
  readonly loss: number;
  /** Mean aggregation weight of each stream; undefined with one stream. */
  readonly streamWeights: readonly number[] | undefined;
}

/** Callbacks of the loop. */
export interface LoopHooks {
  /** Takes the validation before the first step. */
  onStart(validation: Validation): void;
  /** Takes the tokens of the validation data that were read, after each batch. */
  onValidate?(tokens: number): void;
  onStep(report: StepReport): void;
  save(state: TrainingState): Promise<void>;
  readonly signal: AbortSignal;
}

/**
 * Trains from a state on and returns the last one; earlier than planned when the data ends or the
 * signal aborts.
 * @throws {NumericalError} when loss or gradient stop being finite; nothing is saved then
 */
export async function train(
  trainer: Trainer,
  feed: Feed<Batch>,
  start: TrainingState,
  options: LoopOptions,
  hooks: LoopHooks,
): Promise<TrainingState> {
  const state = { ...start };
  const { steps } = options.schedule;
  let saved = start.step;
  const validates = options.evalFeed && state.step === 0 && !hooks.signal.aborted;
  const before = validates ? await validate(trainer, options.evalFeed!(), hooks) : undefined;
  if (before !== undefined) hooks.onStart(before);
  while (state.step < steps && !hooks.signal.aborted) {
    const began = performance.now();
    const read = await accumulate(trainer, feed, options.microBatches);
    const [used] = await trainer.exchangeSums([read.used]);
    if (used === 0) break;
    const { loss: sum, predicted, streamWeights } = trainer.sums;
    const loss = sum / predicted;
    const step = state.step + 1;
    const rates = scaledRates(options, step);
    const { gradNorm, clipScale } = await trainer.update(step, rates);
    const seconds = (performance.now() - began) / 1000;

    state.step = step;
    state.tokens += used!;
    const { lossEma = loss, firstLoss = loss } = state;
    state.emaTokens = EMA * state.emaTokens + used!;
    state.lossEma = lossEma + used! / state.emaTokens * (loss - lossEma);
    if (step <= MEAN_STEPS) state.firstLoss = firstLoss + used! / state.tokens * (loss - firstLoss);
    state.cursor = feed.cursor;
    // A run that is to end does not validate first, which may take minutes.
    const due = !hooks.signal.aborted && (step % options.evalEvery === 0 || step === steps);
    hooks.onStep({
      step,
      tokens: state.tokens,
      loss,
      lossEma: state.lossEma,
      firstLoss: state.firstLoss ?? loss,
      gradNorm,
      clipScale,
      rates,
      streamWeights: meansOf(streamWeights, predicted),
      tokensPerSecond: used! / seconds,
      seconds,
      dataWait: read.waited / seconds,
      validation: due && options.evalFeed
        ? await validate(trainer, options.evalFeed(), hooks)
        : undefined,
    });
    if (step % options.saveEvery !== 0) continue;
    await hooks.save(state);
    saved = step;
  }
  if (state.step > saved) await hooks.save(state);
  return state;
}

/** Means over the batches of all processes; undefined where the signal of one of them aborts before its end. */
async function validate(
  trainer: Trainer,
  feed: Feed<Batch>,
  hooks: LoopHooks,
): Promise<Validation | undefined> {
  const own = { loss: 0, predicted: 0, streamWeights: new Array<number>(trainer.streams).fill(0) };
  let tokens = 0;
  hooks.onValidate?.(tokens);
  for (let batch = feed.next(); batch && !hooks.signal.aborted; batch = feed.next()) {
    const sums = await trainer.evaluate(batch);
    own.loss += sums.loss;
    own.predicted += sums.predicted;
    sums.streamWeights.forEach((weight, p) => own.streamWeights[p]! += weight);
    hooks.onValidate?.(tokens += batch.used);
  }
  const ended = Number(hooks.signal.aborted);
  const [aborted, loss, predicted, ...weights] = await trainer.collective
    .sum([ended, own.loss, own.predicted, ...own.streamWeights]);
  if (aborted! > 0) return undefined;
  return { loss: loss! / predicted!, streamWeights: meansOf(weights, predicted!) };
}

function meansOf(sums: readonly number[], count: number): number[] | undefined {
  return sums.length > 0 ? sums.map((sum) => sum / count) : undefined;
}

/** Adds up the gradients of a step; `waited` in seconds. */
async function accumulate(
  trainer: Trainer,
  feed: Feed<Batch>,
  microBatches: number,
): Promise<{ used: number; waited: number }> {
  let used = 0, waited = 0;
  for (let i = 0; i < microBatches; i++) {
    const asked = performance.now();
    const batch = feed.next();
    waited += (performance.now() - asked) / 1000;
    if (!batch) break;
    if (batch.predicted === 0) continue;
    await trainer.accumulate(batch);
    used += batch.used;
  }
  return { used, waited };
}

function scaledRates({ schedule, rates }: LoopOptions, step: number): Record<RateKind, number> {
  const factor = learningRateFactor(schedule, step);
  return {
    backbone: rates.backbone * factor,
    prefix: rates.prefix * factor,
    aggregator: rates.aggregator * factor,
  };
}
