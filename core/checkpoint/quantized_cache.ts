/**
 * Quantized matrices kept between starts, so that `--quantize` computes them once per model, and those of
 * a GGUF file are laid out once.
 *
 * An entry is a folder with the codes and scales of every matrix, named by a hash of what they were made
 * from: the formats, and path, size, time, inode and tensors of every weight file. Contents are not hashed,
 * which would take longer than reading the entry. Everything else is read from the checkpoint itself. An
 * entry appears complete or not at all, and one that cannot be opened is made again.
 */
import { basename } from "node:path";
import { cacheFolder } from "../base/cache_folder.ts";
import { DataError, EnvironmentError } from "../base/errors.ts";
import { ioError, readJsonObject, statIfExists } from "../base/files.ts";
import type { QuantizedFormat } from "../quant/codes.ts";
import { EMBEDDING, parameterSpecs } from "../model/parameters.ts";
import { clearLeftovers, removeFolder } from "../storage/leftovers.ts";
import { filesKey } from "./files_key.ts";
import { type Checkpoint, codedIn, CONFIG_FILE, openCheckpoint, WEIGHTS_FILE } from "./open.ts";
import {
  findMatrices,
  matricesIn,
  type MatrixSpec,
  parseQuantization,
  partsOf,
  QUANTIZATION_KEY,
  quantizationJson,
  type QuantizedMatrices,
} from "./quantization.ts";
import { findTensors } from "./weight_files.ts";

/** Changes whenever an entry would no longer be made with the same bytes. */
const VERSION = 3;

const LEAST_BYTES = 64 << 20;

/** Names of entries, and the hidden ones of those that are not whole. */
const ENTRY = /^([0-9a-f]{64}|\.[0-9a-f]{64}\.\w+-.*)$/;

/** Folder where commands and programs keep entries. */
export function weightCacheFolder(): string {
  return `${cacheFolder((name) => Deno.env.get(name))}/weights`;
}

/** Folder and size limit of entries. */
export interface QuantizedCache {
  readonly folder: string;
  /** Entries that were not used for longest are removed above this. */
  readonly limitBytes: number;
  /** Models with matrices of fewer bytes are quantized sooner than an entry is opened (default 64 MiB). */
  readonly leastBytes?: number;
  /** Called with the bytes of an entry that is being made. */
  onMake?(bytes: number, kind: QuantizedFormat["kind"]): void;
  onProgress?(bytesDone: number, bytesTotal: number): void;
  readonly signal?: AbortSignal | undefined;
}

/** One entry. */
export interface CacheEntry {
  readonly path: string;
  readonly bytes: number;
  /** Milliseconds since 1970; 0 before it is whole. */
  readonly usedMs: number;
}

/**
 * The checkpoint with matrices from the cache, which makes them if they are not there: all in one format,
 * or without one the codes of a GGUF file. Undefined for a model without codes, or one that is too small or
 * too large for the cache.
 * @throws {EnvironmentError} when the entry cannot be written
 */
export async function openFromCache(
  checkpoint: Checkpoint,
  format: QuantizedFormat | undefined,
  cache: QuantizedCache,
): Promise<Checkpoint | undefined> {
  const { adapter, directory } = checkpoint;
  const base = adapter ? await openCheckpoint(directory) : checkpoint;
  const matrices = format ? matricesIn(base.config, format) : codedIn(base);
  const stored = matrices.map(({ name }) => base.tensors.get(name)!);
  const storedBytes = stored.map(({ encoding, byteLength }) => encoding?.byteLength ?? byteLength)
    .reduce((sum, bytes) => sum + bytes, 0);
  if (storedBytes < (cache.leastBytes ?? LEAST_BYTES)) return undefined;
  const path = `${cache.folder}/${await filesKey([...base.tensors.values()], VERSION, matrices)}`;
  clearLeftovers(cache.folder);
  let quantization = await openEntry(path, matrices);
  if (!quantization) {
    if (!await makeEntry(path, base, matrices, cache)) return undefined;
    quantization = await openEntry(path, matrices);
    if (!quantization) throw new DataError(`"${path}" was damaged while it was written`);
  }
  const now = new Date();
  await Deno.utime(`${path}/${CONFIG_FILE}`, now, now).catch(() => {}); // a read-only cache stays as it is
  return laidOver(checkpoint, quantization);
}

