/** The values of `parscale train`, from flags or from the run that is resumed. */
import { DataError, UsageError } from "../../../core/base/errors.ts";
import { isObject, type JsonObject } from "../../../core/base/files.ts";
import { commonFlags } from "../../framework/common.ts";
import { camelCase, type FlagTable, snakeCase } from "../../framework/table.ts";
import { defaultOf } from "../../framework/resolve.ts";
import { readValue } from "../../framework/values.ts";
import type { Invocation } from "../../output/document.ts";
import type { TrainValues } from "./flags.ts";

/** May differ from the run that is resumed: they do not enter its result. */
const FREE = new Set([
  ...Object.keys(commonFlags),
  "threads",
  "memory-limit",
  "save-every",
  "keep",
  "log-every",
  "tensorboard",
  "deterministic",
  "shard-optimizer",
]);

/** Of one launch, whatever the run was begun with. */
const OF_LAUNCH = new Set(["out", "dist", "dist-timeout"]);

/**
 * Values of a run that goes on: those it was begun with, and new ones where they are given and free.
 * @throws {UsageError} when a flag is given that would change the result
 */
export function resumedValues(
  given: TrainValues,
  invocation: Invocation,
  saved: JsonObject,
  table: FlagTable,
): TrainValues {
  const { config } = saved;
  if (!isObject(config)) {
    throw new DataError(
      `cannot resume "${given.out}": its config.json holds no flags`,
      { hints: ["begin again with --overwrite, or copy config.json back"] },
    );
  }
  const values: Record<string, unknown> = { ...given };
  const changed: string[] = [];
  for (const [name, flag] of Object.entries(table)) {
    if (flag.configurable === false || flag.type === "shorthand" || OF_LAUNCH.has(name)) continue;
    const isGiven = invocation.origins[name] !== "default";
    if (isGiven && FREE.has(name)) continue;
    // In kebab case in earlier versions, which did not know every flag.
    const key = Object.hasOwn(config, name) ? name : snakeCase(name);
    const before = Object.hasOwn(config, key) ? config[key] : defaultOf(flag);
    const now = invocation.config[name] ?? null;
    if (isGiven && JSON.stringify(before) !== JSON.stringify(now)) changed.push(`--${name}`);
    values[camelCase(name)] = before === null ? undefined : readValue(flag, before);
  }
  if (changed.length > 0) {
    throw new UsageError(
      `cannot resume "${given.out}" with other values of ${changed.join(", ")}`,
      { hints: ["leave the flags out, or start a new run from its last checkpoint"] },
    );
  }
  return values as TrainValues;
}

/** Resolved micro-batch, which must divide the batch into as many for each of `world` ranks. */
export function microBatchOf({ batch, microBatch }: TrainValues, world: number): number {
  const size = microBatch ?? (batch % world === 0 ? batch / world : batch);
  if (batch % size !== 0) {
    throw new UsageError(`\`--micro-batch ${size}\` does not divide \`--batch ${batch}\``);
  }
  const count = batch / size;
  if (count % world === 0) return size;
  const larger = Math.ceil(batch / world) * world;
  throw new UsageError(
    `${world} ranks cannot share the ${count} micro-${
      count === 1 ? "batch" : "batches"
    } of a step: ` +
      `\`--batch ${batch}\`, \`--micro-batch ${size}\``,
    {
      hints: [
        batch % world === 0
          ? `pass --micro-batch ${batch / world}, or a divisor of it`
          : `pass --batch ${larger} --micro-batch ${larger / world}`,
      ],
    },
  );
}

/** Steps of the run: the shortest of the lengths given. `microBatches` is how many the data has. */
export function stepsOf(
  values: TrainValues,
  rowTokens: number,
  microBatch: number,
  microBatches: number | undefined,
): number {
  const { steps = Infinity, tokens = Infinity, batch, epochs } = values;
  const perStep = batch / microBatch;
  const ends = [
    steps,
    Math.ceil(tokens / (batch * rowTokens)),
    microBatches === undefined ? Infinity : Math.ceil(microBatches / perStep),
  ];
  const least = Math.min(...ends);
  if (Number.isFinite(least)) return least;
  throw new UsageError(
    epochs
      ? "weighted sources have no end: `train` needs `--steps` or `--tokens`"
      : "`train` needs `--steps`, `--tokens` or `--epochs`",
    { hints: ["for a first try: --steps 100"] },
  );
}
