/** `--resume --steps N` beyond the end of a run, where the steps that are done would be the same. */
import { UsageError } from "../../../core/base/errors.ts";
import type { JsonObject } from "../../../core/base/files.ts";
import { lastCheckpoint } from "../../../core/checkpoint/run.ts";
import { defaultPhases, type ScheduleOptions } from "../../../core/train/schedule.ts";

/** Extension of a run; its phases are pinned, since their defaults follow its length. */
export interface Extension {
  readonly steps: number;
  readonly warmup: number;
  readonly decaySteps: number;
}

/** Phases, which decide whether a run can become longer. */
interface Phases {
  readonly out: string;
  readonly schedule: ScheduleOptions["kind"];
  readonly warmup?: number | undefined;
  readonly decaySteps?: number | undefined;
}

/**
 * The extension that `steps` asks of the run `saved` with the flags `values`; undefined where it asks for
 * none.
 * @throws {UsageError} where the learning rate of steps that are done depends on the length
 */
export async function extensionOf(
  steps: number | undefined,
  values: Phases,
  saved: JsonObject,
): Promise<Extension | undefined> {
  const before = saved.steps;
  if (steps === undefined || typeof before !== "number" || steps <= before) return undefined;
  const { out, schedule } = values;
  const phases = defaultPhases(before);
  const { warmup = phases.warmup, decaySteps = phases.decay } = values;
  const newest = await lastCheckpoint(out);
  const done = Number(/(\d+)$/.exec(newest ?? "")?.[1] ?? 0);
  const stable = before - decaySteps;
  const open = schedule === "constant" || done <= warmup || schedule === "wsd" && done <= stable;
  if (open) return { steps, warmup, decaySteps };
  const reason = schedule === "cosine"
    ? `the cosine of ${before} steps has lowered the learning rate of the steps done`
    : `its learning rate falls since step ${stable}`;
  throw new UsageError(`"${out}" cannot continue to step ${steps}: ${reason}`, {
    hints: [
      `train on with a schedule of its own: --model ${out} --steps ${steps - before} --out NEW`,
      ...(schedule === "wsd"
        ? [`go back to a checkpoint up to step ${stable}: write its name to ${out}/last`]
        : ["a run with --schedule constant or wsd can be made longer"]),
    ],
  });
}
