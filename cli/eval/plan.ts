/** What `parscale eval --dry-run` says: what would be asked, read from the data and no model. */
import type { Io } from "../output/io.ts";
import { type PreparedTask, prepareTasks } from "./prepare.ts";
import { temperaturesOf } from "./select.ts";
import type { EvalValues } from "./values.ts";

/** One line per task; listing, showing and merging have no plan. */
export async function planEval(values: EvalValues, io: Io): Promise<readonly string[]> {
  if (values.arguments.length > 0) return [];
  const temperatures = temperaturesOf(values);
  const prepared = await prepareTasks(values, io);
  return prepared.map((one) => lineOf(one, temperatures(one.task).length, values.maxTokens));
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
