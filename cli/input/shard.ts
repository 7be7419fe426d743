/** `--shard`: which part of the rows a process computes, given or found out from its launcher. */
import { EnvironmentError, UsageError } from "../../core/base/errors.ts";
import { statIfExists } from "../../core/base/files.ts";
import { detectLaunch, type Env } from "../../core/collective/launch.ts";
import { hashFile } from "../../core/data/hash.ts";
import type { Resolution } from "../framework/resolve.ts";
import type { Invocation } from "../output/document.ts";

/** Part `part` of `of`, counted from 1. */
export interface Shard {
  readonly part: number;
  readonly of: number;
}

/** The part that `I/N` names. */
export function partOf(text: string): Shard | undefined {
  const [, part, of] = (/^(\d+)\/(\d+)$/.exec(text) ?? []).map(Number);
  if (part !== undefined && of !== undefined && part >= 1 && part <= of) return { part, of };
}

/** Reads the value of `--shard`. */
export function parseShard(text: string | undefined): Shard | undefined {
  const shard = text === undefined ? undefined : partOf(text);
  if (text === undefined || shard !== undefined) return shard;
  throw new UsageError(
    `invalid value "${text}" for \`--shard\`: must be I/N with I from 1 to N, or auto`,
    { hints: ["the second of four parts is --shard 2/4"] },
  );
}

/**
 * Replaces `--shard auto` in a resolution by the part of this process, which gets an `--out` of its own.
 * @throws {UsageError} without a launcher, or without `--out`
 */
export function resolveShard(
  resolution: Resolution,
  env: Env,
): Resolution {
  const { values, config } = resolution;
  const found = detectShard(env);
  if (found === undefined) {
    throw new UsageError("`--shard auto` needs a job array or a launcher, and there is neither", {
      hints: [
        "name the part: --shard 2/4",
        "start the command with mpirun, srun or sbatch --array",
      ],
    });
  }
  const path = values.out as string | undefined;
  if (path === undefined || path === "-") throw new UsageError("`--shard auto` needs `--out`");
  const own = { shard: `${found.part}/${found.of}`, out: partName(path, found.part) };
  return { ...resolution, values: { ...values, ...own }, config: { ...config, ...own } };
}

/**
 * The part of this process, by its rank, by its place in a Slurm job array, or by both; undefined where neither
 * a launcher nor a job array has started it. Nothing is exchanged, so a part can be run again alone.
 * @throws {EnvironmentError} when the variables contradict each other
 */
export function detectShard(env: Env): Shard | undefined {
  const launch = detectLaunch(env), task = arrayTask(env);
  if (launch === undefined && task === undefined) return undefined;
  const { rank, world } = launch ?? { rank: 0, world: 1 };
  const { part, of } = task ?? { part: 1, of: 1 };
  return { part: (part - 1) * world + rank + 1, of: of * world };
}

/** The place in a job array, whose numbers may begin anywhere and be some steps apart. */
function arrayTask(env: Env): Shard | undefined {
  const number = (name: string) => {
    const text = env(`SLURM_ARRAY_TASK_${name}`);
    return text ? Number(text) : undefined;
  };
  const [id, count] = [number("ID"), number("COUNT")];
  if (id === undefined || count === undefined) return undefined;
  const min = number("MIN") ?? 0, max = number("MAX") ?? id, step = number("STEP") ?? 1;
  const index = (id - min) / step;
  const isRegular = (max - min) / step + 1 === count;
  if (isRegular && Number.isInteger(index) && index >= 0 && index < count) {
    return { part: index + 1, of: count };
  }
  throw new EnvironmentError(
    `the job array is not regular: task ${id} of ${count} from ${min} to ${max}, ${step} apart`,
    { hints: ["submit with --array=1-N, or name the part with --shard I/N"] },
  );
}

/** `scores.json` of part 2 is `scores-2.json`; the folder `res` is `res-2`. */
function partName(path: string, part: number): string {
  const [, stem, extension = ""] = /^(.*?[^/])(\.\w+)?$/s.exec(path.replace(/\/+$/, "")) ?? [];
  return `${stem}-${part}${extension}`;
}

/** Returns whether a unit of work, counted from 0, belongs to a part; all does where there are none. */
export function isOfShard(shard: Shard | undefined, index: number): boolean {
  return shard === undefined || index % shard.of === shard.part - 1;
}

/** SHA-256 of the file of which a part reads its rows, by which `merge` knows that parts belong together. */
export async function hashInput(
  shard: Shard | undefined,
  path: unknown,
  { format }: Pick<Invocation, "format">,
): Promise<string | undefined> {
  if (shard === undefined || format !== "json" || typeof path !== "string") return undefined;
  return (await statIfExists(path))?.isFile ? (await hashFile(path)).sha256 : undefined;
}

/** Parts read the same input, which stdin cannot be. */
export function requireFileForShard(shard: Shard | undefined, path: string | undefined): void {
  if (shard === undefined || path !== undefined && path !== "-") return;
  throw new UsageError("`--shard` needs FILE: every part reads all of the input");
}
