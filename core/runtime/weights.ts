/** Weights as float32 in host memory, wherever and however they are stored. */
import { elementCount, tensorBytes } from "../graph/types.ts";
import { widen } from "../checkpoint/widen.ts";
import type { FileTensor, HostTensor } from "./device.ts";

/** The elements of a weight, widened to f32. Throws what the file system throws. */
export function weightValues(weight: HostTensor | FileTensor): Float32Array {
  if ("data" in weight) {
    if (weight.dtype === "f32") return Float32Array.from(weight.data);
    const { buffer, byteOffset, byteLength } = weight.data;
    return widen(new Uint8Array(buffer as ArrayBuffer, byteOffset, byteLength), storedType(weight));
  }
  using file = Deno.openSync(weight.path);
  file.seekSync(weight.offset, Deno.SeekMode.Start);
  const bytes = new Uint8Array(tensorBytes(weight));
  for (let at = 0; at < bytes.length;) {
    const read = file.readSync(bytes.subarray(at));
    if (read === null) throw new TypeError(`Cannot read "${weight.path}": it ends too early`);
    at += read;
  }
  return widen(bytes, storedType(weight)).subarray(0, elementCount(weight.shape));
}

function storedType({ dtype }: HostTensor | FileTensor): "f32" | "bf16" | "f16" {
  if (dtype === "i32" || dtype === "bool") throw new TypeError(`Cannot use ${dtype} weights`);
  return dtype;
}
