/**
 * A short hash by which a model is recognised without reading all of it.
 *
 * Covers the shape of the model and, of every tensor, its type, shape and first bytes: training changes
 * every tensor from its first element on, so that another step of the same run is another model.
 */
import { createHash } from "node:crypto";
import { readExactlySync } from "../base/files.ts";
import type { Checkpoint } from "./open.ts";

/** Bytes of each tensor that are hashed. */
const HEAD_BYTES = 1024;

/** 16 hexadecimal digits. */
export function modelFingerprint({ config, tensors, quantization }: Checkpoint): string {
  const hash = createHash("sha256").update(JSON.stringify(config));
  if (quantization) {
    const { format, weightsSha256 } = quantization;
    hash.update(`${format.kind} ${format.block} ${weightsSha256}`);
  }
  for (const name of [...tensors.keys()].sort()) {
    const tensor = tensors.get(name)!;
    const { dtype, shape, byteLength, encoding } = tensor;
    hash.update(`${name} ${encoding?.type ?? dtype} ${shape.join()}`);
    const head = new Uint8Array(Math.min(HEAD_BYTES, encoding?.byteLength ?? byteLength));
    using file = Deno.openSync(tensor.path);
    readExactlySync(file, tensor.path, tensor.offset, head);
    hash.update(head);
  }
  return hash.digest("hex").slice(0, 16);
}
