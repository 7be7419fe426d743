/** From the flags of `parscale train`, or those of the run that is resumed, to a plan of the run. */
import { join } from "node:path";
import { lastCheckpoint } from "../../../core/checkpoint/run.ts";
import { DataError, UsageError } from "../../../core/base/errors.ts";
import { isObject, type JsonObject, statIfExists } from "../../../core/base/files.ts";
import type { DataPlan } from "../../../core/data/training_data.ts";
import { parseCondition } from "../../../core/data/select.ts";
import { isHubData } from "../../../core/data/sources.ts";
import type { OptimizerOptions } from "../../../core/train/optimizer.ts";
import { PAPER_RATE } from "../../../core/train/rates.ts";
import { CONFIG, readRunConfig } from "../../../core/train/run_folder.ts";
import { defaultPhases, type ScheduleOptions } from "../../../core/train/schedule.ts";
import type { ValuesOf } from "../../framework/command.ts";
import { commonFlags } from "../../framework/common.ts";
import { defaultOf } from "../../framework/resolve.ts";
import { camelCase, type Flag, formatFlag, snakeCase } from "../../framework/table.ts";
import { BadValue, readValue } from "../../framework/values.ts";
import type { Invocation } from "../../output/document.ts";
import { type command, trainFlags } from "./flags.ts";

/** Values of the flags. */
export type TrainValues = ValuesOf<typeof command>;

/** A training run; what depends on model and data is settled in `prepare.ts`. */
export interface TrainPlan {
  /** Flags; of a resumed run those it was begun with. */
  readonly values: TrainValues;
  /** Configuration of the run that is resumed, as its folder records it. */
  readonly saved: JsonObject | undefined;
  /** Extension that makes a resumed run longer than it was begun. */
  readonly extension: Extension | undefined;
  readonly data: DataPlan;
  readonly optimizer: OptimizerOptions;
  readonly schedule: SchedulePlan;
}

/** Shape of the learning rate; undefined lengths are a tenth of the run. */
export interface SchedulePlan extends Pick<ScheduleOptions, "kind" | "minFactor"> {
  readonly warmup: number | undefined;
  readonly decay: number | undefined;
}

/**
 * The run that flags describe, or that `--resume` continues with.
 * @throws {UsageError} for flags that do not go together, or would change the result of a resumed run
 */
export async function planTraining(given: TrainValues, invocation: Invocation): Promise<TrainPlan> {
  const isThere = given.resume && await statIfExists(join(given.out, CONFIG)) !== undefined;
  const starts = !isThere && given.data.length > 0;
  const mayMeanOut = given.model !== undefined && invocation.origins.out === "default";
  if (given.resume && !isThere && !starts && mayMeanOut) {
    throw new UsageError("`--resume` continues with the run of `--out`", {
      hints: [`did you mean \`--resume ${formatFlag("out", given.model!).slice(1)}?`],
    });
  }
  const saved = given.resume && !starts ? await readRunConfig(given.out) : undefined;
  const resumed = saved ? resumedValues(given, invocation, saved) : given;
  const extension = saved && await extensionOf(given.steps, resumed, saved);
  const others = extension && { tokens: undefined, epochs: undefined };
  const values = { ...resumed, ...extension, ...others };
  const { lr, lrPrefix, lrAggregator, schedule: kind, warmup, decaySteps } = values;
  const peak = lr === 0 ? Math.max(lrPrefix ?? 0, lrAggregator ?? 0) : lr ?? PAPER_RATE;
  const { lrMin = Math.min(1e-5, peak / 10), transform } = values;
  const isAsked = (name: string) => saved === undefined && invocation.origins[name] === "flag";
  if (isAsked("lr-min") && lrMin > peak && kind !== "constant") {
    throw new UsageError(`\`--lr-min ${lrMin}\` exceeds the peak learning rate of ${peak}`);
  }
  if (isAsked("prefix-tokens") && transform.length > 0 && !transform.includes("prefix")) {
    throw new UsageError("`--prefix-tokens` needs `--transform prefix`");
  }
  const minFactor = kind === "constant" || peak === 0 ? 1 : Math.min(1, lrMin / peak);
  return {
    values,
    saved,
    extension,
    data: dataPlan(values),
    optimizer: {
      beta1: values.beta1,
      beta2: values.beta2,
      epsilon: values.adamEpsilon,
      weightDecay: values.weightDecay,
      clip: values.clip === 0 ? Infinity : values.clip,
    },
    schedule: { kind, minFactor, warmup, decay: decaySteps },
  };
}

