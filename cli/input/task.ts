/** Benchmarks by the names that flags give. */
import { UsageError } from "../../core/base/errors.ts";
import type { Task } from "../../core/eval/harness/task.ts";
import { taskOf, TASKS } from "../../core/eval/tasks/mod.ts";
import { suggestionHint } from "../framework/suggest.ts";

/** The task of a name. @throws {UsageError} for an unknown one; `others` may be meant as well */
export function requireTask(name: string, others: readonly string[] = []): Task {
  const task = taskOf(name);
  if (task !== undefined) return task;
  const names = [...TASKS.map((known) => known.name), ...others];
  throw new UsageError(`unknown task "${name}"`, {
    hints: [suggestionHint(name, names) ?? "`parscale eval ls` lists the tasks"],
  });
}
