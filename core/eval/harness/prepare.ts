/** Reads the rows of tasks and makes their documents, before any model is opened. */
import { DataError, UsageError } from "../../base/errors.ts";
import { statIfExists } from "../../base/files.ts";
import { type DataFile, readTaskData } from "./data_folder.ts";
import { documentsOf, requestHash, requestsOf } from "./documents.ts";
import type { FetchedData } from "./fetch.ts";
import type { PlannedDocument } from "./predict.ts";
import { type PromptFormat, type Task, taskAsAsked } from "./task.ts";

/** A task, with how many shots its rows are asked. */
export interface TaskPlan {
  readonly task: Task;
  readonly shots: number;
}

/** Selection and format of rows. */
export interface RowsPlan {
  readonly tasks: readonly TaskPlan[];
  /** Folder of benchmarks, or a file for one task; undefined for the published files. */
  readonly data: string | undefined;
  /** Rows of each task from its first; undefined for all. */
  readonly limit: number | undefined;
  /** Rows of each task by number; undefined for all. */
  readonly ids: readonly number[] | undefined;
  /** The share of the rows that one process asks, counted from 1. */
  readonly shard: { readonly part: number; readonly of: number } | undefined;
  /** True if a row is left out of its own shots. */
  readonly excludeSelf: boolean;
  /** True if the rows become conversations. */
  readonly chat: boolean;
}

/** A task with what is evaluated of it. */
export interface PreparedTask {
  readonly task: Task;
  readonly shots: number;
  readonly promptFormat: PromptFormat;
  /** Each with its plain requests, which a conversation is made anew from. */
  readonly documents: readonly PlannedDocument[];
  readonly files: readonly DataFile[];
  /** Rows in the file. */
  readonly rows: number;
}

/** A task without rows, and why. */
export interface LeftOut {
  readonly task: string;
  readonly error: string;
}

/**
 * Prepares tasks; `fetched` holds the published files by task, where the plan names no data, and lacks
 * those to leave out. What makes scores incomparable, rows or pools of another size than the official
 * ones, goes to `warn`. A task without readable rows goes to `leaveOut`.
 * @throws {DataError} for rows that cannot be read or are of the wrong split, without `leaveOut`
 */
export async function prepareTasks(
  plan: RowsPlan,
  fetched: ReadonlyMap<string, FetchedData>,
  warn: (text: string) => void,
  leaveOut?: (task: string, error: DataError) => void,
): Promise<PreparedTask[]> {
  const { tasks, data } = plan;
  const published = tasks.filter(({ task }) => task.file === undefined);
  if (published.length > 1 && data !== undefined && !(await statIfExists(data))?.isDirectory) {
    throw new UsageError(
      `\`--data "${data}"\` is not a folder, and ${published.length} tasks need one`,
    );
  }
  const prepared: PreparedTask[] = [];
  for (const one of tasks) {
    const { name, file } = one.task;
    const files = file ?? data ?? fetched.get(name);
    if (files === undefined) continue;
    try {
      prepared.push(await prepareTask(one, files, plan, warn));
    } catch (error) {
      if (!leaveOut || !(error instanceof DataError)) throw error;
      leaveOut(name, error);
    }
  }
  return prepared;
}

async function prepareTask(
  { task: asked, shots }: TaskPlan,
  data: string | FetchedData,
  { limit, ids, shard, excludeSelf, chat }: RowsPlan,
  warn: (text: string) => void,
): Promise<PreparedTask> {
  const task = taskAsAsked(asked, chat);
  const read = await readTaskData(task, data, shots);
  const { rows, pool, files } = read;
  warnAboutSizes(task, rows.length, pool.length, limit !== undefined || ids !== undefined, warn);
  const documents: PlannedDocument[] = [];
  let place = 0;
  for (const document of documentsOf(task, read, { shots, limit, ids, excludeSelf })) {
    if (shard && place++ % shard.of !== shard.part - 1) continue;
    const requests = await requestsOf(document);
    documents.push({ document, requests, hash: requestHash(requests, chat) });
  }
  // A text is scored as it is.
  const promptFormat = chat && task.kind !== "perplexity" ? "chat" : "completion";
  return { task, shots, promptFormat, documents, files, rows: rows.length };
}

/** Published prompts, not scores, are expected of a part of the rows. */
function warnAboutSizes(
  { name, size, shots }: Task,
  rows: number,
  pool: number,
  isPart: boolean,
  warn: (text: string) => void,
): void {
  if (!size) return;
  if (rows === size.pool && rows !== size.rows) {
    throw new DataError(
      `the file of ${name} is its training split: it has ${rows} rows, expected ${size.rows}`,
      { hints: ["check which file lies under the name of the evaluated split"] },
    );
  }
  const differences = [
    ...(isPart || rows === size.rows ? [] : [`${rows} rows instead of ${size.rows}`]),
    ...(pool === 0 || pool === size.pool || size.pool === undefined || !("order" in shots)
      ? []
      : [`${pool} rows to draw shots from instead of ${size.pool}`]),
  ];
  if (differences.length === 0) return;
  warn(`${name} has ${differences.join(" and ")}: scores cannot be compared with published ones`);
}
