/**
 * Reads the rows of a benchmark: fetched files, or what is found in a folder of the user's.
 *
 * Such a folder has one folder per benchmark, its files named as the authors or the Hugging Face hub
 * name them; one file serves one task. Returns rows, the rows shots are drawn from, and hashes of
 * what was read. Which rows a pool has decides every prompt, so sizes are compared with the
 * official ones by the caller.
 */
import { createHash } from "node:crypto";
import { join } from "node:path";
import { csvRows } from "../../base/csv.ts";
import {
  isObject,
  jsonValue,
  parseJson,
  readError,
  readRegularFile,
  show,
  statIfExists,
} from "../../base/files.ts";
import type { Compression } from "../../data/archives.ts";
import { decompress } from "../../data/decompress.ts";
import { rowOf } from "../../data/document.ts";
import { decodeText, joinChunks } from "../../data/jsonl.ts";
import { readTable } from "../../data/parquet.ts";
import { packedText } from "../../data/read.ts";
import { DataError, UsageError } from "../../base/errors.ts";
import type { FetchedData, FetchedFile } from "./fetch.ts";
import { Row } from "./row.ts";
import type { SplitNames, Task } from "./task.ts";

/** A file that was read. */
export interface DataFile {
  readonly path: string;
  readonly sha256: string;
  /** Repository, commit and size of a file that was fetched. */
  readonly repository?: string;
  readonly commit?: string;
  readonly bytes?: number;
}

/** Everything a task is made from. */
export interface TaskData {
  /** Evaluated rows, in the order of the file. */
  readonly rows: readonly Row[];
  /** Rows from which shots are drawn; empty where there are none to draw. */
  readonly pool: readonly Row[];
  readonly files: readonly DataFile[];
}

/** Most bytes of a benchmark's file, unpacked; the largest of them has 25 MB. */
const MAX_FILE_BYTES = 256 << 20;

/** Endings that are read, most wanted first. */
const ENDINGS = ["jsonl", "ndjson", "json", "parquet", "csv", "txt", "md"];
const NAME = new RegExp(`^(.+)\\.(${ENDINGS.join("|")})(?:\\.(gz|zst))?$`, "i");
const COMPRESSION: Readonly<Record<string, Compression>> = { gz: "gzip", zst: "zstd" };
const MAX_DEPTH = 4;

const CUT = ["a truncated file ends in such a line; copy it again"];

/** Reads a task's rows and, unless `shots` is 0, the rows that shots are drawn from. */
export async function readTaskData(
  task: Task,
  data: string | FetchedData,
  shots: number,
): Promise<TaskData> {
  const files: DataFile[] = [];
  const pool = shots > 0 && "pool" in task.shots ? task.shots.pool : undefined;
  const prepared = (rows: Row[]) => task.arrange?.(rows) ?? rows;
  const taken = async (rows: Row[], read: (names: SplitNames) => Promise<Row[]>) => {
    const own = prepared(rows);
    requireUnique(task, own);
    if (pool === undefined) return { rows: own, pool: [], files };
    return { rows: own, pool: pool === "evaluated rows" ? own : prepared(await read(pool)), files };
  };
  if (typeof data !== "string") {
    const read = (fetched: readonly FetchedFile[]) => readFetched(fetched, task, files);
    return await taken(await read(data.rows), () => read(data.pool));
  }
  const info = await statIfExists(data);
  if (!info) {
    throw new DataError(`no such file or folder: "${data}"`, {
      hints: ["`parscale eval ls` shows what each task needs and where it comes from"],
    });
  }
  if (!info.isDirectory) {
    if (Array.isArray(pool)) {
      throw new UsageError(
        `${shots} shots of ${task.name} need a folder with "${pool[0]}" and "${task.rows[0]}": ` +
          `"${data}" is one file`,
        { hints: ["pass the folder as `--data`, or `--shots 0`"] },
      );
    }
    return await taken(await readFile(data, task, files), () => Promise.resolve([]));
  }
  const folder = join(data, task.folder);
  const read = (names: SplitNames) => readSplit(folder, task, names, files);
  return await taken(await read(task.rows), read);
}

/** Rows of fetched files, which are given by the table of published ones and not searched for. */
async function readFetched(
  fetched: readonly FetchedFile[],
  task: Task,
  files: DataFile[],
): Promise<Row[]> {
  const rows: Row[] = [];
  for (const { local, path, sha256, repository, revision, bytes } of fetched) {
    for (const row of await readFile(local, task, [])) rows.push(row);
    files.push({ path, sha256, repository, commit: revision, bytes });
  }
  return rows;
}

/** All files of the first name that is there. */
async function readSplit(
  folder: string,
  task: Task,
  names: SplitNames,
  files: DataFile[],
): Promise<Row[]> {
  const found = await statIfExists(folder) ? await Array.fromAsync(listFiles(folder)) : [];
  for (const name of names) {
    const pattern = new RegExp(`^${name.replaceAll("*", "[^/]+")}$`, "i");
    const matching = found.filter(({ stem }) => pattern.test(stem));
    const ending = ENDINGS.find((wanted) => matching.some((file) => file.ending === wanted));
    const paths = matching.filter((file) => file.ending === ending).map(({ path }) => path);
    if (paths.length === 0) continue;
    return (await Array.fromAsync(paths.sort(), (path) => readFile(path, task, files))).flat();
  }
  const others = found.slice(0, 5).map(({ stem }) => `"${stem}"`).join(", ") || "no data files";
  const wanted = `"${names[0]}" (.jsonl, .json, .parquet or .csv)`;
  throw new DataError(`"${folder}" has no ${wanted} for ${task.name}: it has ${others}`, {
    hints: [`get it from ${task.source}`, "`parscale eval ls` shows what each task needs"],
  });
}

