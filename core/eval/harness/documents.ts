/**
 * Makes the exact prompts of a task: which rows, which shots, which text.
 *
 * The drawing of shots runs on from row to row, so rows that are passed over still draw (section 2.2 of
 * the contract of lm-evaluation-harness 0.4.13).
 */
import { hash } from "node:crypto";
import { UsageError } from "../../base/errors.ts";
import type { ChatMessage } from "../../tokenizer/chat.ts";
import type { TaskData } from "./data_folder.ts";
import type { Row } from "./row.ts";
import { PythonRandom, SHOT_SEED } from "./sampler.ts";
import { type ChoiceQuestion, type Question, type Shots, type Task } from "./task.ts";

/** Selection of rows and shots. */
export interface DocumentOptions {
  /** Shots per prompt; the task's own number when absent. */
  readonly shots?: number | undefined;
  /** Only the first rows. */
  readonly limit?: number | undefined;
  /** Only these rows, counted from 0 in the order of the file. */
  readonly ids?: readonly number[] | undefined;
  /** Leaves the evaluated row out of its own shots where both come from one split. */
  readonly excludeSelf?: boolean;
}

/** One evaluated row. */
export interface Document {
  readonly task: Task;
  /** Row number from 0 in the order of the file. */
  readonly id: number;
  /** Subject or the like; empty where the task has no parts. */
  readonly group: string;
  readonly row: Row;
  readonly question: Question;
  readonly shots: readonly Question[];
}

/** Asks for the log-likelihood of a continuation, or of a whole text where `context` is empty. */
export interface LikelihoodRequest {
  readonly kind: "loglikelihood" | "loglikelihood_rolling";
  readonly context: string;
  readonly continuation: string;
}

/** Asks for an answer in the model's own words. */
export interface TextRequest {
  readonly kind: "generate_until";
  readonly context: string;
  readonly stop: readonly string[];
  readonly maxTokens: number;
}

/** Request to a model; several of a kind for one document with choices. */
export type Request = LikelihoodRequest | TextRequest;

/** Renders a conversation up to where the model writes; see `renderPrompt`. */
export type ChatRenderer = (messages: readonly ChatMessage[]) => Promise<string>;

/** Number of shots a task will have. */
export function shotsOf(task: Task, shots: number | undefined): number {
  const { count } = task.shots;
  if (shots === undefined) return count;
  const most = "fixed" in task.shots ? task.shots.fixed.length : count === 0 ? 0 : Infinity;
  if (shots <= most) return shots;
  throw new UsageError(`${task.name} has at most ${most} shots, not ${shots}`);
}

/** The documents of a task, in the order of its rows. */
export function* documentsOf(
  task: Task,
  data: TaskData,
  options: DocumentOptions = {},
): Generator<Document> {
  const wanted = wantedRows(task, data.rows.length, options);
  const draw = shotDrawer(task, data, shotsOf(task, options.shots), options.excludeSelf ?? false);
  const last = wanted.reduce((most, id) => Math.max(most, id), -1);
  const chosen = new Set(wanted);
  for (let id = 0; id <= last; id++) {
    const row = data.rows[id]!;
    const group = task.groupOf?.(row) ?? "";
    const shots = draw(row, group);
    if (!chosen.has(id)) continue;
    yield { task, id, group, row, question: task.read(row), shots: shots.map((shot) => shot()) };
  }
}

function wantedRows(task: Task, count: number, { limit, ids }: DocumentOptions): readonly number[] {
  const all = Array.from({ length: Math.min(count, limit ?? count) }, (_, id) => id);
  if (!ids) return all;
  const wrong = ids.find((id) => id >= all.length);
  if (wrong === undefined) return ids;
  throw new UsageError(
    `${task.name} has no row ${wrong}: of its ${count} rows, 0 to ${all.length - 1} are evaluated`,
  );
}

