/**
 * Answers that passed, as rows of training data: prompt and completion as the model read and wrote them,
 * or the conversation. Equal answers to a question are one row.
 */
import { conversation } from "./documents.ts";
import { cutAtStops, type PlannedDocument } from "./predict.ts";
import type { PreparedTask } from "./prepare.ts";
import type { DocumentScore } from "./results.ts";
import type { Sample } from "./samples.ts";
import { answersByDocument } from "./score.ts";
import type { GenerationTask, Metrics } from "./task.ts";

/** Returns the rows as JSON lines; `score` takes samples of which every document has at most one. */
export async function passingLines(
  prepared: readonly PreparedTask[],
  samples: readonly Sample[],
  score: (samples: readonly Sample[]) => Promise<readonly DocumentScore[]>,
): Promise<string[]> {
  const lines = new Set<string>();
  for (const some of Map.groupBy(samples, ({ sample }) => sample).values()) {
    const scores = new Map((await score(some)).map((one) => [`${one.task}/${one.doc_id}`, one]));
    for (const { task, documents, promptFormat } of prepared) {
      if (task.kind !== "generation") continue;
      const own = some.filter((sample) => sample.task === task.name);
      const answers = answersByDocument(task, documents, own);
      for (const planned of documents) {
        const { id } = planned.document, scored = scores.get(`${task.name}/${id}`);
        const text = answers.get(id)?.[0]?.text;
        if (text === undefined || !scored || !hasPassed(task, scored.metrics)) continue;
        const row = rowOf(task, planned, cutAtStops(text, task.stops), promptFormat === "chat");
        lines.add(`${JSON.stringify(row)}\n`);
      }
    }
  }
  return [...lines];
}

/** Returns whether a single answer is right: programs by all their tests, others by the headline. */
function hasPassed({ isCode, metrics: names }: GenerationTask, metrics: Metrics): boolean {
  const decisive = isCode ? ["pass@1", "plus_pass@1"] : names.slice(0, 1);
  return decisive.every((name) => [metrics[name] ?? 1].flat().every((value) => value === 1));
}

/** A function without the comments that introduce what a stop cut off. */
export function completedFunction(completion: string): string {
  return completion.replace(/(\n(#.*)?)+$/, "\n");
}

/** A code block whose start was given is closed, since its end was the stop. */
function rowOf(
  { answerStart, isCode }: GenerationTask,
  { document, requests: [request] }: PlannedDocument,
  completion: string,
  isChat: boolean,
) {
  if (!isChat) {
    const own = isCode ? completedFunction(completion) : completion;
    return { prompt: request!.context, completion: own };
  }
  const asked = conversation(document, document.question.text)
    .filter(({ role, content }) => role !== "assistant" || content !== answerStart);
  const content = answerStart ? `${answerStart}${completion.trimEnd()}\n\`\`\`` : completion;
  return { messages: [...asked, { role: "assistant", content }] };
}