/** Writes an entry; false when it would pass the limit on its own. */
async function makeEntry(
  path: string,
  base: Checkpoint,
  matrices: readonly MatrixSpec[],
  cache: QuantizedCache,
): Promise<boolean> {
  const { writeFolder } = await import("../storage/write_folder.ts");
  const { writeCodedFile } = await import("./coded_file.ts");
  const { writeJson } = await import("../storage/write_file.ts");
  const bytes = matrices.flatMap(partsOf).reduce((sum, { byteLength }) => sum + byteLength, 0);
  if (bytes > cache.limitBytes) return false;
  try {
    await Deno.mkdir(cache.folder, { recursive: true });
  } catch (error) {
    const { message } = ioError("write folder", cache.folder, error);
    throw new EnvironmentError(message, { cause: error });
  }
  const { format } = mostOf(matrices);
  cache.onMake?.(bytes, format.kind);
  if (await statIfExists(path)) await removeFolder(path);
  await evict(cache.folder, cache.limitBytes - bytes);
  // Nothing reads these hashes here, so the contents are not hashed.
  const key = basename(path);
  const scheme = quantizationJson({ format, sourceSha256: key, weightsSha256: key });
  const stored = matrices.map(({ name, format }) => ({ tensor: base.tensors.get(name)!, format }));
  const { signal } = cache;
  const onProgress = (done: number) => cache.onProgress?.(done, bytes);
  try {
    await writeFolder(path, { signal }, async (folder) => {
      await writeCodedFile(`${folder}/${WEIGHTS_FILE}`, stored, { signal, onProgress });
      const json = { model: base.directory, [QUANTIZATION_KEY]: scheme };
      writeJson(`${folder}/${CONFIG_FILE}`, json);
    });
  } catch (error) {
    // Another process may have made the same entry meanwhile.
    if (!await statIfExists(path)) throw error;
  }
  return true;
}

/** The format of most matrices, by which the weights are called. */
function mostOf(matrices: readonly MatrixSpec[]): MatrixSpec {
  const byFormat = Map.groupBy(matrices, ({ format }) => `${format.kind} ${format.block}`);
  return [...byFormat.values()].reduce((a, b) => b.length > a.length ? b : a)[0]!;
}

/** The matrices of an entry; undefined where there is none or it is damaged. */
async function openEntry(
  path: string,
  matrices: readonly MatrixSpec[],
): Promise<QuantizedMatrices | undefined> {
  try {
    const scheme = parseQuantization(await readJsonObject(`${path}/${CONFIG_FILE}`), path);
    return scheme && findMatrices(path, matrices, scheme, await findTensors(path));
  } catch (error) {
    if (error instanceof DataError) return undefined;
    throw error;
  }
}

/** Takes the matrices of a checkpoint from an entry, except those of its adapter. */
function laidOver(checkpoint: Checkpoint, quantization: QuantizedMatrices): Checkpoint {
  const own = new Set(
    checkpoint.adapter
      ? parameterSpecs(checkpoint.config).filter((spec) => spec.introduced).map(({ name }) => name)
      : [],
  );
  const matrices = new Map([...quantization.matrices].filter(([name]) => !own.has(name)));
  const tensors = new Map(
    [...checkpoint.tensors].filter(([name]) => name === EMBEDDING || !matrices.has(name)),
  );
  return { ...checkpoint, tensors, quantization: { ...quantization, matrices } };
}

/** All entries, the one not used for longest first; before them those that are being made, or were left. */
export async function cacheEntries(folder: string): Promise<CacheEntry[]> {
  const names = await Array.fromAsync(Deno.readDir(folder), ({ name }) => name).catch(() => []);
  const paths = names.filter((name) => ENTRY.test(name)).map((name) => `${folder}/${name}`);
  const entries = await Promise.all(paths.map(async (path) => {
    const files = await Array.fromAsync(Deno.readDir(path), ({ name }) => name).catch(() => []);
    const sizes = files.map(async (name) => (await statIfExists(`${path}/${name}`))?.size ?? 0);
    const usedMs = (await statIfExists(`${path}/${CONFIG_FILE}`))?.mtime?.getTime() ?? 0;
    return { path, bytes: (await Promise.all(sizes)).reduce((sum, size) => sum + size, 0), usedMs };
  }));
  return entries.sort((a, b) => a.usedMs - b.usedMs);
}

/** Bytes of all entries. */
export async function cacheBytes(folder: string): Promise<number> {
  return bytesOf(await cacheEntries(folder));
}

function bytesOf(entries: readonly CacheEntry[]): number {
  return entries.reduce((sum, { bytes }) => sum + bytes, 0);
}

/** Removes the entries not used for longest until at most `limitBytes` are left. */
async function evict(folder: string, limitBytes: number): Promise<void> {
  const entries = await cacheEntries(folder);
  let total = bytesOf(entries);
  for (const { path, bytes } of entries) {
    if (total <= limitBytes) return;
    if (basename(path).startsWith(".")) continue; // another process is making it
    await removeFolder(path);
    total -= bytes;
  }
}

/** Removes all entries but those that are being made; returns the bytes that were removed. */
export async function clearCache(folder: string): Promise<number> {
  const before = await cacheBytes(folder);
  clearLeftovers(folder);
  await evict(folder, 0);
  return before - await cacheBytes(folder);
}
