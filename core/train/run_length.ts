/** Length of a run, and the micro-batches of a step. */
import { UsageError } from "../base/errors.ts";

/** Length of a run; the shortest of the lengths given ends it. */
export interface RunLength {
  readonly steps: number | undefined;
  readonly tokens: number | undefined;
  /** Rows per step. */
  readonly batch: number;
  /** Rows at a time; undefined for a rank's whole share of a step. */
  readonly microBatch: number | undefined;
}

/** Resolved micro-batch, which must divide the batch into as many for each of `world` ranks. */
export function microBatchOf(
  { batch, microBatch }: Pick<RunLength, "batch" | "microBatch">,
  world: number,
): number {
  const size = microBatch ?? (batch % world === 0 ? batch / world : batch);
  if (batch % size !== 0) {
    throw new UsageError(`\`--micro-batch ${size}\` does not divide \`--batch ${batch}\``);
  }
  const count = batch / size;
  if (count % world === 0) return size;
  const larger = Math.ceil(batch / world) * world;
  const divisible = batch % world === 0;
  throw new UsageError(
    `${world} ranks cannot share the ${count} micro-${
      count === 1 ? "batch" : "batches"
    } of a step: ` +
      `\`--batch ${batch}\`, \`--micro-batch ${size}\``,
    {
      hints: [
        divisible
          ? `pass --micro-batch ${batch / world}, or a divisor of it`
          : `pass --batch ${larger} --micro-batch ${larger / world}`,
      ],
    },
  );
}

/** Steps of the run: the shortest of the lengths given. `rows` is how many the data has. */
export function stepsOf(
  { steps = Infinity, tokens = Infinity, batch }: Pick<RunLength, "steps" | "tokens" | "batch">,
  rowTokens: number,
  rows = Infinity,
): number {
  return Math.min(steps, Math.ceil(tokens / (batch * rowTokens)), Math.ceil(rows / batch));
}

/**
 * Slots of a micro-batch whose loss is computed, in eighths of all, so that a longer run most likely has as
 * many. `runs` are the trained tokens of each row of training and validation; undefined may be all.
 */
export function countedSlots(
  { batch, tokens }: { readonly batch: number; readonly tokens: number },
  runs: readonly (readonly number[] | undefined)[],
): number {
  const slots = batch * tokens;
  let fullest = 1;
  for (const rows of runs) {
    if (rows === undefined) return slots;
    for (let row = 0; row < rows.length; row += batch) {
      const trained = rows.slice(row, row + batch).reduce((sum, count) => sum + count, 0);
      fullest = Math.max(fullest, trained);
    }
  }
  return Math.ceil(slots * Math.ceil(8 * fullest / slots) / 8);
}

/** Divisors of a number, the largest first. */
export function divisorsOf(count: number): number[] {
  return Array.from({ length: count }, (_, i) => count - i).filter((size) => count % size === 0);
}
