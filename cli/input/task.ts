/** Benchmarks by the names that flags give. */
import { UsageError } from "../../core/base/errors.ts";
import type { Task } from "../../core/eval/harness/task.ts";
import { taskOf, TASKS } from "../../core/eval/tasks/mod.ts";
import { isTaskFile, openOwnTask } from "../../core/eval/tasks/own.ts";
import { suggestionHint } from "../framework/suggest.ts";

/**
 * The task of a name, or in a file.
 * @throws {UsageError} for a file that is named like a public benchmark
 */
export async function openTask(name: string, others: readonly string[]): Promise<Task> {
  if (!isTaskFile(name)) return requireTask(name, others);
  const task = await openOwnTask(name);
  if (taskOf(task.name) === undefined) return task;
  throw new UsageError(`"${name}" has the name of the public benchmark ${task.name}`, {
    hints: ["rename the file"],
  });
}

/** The task of a name. @throws {UsageError} for an unknown one; `others` may be meant as well */
export function requireTask(name: string, others: readonly string[] = []): Task {
  const task = taskOf(name);
  if (task !== undefined) return task;
  const names = [...TASKS.map((known) => known.name), ...others];
  throw new UsageError(`unknown task "${name}"`, {
    hints: [suggestionHint(name, names) ?? "`parscale eval ls` lists the tasks"],
  });
}
