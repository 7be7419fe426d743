/** Which tasks, shots, rows and samples the flags mean. */
import type { Task } from "../../../core/eval/harness/task.ts";
import { UsageError } from "../../../core/base/errors.ts";
import { suggestionHint } from "../../framework/suggest.ts";
import type { EvalValues } from "./flags.ts";

/** Tasks of names and suites, each once, in the order given. */
export async function selectTasks(names: readonly string[]): Promise<Task[]> {
  const { SUITES, taskOf, TASKS } = await import("../../../core/eval/tasks/mod.ts");
  if (names.length === 0) {
    throw new UsageError("`eval` needs `--tasks`", {
      hints: ["`parscale eval ls` lists them"],
    });
  }
  const all = [...TASKS.map(({ name }) => name), ...Object.keys(SUITES)];
  const chosen = names.flatMap((name) => SUITES[name] ?? [name]);
  return [...new Set(chosen)].map((name) => taskOf(name) ?? fail(name, all));
}

function fail(name: string, all: readonly string[]): never {
  const hint = suggestionHint(name, all, "`parscale eval ls` lists the tasks")!;
  throw new UsageError(`unknown task "${name}"`, { hints: [hint] });
}

/** Shots asked for a task; undefined leaves them to the task. */
export async function shotsByTask(
  given: readonly string[],
  tasks: readonly Task[],
): Promise<(task: Task) => number | undefined> {
  const { SUITES } = await import("../../../core/eval/tasks/mod.ts");
  const known = new Set(tasks.map(({ name }) => name));
  let all: number | undefined;
  const own = new Map<string, number>();
  for (const text of given) {
    const [, name, digits] = /^(?:([^=]+)=)?(\d{1,4})$/.exec(text) ?? [];
    if (digits === undefined) {
      throw new UsageError(
        `invalid value "${text}" for \`--shots\`: must be a number, or TASK=NUMBER`,
      );
    }
    if (name === undefined) all = Number(digits);
    for (const task of name === undefined ? [] : SUITES[name] ?? [name]) {
      if (!known.has(task) && !(name! in SUITES)) {
        const names = [...known].join(", ");
        throw new UsageError(
          `\`--shots ${text}\` names a task that is not among --tasks: ${names}`,
        );
      }
      own.set(task, Number(digits));
    }
  }
  // A number for all tasks means those that can have shots.
  return ({ name, shots }) =>
    own.get(name) ?? (all !== undefined && shots.count > 0 ? all : undefined);
}

/**
 * Temperatures of the samples of a task's rows, in their order; 0 is greedy. Without --temperature
 * several samples are for code tasks, which then have a greedy one before them.
 * @throws {UsageError} for flags that exclude each other
 */
export function temperaturesOf(
  { nSamples, temperature }: EvalValues,
): (task: Task) => readonly number[] {
  if (temperature === 0 && nSamples > 1) {
    throw new UsageError(
      `\`--n-samples ${nSamples}\` needs \`--temperature\` above 0`,
      { hints: ["leave out --temperature, or --n-samples"] },
    );
  }
  if (temperature !== undefined) return () => new Array(nSamples).fill(temperature);
  const sampled = [0, ...new Array(nSamples).fill(0.8)];
  return (task) => "isCode" in task && task.isCode && nSamples > 1 ? sampled : [0];
}
