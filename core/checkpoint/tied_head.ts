/** Compares the output matrix of a file with its embedding table, as config.json may call them one. */
import { setImmediate } from "node:timers/promises";
import { openRegularFile } from "../base/files.ts";
import { ELEMENT_BYTES, toF32, weightType } from "../base/dtype.ts";
import { EMBEDDING, HEAD } from "../model/parameters.ts";
import { readsFrom, storedElements } from "../quant/stored.ts";
import type { FoundTensor } from "./weight_files.ts";

/** Elements compared at a time. */
const CHUNK = 1 << 18;

/**
 * Returns whether the file has an output matrix of its own: one that differs anywhere from the embedding
 * table. Equal matrices are read to their end, others up to the first difference.
 */
export async function hasOwnHead(found: ReadonlyMap<string, FoundTensor>): Promise<boolean> {
  const table = found.get(EMBEDDING), head = found.get(HEAD);
  if (!table || !head) return false;
  const isComparable = table.shape.join() === head.shape.join() &&
    [table, head].every(({ dtype }) => weightType(dtype));
  if (!isComparable) return true; // refused where the tensors are matched to the config
  const [ofTable, ofHead] = [table, head].map(valueReader);
  using tableFile = openRegularFile(table.path);
  using headFile = openRegularFile(head.path);
  const count = table.shape.reduce((product, size) => product * size, 1);
  for (let start = 0; start < count; start += CHUNK) {
    await setImmediate(); // signals, timers
    const length = Math.min(CHUNK, count - start);
    const values = ofTable!(tableFile, start, length), own = ofHead!(headFile, start, length);
    if (values.some((value, i) => !Object.is(value, own[i]))) return true;
  }
  return false;
}

function valueReader(tensor: FoundTensor) {
  const dtype = weightType(tensor.dtype)!,
    size = ELEMENT_BYTES[dtype],
    weight = { ...tensor, dtype };
  return (file: Deno.FsFile, start: number, count: number) =>
    toF32(storedElements(weight, start * size, count * size, readsFrom(file, tensor.path)), dtype);
}
