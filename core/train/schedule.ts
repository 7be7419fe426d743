/**
 * Learning rate over a run: warm-up, then cosine, WSD or nothing.
 *
 * Takes the shape of the schedule and a step, counted from 1; returns a factor by which every
 * group's own rate is multiplied; 1 is the peak. The ParScale paper pre-trains with 2,000 steps of
 * warm-up to 3e-4 and a cosine down to 1e-5: `{ kind: "cosine", warmup: 2000, minFactor: 1 / 30 }`.
 *
 *     warm-up   step / warmup                    up to step = warmup
 *     cosine    min + (1 − min)(1 + cos πt) / 2  t from 0 to 1 over all steps after warm-up
 *     wsd       1, then min + (1 − min)(1 − t)   t from 0 to 1 over the last `decay` steps
 *
 * WSD ("warm-up, stable, decay", MiniCPM, arXiv 2404.06395) leaves the length of a run open until
 * its decay starts. MiniCPM lets the rate fall exponentially, which takes a half-life as a further
 * number; the straight line here needs none and ends exactly at `minFactor`. The first step has 1 /
 * warmup, not 0, so that no step is without effect.
 */
import { UsageError } from "../base/errors.ts";

/** Shape of a schedule. */
export interface ScheduleOptions {
  readonly kind: "cosine" | "wsd" | "constant";
  /** Steps of the whole run. */
  readonly steps: number;
  /** Steps until the peak; 0 for none. */
  readonly warmup: number;
  /** Steps of WSD's final phase; the other kinds have no use for it. */
  readonly decay?: number;
  /** Factor of the last step; a constant schedule has no use for it. */
  readonly minFactor: number;
}

/**
 * The factor of a step; steps after the last one keep its factor.
 *
 * @throws {UsageError} if the phases do not fit into the run
 */
export function learningRateFactor(options: ScheduleOptions, step: number): number {
  requireSound(options);
  const { kind, steps, warmup, decay = 0, minFactor } = options;
  const reached = Math.min(step, steps);
  if (reached < warmup) return reached / warmup;
  const falling = { constant: 0, cosine: steps - warmup, wsd: decay }[kind];
  const stillHigh = steps - falling;
  if (reached <= stillHigh) return 1;
  const t = (reached - stillHigh) / falling;
  const height = kind === "wsd" ? 1 - t : (1 + Math.cos(Math.PI * t)) / 2;
  return minFactor + (1 - minFactor) * height;
}

/** Refuses phases that overlap or have no meaning. */
function requireSound({ kind, steps, warmup, decay, minFactor }: ScheduleOptions): void {
  requireNumber(kind, "steps", steps, 1, Number.MAX_SAFE_INTEGER);
  requireNumber(kind, "warm-up steps", warmup, 0, steps);
  if (kind === "wsd") requireNumber(kind, "decay steps", decay ?? 0, 1, steps - warmup);
  if (minFactor >= 0 && minFactor <= 1) return;
  throw new UsageError(`a ${kind} schedule needs a lowest factor from 0 to 1, not ${minFactor}`);
}

function requireNumber(kind: string, what: string, value: number, low: number, high: number): void {
  if (Number.isSafeInteger(value) && value >= low && value <= high) return;
  throw new UsageError(`a ${kind} schedule needs ${what} from ${low} to ${high}, not ${value}`);
}

/** Default phases of a run of `steps` steps. */
export function defaultPhases(steps: number): { readonly warmup: number; readonly decay: number } {
  const tenth = Math.floor(steps / 10);
  return { warmup: Math.min(2000, tenth), decay: Math.max(1, tenth) };
}
