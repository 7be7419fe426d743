/** Which part of the rows a process has, by job arrays and launchers. */
import { assertEquals, assertThrows } from "@std/assert";
import { EnvironmentError } from "../../../core/base/errors.ts";
import { detectPart } from "../../../core/collective/part.ts";

const detect = (variables: Readonly<Record<string, string>>) =>
  detectPart((name) => variables[name]);

const array = (id: number, count: number, min = 0, max = count - 1, step = 1) => ({
  SLURM_ARRAY_TASK_ID: `${id}`,
  SLURM_ARRAY_TASK_COUNT: `${count}`,
  SLURM_ARRAY_TASK_MIN: `${min}`,
  SLURM_ARRAY_TASK_MAX: `${max}`,
  SLURM_ARRAY_TASK_STEP: `${step}`,
});

Deno.test("tasks of an array and ranks of a launcher are parts, counted from 1", () => {
  assertEquals(detect({}), undefined);
  assertEquals(detect(array(0, 4)), { part: 1, of: 4 });
  assertEquals(detect(array(4, 4, 1, 4)), { part: 4, of: 4 });
  assertEquals(detect(array(7, 4, 3, 9, 2)), { part: 3, of: 4 });
  assertEquals(detect({ PMI_RANK: "2", PMI_SIZE: "3" }), { part: 3, of: 3 });
});

Deno.test("ranks within the tasks of an array make parts of parts", () => {
  const parts = [1, 2].flatMap((task) =>
    [0, 1, 2].map((rank) => {
      const step = { SLURM_STEP_ID: "0", SLURM_PROCID: `${rank}`, SLURM_NTASKS: "3" };
      return detect({ ...array(task, 2, 1, 2), ...step });
    })
  );
  assertEquals(parts, [1, 2, 3, 4, 5, 6].map((part) => ({ part, of: 6 })));
});

Deno.test("an array with gaps has no parts", () => {
  const message = "the job array is not regular: task 7 of 3 from 1 to 7, 1 apart";
  assertThrows(() => detect(array(7, 3, 1, 7)), EnvironmentError, message);
});
