/**
 * Published data for tasks without `--data`, and `parscale eval fetch`.
 *
 * What is fetched is said first, with commit, size and licence. Files of the cache are used as they
 * are, after their hashes were compared.
 */
import { dirname, join } from "node:path";
import type {
  FetchedData,
  FetchedFile,
  MissingFiles,
  PublishedFiles,
} from "../../../core/eval/harness/fetch.ts";
import type { Task } from "../../../core/eval/harness/task.ts";
import type { PublishedData } from "../../../core/eval/tasks/published.ts";
import { UsageError } from "../../../core/base/errors.ts";
import { ioError, statIfExists } from "../../../core/base/files.ts";
import { rename } from "../../../core/base/platform/rename.ts";
import type { HubFile } from "../../../core/hub/repository.ts";
import { OpenDisplay } from "../../input/open_model.ts";
import type { Invocation } from "../../output/document.ts";
import type { Io } from "../../output/io.ts";
import { openReport } from "../../output/report.ts";
import { bytesText, counted } from "../../output/units.ts";
import { selectTasks } from "./select.ts";
import type { EvalValues } from "./flags.ts";

/** A task with how many shots it is asked with; without any it needs no rows to draw from. */
export interface FetchedTask {
  readonly task: Task;
  readonly shots: number;
}

/** Fetches what the tasks need and is not in the cache; the files of each task by its name. */
export async function fetchTasks(
  tasks: readonly FetchedTask[],
  io: Io,
): Promise<ReadonlyMap<string, FetchedData>> {
  const wanted = await publishedData(tasks);
  using display = new OpenDisplay(io, "Fetching");
  const files = await openPublished(io, display);
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
export async function planFetch(tasks: readonly FetchedTask[], io: Io): Promise<string[]> {
  const files = await openPublished(io);
  const missing = await files.missing([...(await publishedData(tasks)).values()]);
  return missing.map((one) => `would fetch ${summaryOf(one)}`);
}

async function openPublished(io: Io, events?: OpenDisplay): Promise<PublishedFiles> {
  const { PublishedFiles } = await import("../../../core/eval/harness/fetch.ts");
  const { hubAccess } = await import("../../../core/hub/access.ts");
  const { HubClient } = await import("../../../core/hub/client.ts");
  return new PublishedFiles(new HubClient(await hubAccess(), io.interruption), events);
}

/** What the table says of the tasks. */
async function publishedData(
  tasks: readonly FetchedTask[],
): Promise<ReadonlyMap<string, PublishedData>> {
  const { PUBLISHED } = await import("../../../core/eval/tasks/published.ts");
  return new Map(tasks.map(({ task, shots }) => {
    const data = PUBLISHED[task.name];
    if (!data) {
      throw new UsageError(`${task.name} needs \`--data\`: its rows are not published`, {
        hints: [`pass --data DIR|FILE with ${task.source}`],
      });
    }
    return [task.name, shots > 0 ? data : { ...data, pool: [] }];
  }));
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

/** Tasks of `eval fetch TASK…`, with all that any evaluation of them needs. */
async function tasksToFetch({ arguments: [, ...names] }: EvalValues): Promise<FetchedTask[]> {
  if (names.length === 0) {
    throw new UsageError("`eval fetch` needs at least one task", {
      hints: ["type `parscale eval fetch general math race code ifeval` for all of them"],
    });
  }
  return (await selectTasks(names)).map((task) => ({ task, shots: task.shots.count }));
}

/** Lines for `eval fetch --dry-run`. */
export async function planFetchCommand(values: EvalValues, io: Io): Promise<string[]> {
  const lines = await planFetch(await tasksToFetch(values), io);
  if (lines.length === 0) lines.push("all files are in the cache");
  return values.data === undefined ? lines : [...lines, `would copy all files to ${values.data}`];
}

/** `parscale eval fetch`: fills the cache, and with --data a folder of benchmarks. */
export async function fetchCommand(
  values: EvalValues,
  io: Io,
  invocation: Invocation,
): Promise<void> {
  const tasks = await tasksToFetch(values);
  const fetched = await fetchTasks(tasks, io);
  if (values.verify) await verify(tasks, io);
  using report = openReport(io, invocation, {
    schema: "parscale.eval-fetch/1",
    columns: ["task", "repository", "commit", "file", "bytes", "sha256", "pinned"]
      .map((key) => ({ key })),
  });
  const unpinned: FetchedFile[] = [];
  for (const { task } of tasks) {
    const { rows, pool } = fetched.get(task.name)!;
    for (const file of [...rows, ...pool]) {
      if (values.data !== undefined) await copyInto(values.data, task, file, values.overwrite);
      const { repository, revision, path, bytes, sha256, isPinned } = file;
      const pinned = isPinned ? "yes" : "no";
      report.row({
        task: task.name,
        repository,
        commit: revision,
        file: path,
        bytes,
        sha256,
        pinned,
      });
      if (!isPinned) unpinned.push(file);
    }
  }
  await report.finish();
  if (!values.verify) return;
  for (const { repository, path, bytes, sha256 } of unpinned) {
    io.note(`to pin: | ${repository} ${path} (${bytes}) | ${sha256} |`);
  }
}

/** Asks the hub again for sizes and hashes of files that are in the cache. */
async function verify(tasks: readonly FetchedTask[], io: Io): Promise<void> {
  const files = await openPublished(io);
  for (const { source, licence, rows, pool } of (await publishedData(tasks)).values()) {
    await files.describe({ source, licence, files: [...rows, ...pool] });
  }
}

/** Copies a file to where `--data` finds it; one of other content is not replaced unasked. */
async function copyInto(
  data: string,
  { name, folder }: Task,
  { local, path, sha256 }: FetchedFile,
  overwrite: boolean,
): Promise<void> {
  const { PUBLISHED } = await import("../../../core/eval/tasks/published.ts");
  const { hashFile } = await import("../../../core/data/hash.ts");
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
    await rename(`${target}.parscale-partial`, target);
  } catch (error) {
    throw ioError("write", target, error);
  }
}