function dataPlan(values: TrainValues): DataPlan {
  const { data, evalData, textColumn, where } = values;
  // Local files are read by our keys alone.
  const isLocal = ![...data, ...evalData].some(isHubData);
  const selection = { where: where.map(parseCondition) };
  const refused = textColumn !== undefined && isLocal
    ? "--text-column"
    : where.length > 0 && !data.every(isHubData)
    ? "--where"
    : undefined;
  if (refused !== undefined) {
    const filter = [
      ...selection.where.map(({ column, value }) =>
        `select((.${column} | tostring) == ${JSON.stringify(value)})`
      ),
      ...textColumn === undefined ? [] : [`{text: .${textColumn}}`],
    ].join(" | ");
    throw new UsageError(`\`${refused}\` needs data on the hub`, {
      hints: [`convert local files: \`jq -c '${filter}' FILE > rows.jsonl\``],
    });
  }
  const { steps, tokens, epochs = steps ?? tokens ? undefined : 1 } = values;
  // Hub data has no default number of epochs: one may be terabytes.
  if (values.epochs !== epochs && data.some(isHubData)) {
    throw new UsageError("data on the hub need `--steps`, `--tokens` or `--epochs`", {
      hints: ["for a first try: --steps 100"],
    });
  }
  return {
    ...values,
    epochs,
    selection: textColumn === undefined ? selection : { ...selection, textColumn },
  };
}

/** May differ from the run that is resumed: they enter its result by rounding alone. */
const FREE = new Set([
  ...Object.keys(commonFlags),
  ...["threads", "memory-limit", "save-every", "keep", "log-every", "tensorboard"],
  ...["device", "dtype", "deterministic", "shard-optimizer", "unverified"],
]);

/** Of one launch, whatever the run was begun with. */
const OF_LAUNCH = new Set(["out", "dist", "dist-timeout"]);

/** Values of a run that is resumed: those it was begun with, and new ones where they are given and free. */
function resumedValues(
  given: TrainValues,
  { origins, config: now }: Invocation,
  saved: JsonObject,
): TrainValues {
  const { config: before } = saved;
  if (!isObject(before)) {
    throw new DataError(`cannot resume "${given.out}": its config.json holds no flags`, {
      hints: ["begin again with --overwrite, or copy config.json back"],
    });
  }
  const values: Record<string, unknown> = { ...given };
  const changed: string[] = [];
  for (const [name, flag] of Object.entries<Flag>(trainFlags)) {
    const isOfRun = flag.configurable !== false && !OF_LAUNCH.has(name);
    const isGiven = origins[name] !== "default";
    if (!isOfRun || isGiven && FREE.has(name)) continue;
    const key = snakeCase(name);
    const value = Object.hasOwn(before, key) ? before[key] : defaultOf(flag);
    const isSame = JSON.stringify(value) === JSON.stringify(now[name] ?? null);
    const isLonger = name === "steps" && Number(given.steps) > Number(saved.steps);
    if (isGiven && !isSame && !isLonger) changed.push(`--${name}`);
    const isAbsent = value === null && defaultOf(flag) === null;
    values[camelCase(name)] = isAbsent ? undefined : savedValue(flag, value, key, given.out);
  }
  if (changed.length === 0) return values as TrainValues;
  throw new UsageError(`cannot resume "${given.out}" with other values of ${changed.join(", ")}`, {
    hints: ["leave the flags out, or start a new run from its last checkpoint"],
  });
}

/** @throws {DataError} for a value that the flag does not take; its file is that of the run in `out` */
function savedValue(flag: Flag, value: unknown, key: string, out: string) {
  try {
    return readValue(flag, value);
  } catch (error) {
    if (!(error instanceof BadValue)) throw error;
    throw new DataError(
      `"${join(out, CONFIG)}" has ${error.given} in config.${key}, expected ${error.expected}`,
      { hints: ["begin again with --overwrite, or copy config.json back"] },
    );
  }
}

/** Extension of a resumed run by `--steps`; its phases are pinned, since their defaults follow its length. */
export interface Extension {
  readonly steps: number;
  readonly warmup: number;
  readonly decaySteps: number;
}

/**
 * The extension that `steps` asks of the run `saved` with the flags `values`; undefined where it asks for
 * none.
 * @throws {UsageError} where the learning rate of steps that are done depends on the length
 */
async function extensionOf(
  steps: number | undefined,
  values: Pick<TrainValues, "out" | "schedule" | "warmup" | "decaySteps">,
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
