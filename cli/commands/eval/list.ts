/** `parscale eval ls`: the tasks, what each needs, and what of it is there. */
import type { Task } from "../../../core/eval/harness/task.ts";
import { ParscaleError } from "../../../core/base/errors.ts";
import type { Invocation } from "../../output/document.ts";
import type { Io } from "../../output/io.ts";
import { openReport } from "../../output/report.ts";
import type { EvalValues } from "./flags.ts";

/** Lists all tasks; with --data also how many rows were found, or what is missing. */
export async function listTasks(values: EvalValues, io: Io, invocation: Invocation): Promise<void> {
  const { SUITES, TASKS } = await import("../../../core/eval/tasks/mod.ts");
  using report = openReport(io, invocation, {
    schema: "parscale.eval-tasks/1",
    columns: [
      { key: "task" },
      { key: "kind" },
      { key: "shots" },
      { key: "rows" },
      { key: "metrics" },
      ...(values.data === undefined ? [] : [{ key: "found" }]),
      { key: "files" },
      { key: "source" },
    ],
  });
  for (const task of TASKS) {
    report.row({
      task: task.name,
      kind: "isCode" in task && task.isCode ? "code" : task.kind,
      shots: task.shots.count,
      rows: task.size?.rows ?? null,
      metrics: task.metrics.slice(0, 2).join(", "),
      ...(values.data === undefined ? {} : { found: await foundRows(task, values.data) }),
      files: filesOf(task),
      source: task.source,
    });
  }
  await report.finish();
  if (invocation.format !== "table") return;
  const suites = Object.entries(SUITES).map(([name, tasks]) => `${name} = ${tasks.join(", ")}`);
  io.write(`\nSuites: ${suites.join("; ")}\n`);
}

function filesOf({ folder, rows, shots }: Task): string {
  const below = (name: string) => folder === "." ? name : `${folder}/${name}`;
  const pool = "pool" in shots && typeof shots.pool !== "string" ? [below(shots.pool[0]!)] : [];
  return [below(rows[0]!), ...pool].join(", ");
}

async function foundRows(task: Task, data: string): Promise<string> {
  const { readTaskData } = await import("../../../core/eval/harness/data_folder.ts");
  try {
    const { rows, pool } = await readTaskData(task, data, task.shots.count);
    return pool.length > 0 && pool !== rows
      ? `${rows.length} rows, ${pool.length} to draw from`
      : `${rows.length} rows`;
  } catch (error) {
    if (error instanceof ParscaleError) return "missing";
    throw error;
  }
}
