/** Rows of a benchmark as texts: the exact prompt `eval` would use, then the reference answer. */
import { readTaskData } from "../../../core/eval/harness/data_folder.ts";
import {
  type Document,
  documentsOf,
  requestsOf,
  shotsOf,
} from "../../../core/eval/harness/documents.ts";
import type { ChoiceQuestion } from "../../../core/eval/harness/task.ts";
import { taskOf, TASKS } from "../../../core/eval/tasks/mod.ts";
import { UsageError } from "../../../core/base/errors.ts";
import { suggestionHint } from "../../framework/suggest.ts";
import type { RawText } from "./input.ts";
import type { VisualizeValues } from "./flags.ts";

/** The rows that the flags ask for; the first where they name none. */
export async function readTaskRows(
  name: string,
  { data, ids, shots: asked }: Pick<VisualizeValues, "data" | "ids" | "shots">,
): Promise<RawText[]> {
  const task = taskOf(name);
  if (!task) {
    const names = TASKS.map((known) => known.name);
    throw new UsageError(`unknown task "${name}"`, {
      hints: [suggestionHint(name, names, "`parscale eval ls` lists the tasks")!],
    });
  }
  if (data === undefined) {
    throw new UsageError(
      `\`--task ${name}\` needs \`--data\``,
      {
        hints: [
          "pass it with --data, or once for all in PARSCALE_DATA",
          "`parscale eval ls` shows what each task needs and where it comes from",
        ],
      },
    );
  }
  const shots = shotsOf(task, asked);
  const rows = await readTaskData(task, data, shots);
  const documents = documentsOf(task, rows, { shots, ids: ids.length > 0 ? ids : [0] });
  return await Promise.all([...documents].map(textOfDocument));
}

async function textOfDocument(document: Document): Promise<RawText> {
  const { task, id, question } = document;
  const requests = await requestsOf(document);
  const place = `row ${id} of ${task.name}`;
  const named = { id: `${task.name}/${id}`, place };
  // Of given answers, the right one.
  const request = requests[task.kind === "choice" ? (question as ChoiceQuestion).gold : 0]!;
  if (request.kind === "generate_until") {
    const text = question.answer === "" ? "" : ` ${question.answer}`;
    return { ...named, prompt: request.context, text };
  }
  return { ...named, prompt: request.context, text: request.continuation };
}
