/**
 * Reads weights of an opened checkpoint: raw, in f32, or only scanned for NaN.
 *
 * Nothing is cached and no file stays open between calls.
 */
import { setImmediate } from "node:timers/promises";
import { NumericalError } from "../base/errors.ts";
import { openRegularFile } from "../base/files.ts";
import type { Checkpoint, StoredTensor } from "./open.ts";
import { readsFrom, storedElements } from "../quant/stored.ts";
import { ELEMENT_BYTES, findNonFinite, toF32 } from "../base/dtype.ts";

/** Bytes scanned at a time; a multiple of every element size, and little enough for a core's cache. */
const CHUNK_BYTES = 1 << 18;

/** Bytes of a tensor's elements from an open file, on this thread; both places are whole elements. */
export function readPart(
  tensor: StoredTensor,
  file: Deno.FsFile,
  start: number,
  length: number,
): Uint8Array<ArrayBuffer> {
  return storedElements(tensor, start, length, readsFrom(file, tensor.path));
}

/**
 * Bytes of a tensor's elements; both places are whole elements.
 * @throws {NumericalError} where one is NaN or infinite
 */
export function finitePart(
  tensor: StoredTensor,
  start: number,
  length: number,
): Uint8Array<ArrayBuffer> {
  using file = openRegularFile(tensor.path);
  const bytes = readPart(tensor, file, start, length);
  requireFinite(tensor, start, bytes);
  return bytes;
}

/** Values of a tensor, or of some bytes of its elements, in f32. */
export function valuesOf(
  tensor: StoredTensor,
  start = 0,
  length = tensor.byteLength,
): Float32Array<ArrayBuffer> {
  using file = openRegularFile(tensor.path);
  return toF32(readPart(tensor, file, start, length), tensor.dtype);
}

/** Like `valuesOf`, after signals and timers had their turn. */
export async function readTensor(tensor: StoredTensor): Promise<Float32Array<ArrayBuffer>> {
  await setImmediate();
  return valuesOf(tensor);
}

/** Throws a `NumericalError` that names the first weight that is NaN or infinite. */
export async function checkFinite(checkpoint: Checkpoint): Promise<void> {
  for (const tensor of checkpoint.tensors.values()) {
    await setImmediate(); // signals, timers
    using file = openRegularFile(tensor.path);
    for (let start = 0; start < tensor.byteLength; start += CHUNK_BYTES) {
      const length = Math.min(CHUNK_BYTES, tensor.byteLength - start);
      requireFinite(tensor, start, readPart(tensor, file, start, length));
    }
  }
}

/** Throws when a chunk that starts at byte `start` of `tensor` holds a NaN or an infinity. */
export function requireFinite(
  tensor: StoredTensor,
  start: number,
  chunk: Uint8Array<ArrayBuffer>,
): void {
  const position = findNonFinite(chunk, tensor.dtype);
  if (position < 0) return;
  const size = ELEMENT_BYTES[tensor.dtype];
  const value = toF32(chunk.slice(position * size, (position + 1) * size), tensor.dtype)[0];
  const place = `index ${start / size + position} of shape [${tensor.shape}]`;
  throw new NumericalError(
    `tensor ${tensor.name} in "${tensor.path}" is not finite: ${value} at ${place}`,
    { hints: ["the checkpoint is damaged or its training diverged; take an earlier one"] },
  );
}
