/** SHA-256 of what names data in caches and messages: a file's bytes, or a value as JSON. */
import { createHash } from "node:crypto";
import { chunksOf } from "./read.ts";

/** Size in bytes and SHA-256 of a file. */
export async function hashFile(
  path: string,
  signal?: AbortSignal,
): Promise<{ readonly bytes: number; readonly sha256: string }> {
  const hash = createHash("sha256");
  let bytes = 0;
  for await (const chunk of chunksOf(path, () => signal?.throwIfAborted())) {
    hash.update(chunk);
    bytes += chunk.length;
  }
  return { bytes, sha256: hash.digest("hex") };
}

/** SHA-256 of a value as JSON; the order of its fields counts. */
export function hashJson(value: unknown): string {
  return createHash("sha256").update(JSON.stringify(value)).digest("hex");
}
