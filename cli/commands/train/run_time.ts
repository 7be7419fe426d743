/** Time that a run will take, from one step that is carried out and forgotten. */
import { memoryInfo } from "../../../core/base/platform/mod.ts";
import type { Batch } from "../../../core/data/batches.ts";
import { Trainer } from "../../../core/train/trainer.ts";
import type { PreparedRun } from "./prepare.ts";

/** Seconds of a step, and of the run with its validations. */
export interface RunTime {
  readonly step: number;
  readonly run: number;
}

/** Measures a step on `batch`; undefined where the run is that of several processes, or lacks memory. */
export async function measureRunTime(
  { device, trainer: options, memory, loop, data, takesFreeMemory }: PreparedRun,
  batch: Batch,
  world: number,
): Promise<RunTime | undefined> {
  const free = takesFreeMemory ? memoryInfo().available : Infinity;
  if (world > 1 || memory.total > free) return undefined;
  const trainer = await Trainer.create(device, options);
  await trainer.accumulate(batch); // the first pass allocates
  const accumulated = await secondsOf(() => trainer.accumulate(batch));
  const updated = await secondsOf(() => trainer.update(1, loop.rates));
  const step = accumulated * loop.microBatches + updated;
  const { steps } = loop.schedule;
  if (!data.evalSize) return { step, run: step * steps };
  const evaluated = await secondsOf(() => trainer.evaluate(batch));
  const validations = 1 + Math.ceil(steps / loop.evalEvery);
  const batches = Math.ceil(data.evalSize.rows / options.sizes.batch);
  return { step, run: step * steps + evaluated * batches * validations };
}

async function secondsOf(work: () => Promise<unknown>): Promise<number> {
  const began = performance.now();
  await work();
  return (performance.now() - began) / 1000;
}
