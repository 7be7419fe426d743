/**
 * What `parscale eval --dry-run` says: what would be asked, read from the data and no model, or what
 * would be fetched first.
 */
import type { PlanText } from "../../framework/command.ts";
import type { Io } from "../../output/io.ts";
import { type PreparedTask, prepareTasks } from "./prepare.ts";
import { selectTasks, shotsByTask, temperaturesOf } from "./select.ts";
import type { EvalValues } from "./flags.ts";

/** One line per task or source; listing, showing and merging have no plan. */
export async function describe(values: EvalValues, io: Io): Promise<PlanText> {
  if (values.arguments[0] === "fetch") {
    return { lines: await (await import("./fetch.ts")).planFetchCommand(values, io) };
  }
  if (values.arguments.length > 0) return { lines: [] };
  const temperatures = temperaturesOf(values);
  const missing = values.data === undefined ? await missingData(values, io) : [];
  if (missing.length > 0) return { lines: missing };
  const prepared = await prepareTasks(values, io);
  const lines = prepared.map((one) => lineOf(one, temperatures(one.task).length, values.maxTokens));
  const tasks = prepared.map(({ task, shots, documents, rows }) => ({
    task: task.name,
    shots,
    rows_total: rows,
    rows: documents.length,
    samples_per_row: temperatures(task).length,
  }));
  return { lines, results: { tasks } };
}

/** Nothing is fetched for a plan, so prompts cannot be counted before the data is there. */
async function missingData(values: EvalValues, io: Io): Promise<string[]> {
  const { planFetch } = await import("./fetch.ts");
  const { shotsOf } = await import("../../../core/eval/harness/documents.ts");
  const tasks = await selectTasks(values.tasks);
  const shots = await shotsByTask(values.shots, tasks);
  const lines = await planFetch(
    tasks.map((task) => ({ task, shots: shotsOf(task, shots(task)) })),
    io,
  );
  return lines;
}

function lineOf(
  { task, shots, documents, rows }: PreparedTask,
  samples: number,
  maxTokens: number | undefined,
): string {
  const asked = `${task.name}: ${documents.length} of ${rows} rows, ${shots} shots`;
  if (task.kind !== "generation") {
    const what = task.kind === "choice" ? "log-likelihoods of choices" : "the whole text";
    return `${asked}, ${what}`;
  }
  const answers = samples === 1 ? "one answer" : `${samples} answers`;
  return `${asked}, ${answers} of at most ${maxTokens ?? task.maxTokens} tokens`;
}
