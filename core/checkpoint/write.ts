/**
 * Writes weight files by streaming: memory stays at one small buffer whatever the size of the model.
 *
 * Bytes of a tensor lie in another file, in memory or are made on demand. Reading, inspecting and
 * writing a piece take turns on one thread, without waiting for each other: the system reads ahead, and
 * what is written goes to the disk in the background. That is faster than handing pieces to other
 * threads.
 */
import { setImmediate } from "node:timers/promises";
import type { WeightType } from "../model/config.ts";
import { ioError, openRegularFile, readExactlySync } from "../base/files.ts";
import { COMPANION_FILES, type ModelFiles, TEMPLATES_FOLDER } from "../base/companions.ts";
import { writeAllSync } from "../base/write_all.ts";
import { writeFile, writeJson } from "../storage/write_file.ts";
import { INDEX_FILE, type StoredTensor, WEIGHTS_FILE } from "./open.ts";
import type { FileRange } from "../quant/stored.ts";
import { readPart, valuesOf } from "./read.ts";
import { encodeHeader } from "./safetensors.ts";
import { ELEMENT_BYTES, fromF32, HEADER_DTYPE, toF32 } from "../base/dtype.ts";
import { elementCount } from "../model/parameters.ts";

/**
 * Bytes per piece; a multiple of every element size. A piece should stay in a core's own cache from
 * read to write: 1 MiB measured a third slower, and with 64 KiB the calls cost more than the bytes.
 */
const PIECE_BYTES = 1 << 18;

/** Pieces between two looks at signals, timers and the like: some ten milliseconds. */
const PIECES_PER_TURN = 64;

/** Bytes written between two flushes. */
const FLUSH_BYTES = 128 << 20;

/** The usual limit of a shard. */
const DEFAULT_SHARD_BYTES = 5e9;

/**
 * Produces the bytes of a tensor from byte `start` on; `start` and length are whole elements. It is
 * called once for every piece, in order.
 */
export type ByteGenerator = (
  start: number,
  length: number,
) => Uint8Array<ArrayBuffer> | Promise<Uint8Array<ArrayBuffer>>;

/** A tensor to be written. */
export interface OutputTensor {
  readonly name: string;
  /** `u8`: codes of quantized weights. */
  readonly dtype: WeightType | "u8";
  readonly shape: readonly number[];
  readonly byteLength: number;
  /** A stored tensor is copied byte for byte. */
  readonly source:
    | StoredTensor
    | FileRange
    | Uint8Array<ArrayBuffer>
    | ByteGenerator;
}

/** A tensor in another type, cast while it is written; as it is without one, or in its own. */
export function castTensor(tensor: OutputTensor, to: WeightType | undefined): OutputTensor {
  const { dtype: from, shape, source } = tensor;
  if (to === undefined || from === to || from === "u8") return tensor;
  const [size, newSize] = [ELEMENT_BYTES[from], ELEMENT_BYTES[to]];
  const values = async (start: number, length: number) => {
    if (typeof source === "function") return toF32(await source(start, length), from);
    if ("dtype" in source) return valuesOf(source, start, length);
    throw new TypeError(`${tensor.name} is bytes, which are not cast`);
  };
  return {
    ...tensor,
    dtype: to,
    byteLength: elementCount(shape) * newSize,
    source: async (start, length) =>
      fromF32(await values(start / newSize * size, length / newSize * size), to),
  };
}

/** Callbacks of writing. */
export interface StreamOptions {
  /** Sees every piece, in order, before it is written. */
  inspect?(piece: Uint8Array<ArrayBuffer>, tensor: OutputTensor, start: number): void;
  signal?: AbortSignal;
}

/**
 * Writes tensors into an existing folder and returns the names of the files.
 *
 * Shards are filled in order; a tensor that would pass `maxShardBytes` starts the next one. Every
 * file has reached the disk when this returns.
 */
export async function writeWeights(
  folder: string,
  tensors: readonly OutputTensor[],
  options: StreamOptions & { maxShardBytes?: number } = {},
): Promise<string[]> {
  const shards = planShards(tensors, options.maxShardBytes ?? DEFAULT_SHARD_BYTES);
  const files: string[] = [];
  const weightMap: Record<string, string> = {};
  for (const [i, shard] of shards.entries()) {
    const file = shards.length === 1 ? WEIGHTS_FILE : shardName(i + 1, shards.length);
    await writeSafetensors(`${folder}/${file}`, shard, options);
    files.push(file);
    for (const { name } of shard) weightMap[name] = file;
  }
  if (shards.length > 1) {
    const total_size = tensors.reduce((sum, tensor) => sum + tensor.byteLength, 0);
    writeJson(`${folder}/${INDEX_FILE}`, { metadata: { total_size }, weight_map: weightMap });
    files.push(INDEX_FILE);
  }
  return files;
}

/** Splits tensors into shards of at most `maxBytes`, except where a single tensor is larger. */
export function planShards<T extends { readonly byteLength: number }>(
  tensors: readonly T[],
  maxBytes: number,
): T[][] {
  const shards: T[][] = [[]];
  let filled = 0;
  for (const tensor of tensors) {
    if (filled > 0 && filled + tensor.byteLength > maxBytes) {
      shards.push([]);
      filled = 0;
    }
    shards.at(-1)!.push(tensor);
    filled += tensor.byteLength;
  }
  return shards;
}

