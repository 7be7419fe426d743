/**
 * Which part of independent work a process has: by its rank, by its place in a Slurm job array, or by both.
 * Nothing is exchanged, so a part can be run again alone.
 */
import { EnvironmentError } from "../base/errors.ts";
import { detectLaunch, type Env } from "./environment.ts";

/** Part `part` of `of`, counted from 1. */
export interface Part {
  readonly part: number;
  readonly of: number;
}

/**
 * The part of this process; undefined where neither a launcher nor a job array has started it.
 * @throws {EnvironmentError} when the variables make no sense
 */
export function detectPart(env: Env): Part | undefined {
  const launch = detectLaunch(env), task = arrayTask(env);
  if (launch === undefined && task === undefined) return undefined;
  const { rank, world } = launch ?? { rank: 0, world: 1 };
  const { part, of } = task ?? { part: 1, of: 1 };
  return { part: (part - 1) * world + rank + 1, of: of * world };
}

/** The place in a job array, whose numbers may begin anywhere and be some steps apart. */
function arrayTask(env: Env): Part | undefined {
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
