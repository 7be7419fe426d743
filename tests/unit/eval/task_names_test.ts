/** The names that completions offer are those of the tasks. */
import { assert, assertEquals } from "@std/assert";
import { taskOf, TASKS } from "../../../core/eval/tasks/mod.ts";
import { SUITES, TASK_NAMES } from "../../../core/eval/tasks/names.ts";

Deno.test("names without code are those of the tasks, and suites hold tasks", () => {
  assertEquals(TASKS.map(({ name }) => name), [...TASK_NAMES]);
  for (const name of Object.values(SUITES).flat()) assert(taskOf(name), name);
});
