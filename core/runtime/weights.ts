/** Weights as float32 in host memory, wherever and however they are stored. */
import { type DType, elementBytes, elementCount, tensorBytes } from "../graph/types.ts";
import type { FileTensor, HostTensor } from "./device.ts";

/**
 * Widens stored elements to f32: as many as `target` holds, little-endian. f64 arrays (weights made in
 * a test) are rounded.
 */
export function widenInto(target: Float32Array, bytes: Uint8Array, dtype: DType): void {
  const count = target.length;
  const size = elementBytes(dtype);
  const aligned = bytes.byteOffset % size === 0 ? bytes : bytes.slice(0, count * size);
  const { buffer, byteOffset } = aligned;
  if (dtype === "f32") target.set(new Float32Array(buffer, byteOffset, count));
  else if (dtype === "f16") target.set(new Float16Array(buffer, byteOffset, count));
  else if (dtype === "bf16") {
    const source = new Uint16Array(buffer, byteOffset, count);
    const bits = new Uint32Array(target.buffer, target.byteOffset, count);
    for (let i = 0; i < count; i++) bits[i] = source[i]! << 16;
  } else throw new TypeError(`Cannot use ${dtype} weights, expected f32, bf16 or f16`);
}

/** The elements of a weight, widened to f32. Throws what the file system throws. */
export function weightValues(weight: HostTensor | FileTensor): Float32Array {
  const values = new Float32Array(elementCount(weight.shape));
  widenInto(values, "path" in weight ? readBytes(weight) : hostBytes(weight), weight.dtype);
  return values;
}

/** The stored bytes of a weight in host memory. */
export function hostBytes({ data }: HostTensor): Uint8Array {
  return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
}

function readBytes(weight: FileTensor): Uint8Array {
  using file = Deno.openSync(weight.path);
  file.seekSync(weight.offset, Deno.SeekMode.Start);
  const bytes = new Uint8Array(tensorBytes(weight));
  for (let at = 0; at < bytes.length;) {
    const read = file.readSync(bytes.subarray(at));
    if (read === null) throw new TypeError(`Cannot read "${weight.path}": it ends too early`);
    at += read;
  }
  return bytes;
}