function shardName(index: number, count: number): string {
  const digits = (value: number) => String(value).padStart(5, "0");
  return `model-${digits(index)}-of-${digits(count)}.safetensors`;
}

/** Writes one safetensors file and waits until it is on the disk. */
export async function writeSafetensors(
  path: string,
  tensors: readonly OutputTensor[],
  options: StreamOptions = {},
): Promise<void> {
  const header = tensors.map(({ dtype, ...tensor }) => ({
    ...tensor,
    dtype: dtype === "u8" ? "U8" : HEADER_DTYPE[dtype],
  }));
  await writeDurably(path, async (file) => {
    await using flusher = new Flusher(path);
    writeAllSync(file, encodeHeader(header));
    const write = (piece: Uint8Array) => {
      writeAllSync(file, piece);
      flusher.wrote(piece.length);
    };
    await streamTensors(tensors, { ...options, write });
  });
}

/** Copies what a model has beside its weights into a folder, and returns the names. */
export async function copyCompanions(files: ModelFiles, folder: string): Promise<string[]> {
  const copied: string[] = [];
  const templates = files.isGguf ? [] : await namesIn(`${files.model}/${TEMPLATES_FOLDER}`);
  if (templates.length > 0) await Deno.mkdir(`${folder}/${TEMPLATES_FOLDER}`, { recursive: true });
  for (
    const name of [
      ...COMPANION_FILES,
      ...templates.map((name) => `${TEMPLATES_FOLDER}/${name}`),
    ]
  ) {
    if (!await files.has(name)) continue;
    writeFile(`${folder}/${name}`, await files.read(name));
    copied.push(name);
  }
  return copied;
}

/** Names of the templates in a folder, none where there is none. */
async function namesIn(folder: string): Promise<string[]> {
  const entries = await Array.fromAsync(Deno.readDir(folder)).catch(() => []);
  return entries.map(({ name }) => name).filter((name) => name.endsWith(".jinja")).sort();
}

/** Opens a file for `write`, and waits until it is on the disk. */
export async function writeDurably(
  path: string,
  write: (file: Deno.FsFile) => Promise<void> | void,
): Promise<void> {
  try {
    using file = await Deno.open(path, { write: true, create: true, truncate: true });
    await write(file);
    await file.sync();
  } catch (error) {
    throw ioError("write", path, error);
  }
}

/**
 * Sends to the disk what is written so far while more is being written, so that little is left to
 * wait for at the end. A file handle does one thing at a time, hence a second one.
 */
export class Flusher implements AsyncDisposable {
  #file: Deno.FsFile | undefined;
  #flushing: Promise<void> | undefined;
  #unflushed = 0;

  constructor(readonly path: string) {}

  wrote(bytes: number): void {
    this.#unflushed += bytes;
    if (this.#unflushed < FLUSH_BYTES || this.#flushing !== undefined) return;
    this.#unflushed = 0;
    this.#file ??= Deno.openSync(this.path, { write: true });
    // A failure is not lost: the system tells it again to the handle that syncs at the end.
    this.#flushing = this.#file.syncData().catch(() => {})
      .then(() => this.#flushing = undefined);
  }

  async [Symbol.asyncDispose]() {
    await this.#flushing;
    this.#file?.close();
  }
}

/** Passes the bytes of all tensors, piece by piece and in order, to `inspect` and `write`. */
export async function streamTensors(
  tensors: readonly OutputTensor[],
  options: StreamOptions & { write?: (piece: Uint8Array<ArrayBuffer>) => void },
): Promise<void> {
  const buffer = new Uint8Array(PIECE_BYTES);
  using stack = new DisposableStack();
  const files = new Map<string, Deno.FsFile>();
  /** Opens each file once. */
  const open = (path: string) =>
    files.getOrInsertComputed(path, () => stack.use(openRegularFile(path)));
  let unbroken = 0;
  for (const tensor of tensors) {
    for (let start = 0; start < tensor.byteLength; start += PIECE_BYTES) {
      if (unbroken++ % PIECES_PER_TURN === 0) await setImmediate();
      options.signal?.throwIfAborted();
      const length = Math.min(PIECE_BYTES, tensor.byteLength - start);
      const made = readPiece(tensor, start, buffer.subarray(0, length), open);
      const piece = made instanceof Promise ? await made : made;
      options.inspect?.(piece, tensor, start);
      options.write?.(piece);
    }
  }
}

function readPiece(
  { source }: OutputTensor,
  start: number,
  into: Uint8Array<ArrayBuffer>,
  open: (path: string) => Deno.FsFile,
): ReturnType<ByteGenerator> {
  if (typeof source === "function") return source(start, into.length);
  if (source instanceof Uint8Array) return source.subarray(start, start + into.length);
  if ("encoding" in source) return readPart(source, open(source.path), start, into.length);
  readExactlySync(open(source.path), source.path, source.offset + start, into);
  return into;
}
