/**
 * The rows of an evaluation: published files are fetched where there is no `--data`, and `eval fetch` does
 * only that.
 *
 * Commit, size and licence are said before anything is fetched. Files of the cache are used as they are,
 * after their hashes were compared.
 */
import { dirname, join } from "node:path";
import { ParscaleError, UsageError } from "../../core/base/errors.ts";
import { ioError, statIfExists } from "../../core/base/files.ts";
import { rename } from "../../core/storage/rename.ts";
import { hashFile } from "../../core/data/hash.ts";
import {
  type FetchedData,
  type FetchedFile,
  type MissingFiles,
  PublishedFiles,
} from "../../core/eval/harness/fetch.ts";
import {
  type LeftOut,
  type PreparedTask,
  prepareTasks,
  type RowsPlan,
  type TaskPlan,
} from "../../core/eval/harness/prepare.ts";
import type { Task } from "../../core/eval/harness/task.ts";
import { PUBLISHED, type PublishedData } from "../../core/eval/tasks/published.ts";
import { hubAccess } from "../../core/hub/access.ts";
import { HubClient } from "../../core/hub/client.ts";
import type { HubFile } from "../../core/hub/repository.ts";
import { OpenDisplay } from "./open_model.ts";
import type { Invocation } from "../output/document.ts";
import type { Io } from "../output/io.ts";
import { Report } from "../output/report.ts";
import { bytesText, counted } from "../output/units.ts";

/** Reads the rows of a plan, fetching those that are published and not in the cache. */
export async function prepareRows(plan: RowsPlan, io: Io): Promise<PreparedTask[]> {
  const fetched = plan.data === undefined ? await fetchTasks(plan.tasks, io) : new Map();
  return await prepareTasks(plan, fetched, (text) => io.warn(text));
}

/**
 * Reads the rows of the tasks that have any; the others are named.
 * @throws {ParscaleError} where no task has rows
 */
export async function prepareAvailable(
  plan: RowsPlan,
  io: Io,
): Promise<{ prepared: PreparedTask[]; leftOut: LeftOut[] }> {
  const failed: { task: string; error: ParscaleError }[] = [];
  const leaveOut = (task: string, error: ParscaleError) => void failed.push({ task, error });
  const { tasks, data } = plan;
  const fetched = data === undefined ? await fetchTasks(tasks, io, leaveOut) : new Map();
  const prepared = await prepareTasks(plan, fetched, (text) => io.warn(text), leaveOut);
  if (prepared.length === 0) throw failed[0]!.error;
  const leftOut = failed.map(({ task, error }) => ({ task, error: error.message }));
  for (const { task, error } of leftOut) io.warn(`${task} is left out: ${error}`);
  return { prepared, leftOut };
}

/**
 * Fetches what the tasks need and is not in the cache; the files of each task by its name. A task whose
 * rows are not published, or are not in the cache of an offline machine, goes to `leaveOut`.
 */
async function fetchTasks(
  tasks: readonly TaskPlan[],
  io: Io,
  leaveOut?: (task: string, error: ParscaleError) => void,
): Promise<ReadonlyMap<string, FetchedData>> {
  const published = tasks.filter(({ task }) => task.file === undefined);
  if (published.length === 0) return new Map();
  using display = new OpenDisplay(io, "Fetching");
  const files = await openPublished(io, display);
  const wanted = new Map<string, PublishedData>();
  for (const plan of published) {
    const { name } = plan.task;
    try {
      const data = publishedData(plan);
      if (leaveOut) await files.requireReachable(data);
      wanted.set(name, data);
    } catch (error) {
      if (!leaveOut || !(error instanceof ParscaleError)) throw error;
      leaveOut(name, error);
    }
  }
  const missing = await files.missing([...wanted.values()]);
  const described: [MissingFiles, HubFile[]][] = [];
  for (const one of missing) described.push([one, await files.describe(one)]);
  for (const [one, found] of described) io.note(`fetching ${summaryOf(one, found)}`);
  for (const [one, found] of described) await files.download(one, found);
  const opened = new Map<string, FetchedData>();
  for (const [name, data] of wanted) opened.set(name, await files.open(data));
  return opened;
}

