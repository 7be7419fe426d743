/** Weights as float32 in host memory, wherever and however they are stored. */
import { elementCount, tensorBytes, type TensorType } from "../graph/types.ts";
import { type WeightType, widenInto } from "../base/dtype.ts";
import type { FileTensor, HostTensor } from "./device.ts";

/** The stored type of a weight, which must be a floating-point one. */
export function storedType({ dtype }: TensorType): WeightType {
  if (dtype === "i32" || dtype === "bool") {
    throw new TypeError(`weights are ${dtype}, expected f32, bf16 or f16`);
  }
  return dtype;
}

/** The elements of a weight, widened to f32. Throws what the file system throws. */
export function weightValues(weight: HostTensor | FileTensor): Float32Array {
  const values = new Float32Array(elementCount(weight.shape));
  widenInto(values, storedBytes(weight), storedType(weight));
  return values;
}

/** The bytes of a weight as they are stored. Throws what the file system throws. */
export function storedBytes(weight: HostTensor | FileTensor): Uint8Array {
  return "path" in weight ? readBytes(weight) : hostBytes(weight);
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
    if (read === null) throw new TypeError(`"${weight.path}" is truncated`);
    at += read;
  }
  return bytes;
}