/** Shots are read only where they are used: a pool may have flawed rows that are not drawn. */
type ShotDrawer = (row: Row, group: string) => readonly (() => Question)[];

function shotDrawer(task: Task, data: TaskData, count: number, excludeSelf: boolean): ShotDrawer {
  const shots: Shots = task.shots;
  const later = (row: Row) => () => task.read(row);
  if (count === 0 || !("pool" in shots)) {
    const fixed = "fixed" in shots ? shots.fixed.slice(0, count) : [];
    return () => fixed.map((shot) => () => shot);
  }
  const { pool } = data;
  if (shots.order === "first") {
    const byGroup = Map.groupBy(pool, (row) => task.groupOf?.(row) ?? "");
    return (row, group) => {
      const found = byGroup.get(group) ?? [];
      if (found.length >= count) return found.slice(0, count).map(later);
      throw row.error(`needs ${count} shots of "${group}", and there are ${found.length}`);
    };
  }
  const random = new PythonRandom(SHOT_SEED);
  const spare = shots.spare || (excludeSelf && shots.pool === "evaluated rows");
  const draws = count + Number(spare);
  if (pool.length < draws) {
    throw new UsageError(
      `${draws} shots of ${task.name} need as many rows: the data has ${pool.length}`,
      { hints: ["lower `--shots`, or use the whole split"] },
    );
  }
  return (row) => {
    const drawn = random.sample(pool.length, draws).map((at) => pool[at]!);
    const others = spare ? drawn.filter((other) => !sameFields(other, row)) : drawn;
    return others.slice(0, count).map(later);
  };
}

function sameFields(a: Row, b: Row): boolean {
  return a === b || JSON.stringify(a.fields) === JSON.stringify(b.fields);
}

/** The requests of a document: plain text, or through a chat template. */
export async function requestsOf(
  document: Document,
  chat?: ChatRenderer,
): Promise<readonly Request[]> {
  const { task, question } = document;
  if (task.kind === "perplexity") {
    return [{ kind: "loglikelihood_rolling", context: "", continuation: question.text }];
  }
  const prompt = async (text: string) =>
    chat ? await chat(conversation(document, text)) : plainText(document, text);
  if (task.kind === "generation") {
    const { stops, maxTokens } = task;
    const context = await prompt(question.text);
    return [{ kind: "generate_until", context, stop: stops, maxTokens }];
  }
  const rendered = new Map<string, Promise<string>>();
  const requests: LikelihoodRequest[] = [];
  for (const { text, ending } of (question as ChoiceQuestion).options) {
    const context = await rendered.getOrInsertComputed(text, prompt);
    // A template ends the context where the answer begins; plain text needs the blank between.
    requests.push({ kind: "loglikelihood", context, continuation: chat ? ending : ` ${ending}` });
  }
  return requests;
}

/** Description, shots and text, as a base model reads them. */
function plainText({ task, group, shots }: Document, text: string): string {
  const solved = shots.map((shot) => `${shot.text} ${shot.answer}\n\n`).join("");
  return (task.describe?.(group) ?? "") + solved + text;
}

/** Every shot is a turn of its own; the last message may be the prefix of the answer. */
export function conversation({ task, group, shots }: Document, text: string): ChatMessage[] {
  const description = task.describe?.(group);
  const start = task.kind === "generation" ? task.answerStart : undefined;
  return [
    ...(description ? [{ role: "system", content: description }] : []),
    ...shots.flatMap((shot) => [
      { role: "user", content: shot.text },
      { role: "assistant", content: shot.answer },
    ]),
    { role: "user", content: text },
    ...(start === undefined ? [] : [{ role: "assistant", content: start }]),
  ];
}

/**
 * Short hash of what a model is asked, by which samples are matched with questions. Conversations are
 * hashed before they are rendered, so that no template is needed to recognise a sample.
 */
export function requestHash(plain: readonly Request[], isChat: boolean): string {
  return hash("sha256", JSON.stringify([isChat, plain])).slice(0, 16);
}
