/**
 * Writes matrices in codes into one safetensors file: every thread quantizes some rows and writes them to
 * their places, so that no codes pass between threads.
 */
import { dirname } from "node:path";
import { ioError } from "../base/files.ts";
import { writeAllSync } from "../base/write_all.ts";
import { roomFor } from "../quant/codes.ts";
import { type MatrixPart, partsOf } from "./quantization.ts";
import {
  batchesOf,
  type Matrix,
  quantizeBatch,
  type Rooms,
  type RowBatch,
  startThreads,
} from "./quantizer.ts";
import { encodeHeader } from "./safetensors.ts";
import { Flusher, type StreamOptions, writeDurably } from "./write.ts";

/** Elements of a batch: files are opened for each. */
const BATCH_ELEMENTS = 1 << 21;

/** Batches asked of a thread at a time: the next one waits for it. */
const BATCHES_PER_THREAD = 2;

/** Rows, and where their parts lie in a file. */
export interface PlacedBatch extends RowBatch {
  readonly path: string;
  readonly places: readonly (readonly [part: MatrixPart["kind"], offset: number])[];
}

const rooms = new Map<string, ReturnType<Rooms>>();

/** Memory that the next batch of the same sizes uses again. */
const sameRoom: Rooms = (shape, format) =>
  rooms.getOrInsertComputed(JSON.stringify([shape, format]), () => roomFor(shape, format));

/**
 * Quantizes rows and writes them to their places.
 * @throws {EnvironmentError} when the file cannot be written
 */
export function writeBatch(batch: PlacedBatch): void {
  const made = quantizeBatch(batch, sameRoom), { path } = batch;
  try {
    using file = Deno.openSync(path, { write: true });
    for (const [part, offset] of batch.places) {
      file.seekSync(offset, Deno.SeekMode.Start);
      writeAllSync(file, new Uint8Array(made[part]!.buffer));
    }
  } catch (error) {
    throw ioError("write", path, error);
  }
}

/** Writes a file of all matrices; `onProgress` is told the bytes so far. */
export async function writeCodedFile(
  path: string,
  matrices: readonly Matrix[],
  { signal, onProgress }: Pick<StreamOptions, "signal"> & { onProgress?(done: number): void },
): Promise<void> {
  const parts = matrices.flatMap(({ tensor, format }) => partsOf({ ...tensor, format }));
  const header = encodeHeader(parts.map((part) => ({ ...part, dtype: part.dtype.toUpperCase() })));
  await writeDurably(path, async (file) => {
    writeAllSync(file, header);
    await using flusher = new Flusher(path);
    const batches = placedBatches(path, header.length, matrices);
    const threads = startThreads<void>(matrices, dirname(path));
    using _threads = { [Symbol.dispose]: () => threads.forEach((thread) => thread.end()) };
    let done = 0;
    const work = async (make: (batch: PlacedBatch) => unknown) => {
      for (const { bytes, batch } of batches) {
        signal?.throwIfAborted();
        await make(batch);
        flusher.wrote(bytes);
        onProgress?.(done += bytes);
      }
    };
    const makers = threads.flatMap((thread) =>
      new Array(BATCHES_PER_THREAD).fill((batch: PlacedBatch) => thread.ask(batch))
    );
    await Promise.all((makers.length > 0 ? makers : [writeBatch]).map(work));
  });
}

/** Yields batches with the bytes that they are written as. */
function* placedBatches(
  path: string,
  start: number,
  matrices: readonly Matrix[],
): Generator<{ readonly bytes: number; readonly batch: PlacedBatch }> {
  for (const matrix of matrices) {
    const [rows] = matrix.tensor.shape as [number];
    const parts = partsOf({ ...matrix.tensor, format: matrix.format });
    for (const batch of batchesOf([matrix], BATCH_ELEMENTS)) {
      let offset = start;
      const places = parts.map(({ kind, byteLength }) => {
        const place = [kind, offset + byteLength / rows * batch.first] as const;
        offset += byteLength;
        return place;
      });
      const bytes = (offset - start) / rows * batch.count;
      yield { bytes, batch: { ...batch, path, places } };
    }
    start += parts.reduce((sum, { byteLength }) => sum + byteLength, 0);
  }
}
