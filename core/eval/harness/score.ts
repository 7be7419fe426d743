/**
 * Scores samples against the questions they answer: those of a run, or of a file.
 *
 * Samples of a run are complete; those of a file may answer some rows only, which is said, and rows
 * without an answer are not counted as wrong.
 */
import { abortable } from "../../base/abortable.ts";
import { DataError } from "../../base/errors.ts";
import { hashJson } from "../../data/hash.ts";
import type { EvalFolder } from "./eval_folder.ts";
import type { PlannedDocument } from "./predict.ts";
import type { PreparedTask } from "./prepare.ts";
import { type DocumentScore, openDocumentScorer } from "./results.ts";
import type { Sample } from "./samples.ts";
import { isCode, type OpenQuestion, type ScoringTools, type Task } from "./task.ts";

/** Observer of scoring, which takes long where programs are run. */
export interface Watch {
  readonly interruption: AbortSignal;
  warn(text: string, hint?: string): void;
  /** Begins a count of rows. */
  progress(label: string, total: number): Disposable & { update(done: number): void };
}

/** Documents scored at once; a sandbox has few workers, so more only take memory. */
const AT_ONCE = 16;

/**
 * Metrics of every document that has samples, in the order of the documents. Programs take long to run,
 * so their scores go into the folder at once, and those that are there are not computed again.
 */
export async function scoreSamples(
  prepared: readonly PreparedTask[],
  samples: readonly Sample[],
  tools: ScoringTools,
  watch: Watch,
  folder?: EvalFolder,
): Promise<DocumentScore[]> {
  const byTask = Map.groupBy(samples, ({ task }) => task);
  const scores: DocumentScore[] = [];
  for (const { task, documents } of prepared) {
    const answers = answersByDocument(task, documents, byTask.get(task.name) ?? []);
    const answered = documents.filter(({ document }) => answers.has(document.id));
    warnAboutMissing(task, answers, documents, watch);
    if (answered.length === 0) continue;
    const own = await scoreTask(
      task,
      answered.map((one) => ({ ...one, samples: answers.get(one.document.id)! })),
      tools,
      watch,
      isCode(task) ? folder : undefined,
    );
    warnAboutModules(task, own, watch);
    for (const score of own) scores.push(score);
  }
  return scores;
}

async function scoreTask(
  task: Task,
  answered: readonly (PlannedDocument & { readonly samples: readonly Sample[] })[],
  tools: ScoringTools,
  watch: Watch,
  folder: EvalFolder | undefined,
): Promise<DocumentScore[]> {
  // Opening the sandbox takes seconds.
  using progress = watch.progress(`Scoring ${task.name}`, answered.length);
  const score = await openDocumentScorer(task, tools);
  const known = new Map(
    (await folder?.readScores() ?? [])
      .filter((one) => one.task === task.name)
      .map((one) => [`${one.doc_id} ${one.request} ${one.samples}`, one]),
  );
  const scores: DocumentScore[] = [];
  for (let start = 0; start < answered.length; start += AT_ONCE) {
    // Samples that arrived while the sandbox was being opened raise no event.
    watch.interruption.throwIfAborted();
    const some = answered.slice(start, start + AT_ONCE).map(async ({ document, hash, samples }) => {
      const { id, group } = document;
      const scored = { samples, question: document.question, sanitize: tools.sanitize };
      const own = hashJson(scored).slice(0, 16);
      const key = { task: task.name, doc_id: id, group, request: hash, samples: own };
      const old = known.get(`${id} ${hash} ${own}`);
      if (old) return old;
      const fresh = { ...key, metrics: await score(document, samples) };
      // A sandbox that ended gives no score.
      watch.interruption.throwIfAborted();
      folder?.appendScore(fresh);
      return fresh;
    });
    // A program may run for a minute; an interruption does not wait for it.
    scores.push(...await abortable(Promise.all(some), watch.interruption));
    progress.update(start + some.length);
  }
  return scores;
}

/** Programs that could not even be tried count as wrong, which has to be said. */
function warnAboutModules({ name }: Task, scores: readonly DocumentScore[], watch: Watch): void {
  const rows = scores.filter(({ metrics }) => Number(metrics.unavailable) > 0);
  if (rows.length === 0) return;
  const which = `${rows.length} rows, row ${rows[0]!.doc_id} first`;
  watch.warn(
    `${name}: programs for ${which}, need modules that the sandbox lacks and count as wrong`,
  );
}

/** Samples of each document in their order; refuses those of other prompts and of unknown rows. */
export function answersByDocument(
  task: Task,
  documents: readonly PlannedDocument[],
  samples: readonly Sample[],
): Map<number, Sample[]> {
  const byId = new Map(documents.map((one) => [one.document.id, one]));
  const nameOf = "nameOf" in task ? task.nameOf : undefined;
  const byName = new Map(
    nameOf && documents.map((one) => [nameOf(one.document.question as OpenQuestion), one]),
  );
  const answers = Map.groupBy(samples, (sample) => {
    const { doc_id } = sample;
    const document = typeof doc_id === "string" ? byName.get(doc_id) : byId.get(doc_id);
    if (!document) {
      throw new DataError(
        `row ${doc_id} of ${task.name} is not among the ${documents.length} rows evaluated`,
        { hints: ["pass the --data, --limit and --ids that the samples were made with"] },
      );
    }
    if (sample.request !== undefined && sample.request !== document.hash) {
      throw new DataError(`the sample of row ${doc_id} of ${task.name} answers another prompt`, {
        hints: ["pass the --data, --shots and --chat that the samples were made with"],
      });
    }
    return document.document.id;
  });
  for (const list of answers.values()) list.sort((a, b) => a.sample - b.sample);
  return answers;
}

function warnAboutMissing(
  { name }: Task,
  answers: ReadonlyMap<number, unknown>,
  documents: readonly PlannedDocument[],
  watch: Watch,
): void {
  const missing = documents.length - answers.size;
  if (missing === 0) return;
  const first = documents.find(({ document }) => !answers.has(document.id))!.document.id;
  watch.warn(
    `${name} has no answers to ${missing} of ${documents.length} rows, row ${first} first: ` +
      "scores are of the others",
    "with --limit or --ids only some rows are asked for",
  );
}
