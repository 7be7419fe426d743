/**
 * Reads the rows of all tasks, fetching them where there is no `--data`, and makes their documents, before any model is opened.
 *
 * What makes scores incomparable is said here: rows or pools of another size than the official ones,
 * and rows of the wrong split are refused.
 */
import type { DataFile } from "../../../core/eval/harness/data_folder.ts";
import type { FetchedData } from "../../../core/eval/harness/fetch.ts";
import type { PlannedDocument } from "../../../core/eval/harness/predict.ts";
import type { Task } from "../../../core/eval/harness/task.ts";
import { DataError, UsageError } from "../../../core/base/errors.ts";
import type { Io } from "../../output/io.ts";
import { parseShard, type Shard } from "../../input/shard.ts";
import { selectTasks, shotsByTask } from "./select.ts";
import type { EvalValues } from "./flags.ts";

/** A task with what is evaluated of it. */
export interface PreparedTask {
  readonly task: Task;
  readonly shots: number;
  /** Each with its plain requests, which a conversation is made anew from. */
  readonly documents: readonly PlannedDocument[];
  readonly files: readonly DataFile[];
  /** Rows in the file. */
  readonly rows: number;
}

/** Flags that decide which rows are asked and how. */
export type RowValues = Pick<
  EvalValues,
  "tasks" | "data" | "limit" | "ids" | "shots" | "shard" | "excludeSelf" | "chat"
>;

/** Prepares the tasks that the flags ask for. */
export async function prepareTasks(
  values: RowValues,
  io: Io,
  names: readonly string[] = values.tasks,
): Promise<PreparedTask[]> {
  const tasks = await selectTasks(names);
  const { data } = values;
  const shots = await shotsByTask(values.shots, tasks);
  const shard = parseShard(values.shard);
  if (
    tasks.length > 1 && data !== undefined &&
    !(await Deno.stat(data).catch(() => undefined))?.isDirectory
  ) {
    throw new UsageError(
      `\`--data "${data}"\` is no folder, and ${tasks.length} tasks need one`,
    );
  }
  const { shotsOf } = await import("../../../core/eval/harness/documents.ts");
  const counted = tasks.map((task) => ({ task, shots: shotsOf(task, shots(task)) }));
  const fetched = data === undefined
    ? await (await import("./fetch.ts")).fetchTasks(counted, io)
    : undefined;
  const prepared: PreparedTask[] = [];
  for (const one of counted) {
    const rows = data ?? fetched!.get(one.task.name)!;
    prepared.push(await prepareTask(one, rows, shard, values, io));
  }
  return prepared;
}

async function prepareTask(
  { task, shots }: { readonly task: Task; readonly shots: number },
  data: string | FetchedData,
  shard: Shard | undefined,
  values: RowValues,
  io: Io,
): Promise<PreparedTask> {
  const { readTaskData } = await import("../../../core/eval/harness/data_folder.ts");
  const { documentsOf, requestHash, requestsOf } = await import(
    "../../../core/eval/harness/documents.ts"
  );
  const { rows, pool, files } = await readTaskData(task, data, shots);
  const isPart = values.limit !== undefined || values.ids.length > 0;
  warnAboutSizes(task, rows.length, pool.length, isPart, io);
  const documents: PlannedDocument[] = [];
  const { limit, excludeSelf } = values;
  const ids = values.ids.length > 0 ? values.ids : undefined;
  const options = { shots, limit, ids, excludeSelf };
  let place = 0;
  for (const document of documentsOf(task, { rows, pool, files }, options)) {
    if (shard && place++ % shard.of !== shard.part - 1) continue;
    const requests = await requestsOf(document);
    documents.push({ document, requests, hash: requestHash(requests, values.chat) });
  }
  return { task, shots, documents, files, rows: rows.length };
}

/** Published prompts, not scores, are expected of a part of the rows. */
function warnAboutSizes(
  { name, size, shots }: Task,
  rows: number,
  pool: number,
  isPart: boolean,
  io: Io,
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
  io.warn(
    `${name} has ${differences.join(" and ")}: scores cannot be compared with published ones`,
  );
}
