/** The part of the rows that a process has, by its launcher or job array. */
import { assertEquals, assertThrows } from "@std/assert";
import { detectShard } from "../../../cli/input/shard.ts";
import { EnvironmentError } from "../../../core/base/errors.ts";

const partOf = (variables: Readonly<Record<string, string>>) =>
  detectShard((name) => variables[name]);

const array = (id: number, count: number, min = 0, max = count - 1, step = 1) =>
  Object.fromEntries(
    Object.entries({ ID: id, COUNT: count, MIN: min, MAX: max, STEP: step })
      .map(([name, value]) => [`SLURM_ARRAY_TASK_${name}`, String(value)]),
  );

Deno.test("tasks of an array and ranks of a launcher are parts, counted from 1", () => {
  assertEquals(partOf({}), undefined);
  assertEquals(partOf(array(0, 4)), { part: 1, of: 4 });
  assertEquals(partOf(array(4, 4, 1, 4)), { part: 4, of: 4 });
  assertEquals(partOf(array(7, 4, 3, 9, 2)), { part: 3, of: 4 });
  assertEquals(partOf({ PMI_RANK: "2", PMI_SIZE: "3" }), { part: 3, of: 3 });
  // Ranks within the tasks of an array make parts of parts.
  for (const [task, rank, part] of [[1, 0, 1], [1, 2, 3], [2, 0, 4], [2, 2, 6]] as const) {
    const step = { SLURM_STEP_ID: "0", SLURM_PROCID: `${rank}`, SLURM_NTASKS: "3" };
    assertEquals(partOf({ ...array(task, 2, 1, 2), ...step }), { part, of: 6 });
  }
});

Deno.test("an array with gaps has no parts", () => {
  const message = "the job array is not regular: task 7 of 3 from 1 to 7, 1 apart";
  assertThrows(() => partOf(array(7, 3, 1, 7)), EnvironmentError, message);
});