interface FoundFile {
  readonly path: string;
  /** Path below the folder without ending and without the number of a shard. */
  readonly stem: string;
  readonly ending: string;
}

async function* listFiles(folder: string, below = "", depth = 0): AsyncGenerator<FoundFile> {
  const entries = await Array.fromAsync(Deno.readDir(folder)).catch((error) => {
    throw readError(folder, error);
  });
  for (const { name } of entries) {
    const path = join(folder, name);
    const info = await statIfExists(path);
    if (info?.isDirectory && depth < MAX_DEPTH) {
      yield* listFiles(path, `${below}${name}/`, depth + 1);
    }
    const match = info?.isFile ? NAME.exec(name) : null;
    if (!match || name.startsWith(".")) continue;
    const stem = below + match[1]!.replace(/-\d{5}-of-\d{5}$/, "");
    yield { path, stem, ending: match[2]!.toLowerCase() };
  }
}

async function readFile(path: string, task: Task, files: DataFile[]): Promise<Row[]> {
  const [, , ending = "txt", packed] = NAME.exec(path) ?? [];
  const hash = createHash("sha256");
  const note = (chunk: Uint8Array) => void hash.update(chunk);
  let rows: Row[];
  if (ending.toLowerCase() === "parquet") {
    const table = await Array.fromAsync(readTable(path, undefined, note));
    rows = table.map((fields, i) => toRow(fields, path, i + 1));
  } else {
    const compression = packed === undefined ? undefined : COMPRESSION[packed.toLowerCase()];
    const raw = packedText(path, compression, note);
    const plain = compression ? decompress(raw, compression, path) : raw;
    const bytes = await joinChunks(plain, MAX_FILE_BYTES, `"${path}"`);
    const text = decodeText(bytes, `"${path}"`).replace(/^\ufeff/, "");
    rows = task.parse?.(text, path) ?? parseRows(text, path, ending.toLowerCase(), task);
  }
  if (rows.length === 0) {
    throw new DataError(`"${path}" has no rows`);
  }
  files.push({ path, sha256: hash.digest("hex") });
  return await withLabels(rows, path, files);
}

function parseRows(text: string, path: string, ending: string, task: Task): Row[] {
  if (task.kind === "perplexity" && (ending === "txt" || ending === "md")) {
    return [new Row({ text }, `"${path}"`)];
  }
  if (ending === "csv") {
    const file = /([^/\\]+)\.csv/i.exec(path)?.[1] ?? path;
    const rows = csvRows(text, `"${path}"`);
    return Array.from(rows, (cells, i) => toRow({ cells, file }, path, i + 1));
  }
  const lines = text.split("\n");
  const first = lines.find((line) => line.trim() !== "") ?? "";
  const isWhole = ending !== "jsonl" && !isObject(jsonValue(first));
  if (isWhole) {
    const value = parseJson(text, `"${path}"`, CUT);
    return (Array.isArray(value) ? value : [value]).map((row, i) => toRow(row, path, i + 1));
  }
  return lines.flatMap((line, i) =>
    line.trim() === "" ? [] : [toRow(parseJson(line, rowOf(path, i + 1), CUT), path, i + 1)]
  );
}

function toRow(value: unknown, path: string, row: number): Row {
  if (isObject(value)) return new Row(value, rowOf(path, row));
  throw new DataError(`${rowOf(path, row)} is not a JSON object: ${show(value)}`);
}

/** PIQA keeps its labels in a file beside the rows, one a line. */
async function withLabels(rows: Row[], path: string, files: DataFile[]): Promise<Row[]> {
  const beside = path.replace(/\.[^/.]+(?:\.(?:gz|zst))?$/i, "-labels.lst");
  if ("label" in rows[0]!.fields || !await statIfExists(beside)) return rows;
  const bytes = await readRegularFile(beside);
  const labels = decodeText(bytes, `"${beside}"`).trim().split(/\s+/);
  if (labels.length !== rows.length) {
    throw new DataError(
      `"${beside}" has ${labels.length} labels, expected ${rows.length}, one per row`,
    );
  }
  files.push({ path: beside, sha256: createHash("sha256").update(bytes).digest("hex") });
  return rows.map((row, i) => new Row({ ...row.fields, label: labels[i]! }, row.place));
}

function requireUnique(task: Task, rows: readonly Row[]): void {
  const column = task.uniqueColumn;
  if (column === undefined) return;
  const seen = new Map<unknown, Row>();
  for (const row of rows) {
    const id = row.fields[column];
    const first = id === undefined ? undefined : seen.get(id);
    if (first) throw row.error(`repeats "${column}" ${show(id)} of ${first.place}`);
    seen.set(id, row);
  }
}