/** One line per source of which files would be fetched; asks no server. */
export async function planFetch(tasks: readonly TaskPlan[], io: Io): Promise<string[]> {
  const files = await openPublished(io);
  const missing = await files.missing(tasks.map(publishedData));
  return missing.map((one) => `would fetch ${summaryOf(one)}`);
}

async function openPublished(io: Io, events?: OpenDisplay): Promise<PublishedFiles> {
  return new PublishedFiles(
    new HubClient(
      await hubAccess(),
      io.interruption,
      {},
      (host) => io.note(`contacting ${host} …`),
    ),
    events,
  );
}

/** Returns the entry of a task in the table. */
function publishedData({ task, shots }: TaskPlan): PublishedData {
  const { name, source } = task, data = PUBLISHED[name];
  if (!data) {
    throw new UsageError(`${name} needs \`--data\`: its rows are not published`, {
      hints: [`pass --data DIR|FILE with ${source}`],
    });
  }
  return shots > 0 ? data : { ...data, pool: [] };
}

/** Repository, commit, files, size and licence in one line. */
function summaryOf({ source, licence, files }: MissingFiles, found?: readonly HubFile[]): string {
  const sizes = found?.map(({ size }) => size) ?? files.map(({ bytes }) => bytes);
  const known = sizes.filter((size) => size !== undefined).reduce((a, b) => a + b, 0);
  const size = sizes.every((size) => size !== undefined)
    ? bytesText(known)
    : known === 0
    ? "size not known"
    : `more than ${bytesText(known)}`;
  const { repository, revision } = source;
  return `${repository} @ ${revision}: ${counted(files.length, "file")}, ${size}, ` +
    `licence ${licence}`;
}

/** Lines for `eval fetch --dry-run`. */
export async function describeFetch({ tasks, data }: RowsPlan, io: Io): Promise<string[]> {
  const lines = await planFetch(tasks, io);
  if (lines.length === 0) lines.push("all files are in the cache");
  return data === undefined ? lines : [...lines, `would copy all files to ${data}`];
}

/** `parscale eval fetch`: fills the cache, and with --data a folder of benchmarks. */
export async function fetchFiles(
  { tasks, data }: RowsPlan,
  overwrite: boolean,
  io: Io,
  invocation: Invocation,
): Promise<void> {
  const fetched = await fetchTasks(tasks, io);
  using report = new Report(io, invocation, {
    schema: "parscale.eval-fetch/1",
    columns: ["task", "repository", "commit", "file", "bytes", "sha256", "pinned"],
  });
  for (const { task } of tasks) {
    const { name } = task, { rows, pool } = fetched.get(name)!;
    for (const file of [...rows, ...pool]) {
      if (data !== undefined) await copyInto(data, task, file, overwrite);
      const { repository, revision, path, bytes, sha256, isPinned } = file;
      const pinned = isPinned ? "yes" : "no";
      report.row({ task: name, repository, commit: revision, file: path, bytes, sha256, pinned });
    }
  }
  await report.finish();
}

/** Copies a file to where `--data` finds it; one of other content is not replaced unasked. */
async function copyInto(
  data: string,
  { name, folder }: Task,
  { local, path, sha256 }: FetchedFile,
  overwrite: boolean,
): Promise<void> {
  const target = join(data, PUBLISHED[name]?.folder ?? folder, path);
  if (await statIfExists(target)) {
    if ((await hashFile(target)).sha256 === sha256) return;
    if (!overwrite) {
      throw new UsageError(`"${target}" already exists and has other content`, {
        hints: ["pass --overwrite, or another --data"],
      });
    }
  }
  try {
    await Deno.mkdir(dirname(target), { recursive: true });
    await Deno.copyFile(local, `${target}.parscale-partial`);
    rename(`${target}.parscale-partial`, target);
  } catch (error) {
    throw ioError("write", target, error);
  }
}
