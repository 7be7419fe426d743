/** Time that a run will take, from one step that is carried out and forgotten. */
import { memoryInfo } from "../../../core/base/platform/mod.ts";
import type { Batch } from "../../../core/data/batches.ts";
import { Trainer } from "../../../core/train/trainer.ts";
import type { PreparedRun } from "./prepare.ts";

/**
 * Measures a step on `batch`, in seconds, and tells those of the run with its opening and validations; undefined
 * where the run is that of several processes, or lacks memory.
 */
export async function measureRunTime(
  { device, trainer: options, memory, loop, data, takesFreeMemory }: PreparedRun,
  batch: Batch,
  world: number,
): Promise<{ readonly step: number; readonly run: number } | undefined> {
  const free = takesFreeMemory ? memoryInfo().available : Infinity;
  if (world > 1 || memory.total > free) return undefined;
  const began = performance.now();
  const trainer = await Trainer.create(device, options);
  await trainer.accumulate(batch); // the first pass allocates
  if (data.evalSize) await trainer.evaluate(batch);
  const opening = (performance.now() - began) / 1000;
  const accumulated = await meanSeconds(() => trainer.accumulate(batch), 2);
  const updated = await meanSeconds(() => trainer.update(1, loop.rates), 1);
  const step = accumulated * loop.microBatches + updated;
  const { steps } = loop.schedule;
  if (!data.evalSize) return { step, run: opening + step * steps };
  const evaluated = await meanSeconds(() => trainer.evaluate(batch), 2);
  const validations = 1 + Math.ceil(steps / loop.evalEvery);
  const batches = Math.ceil(data.evalSize.rows / options.sizes.batch);
  return { step, run: opening + step * steps + evaluated * batches * validations };
}

/** Returns the mean of several runs, since other programs disturb a single one. */
async function meanSeconds(work: () => Promise<unknown>, times: number): Promise<number> {
  const began = performance.now();
  for (let i = 0; i < times; i++) await work();
  return (performance.now() - began) / 1000 / times;
}
