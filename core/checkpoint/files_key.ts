/** Recognises weights without reading them. */
import { createHash } from "node:crypto";
import type { StoredTensor } from "./open.ts";

/**
 * Hash of where tensors lie, and of path, size, time and inode of every file they are in; further values
 * come first.
 */
export async function filesKey(
  tensors: readonly StoredTensor[],
  ...first: readonly unknown[]
): Promise<string> {
  const paths = [...new Set(tensors.map(({ path }) => path))].sort();
  const files = await Promise.all(paths.map(async (path) => {
    const { size, mtime, ino } = await Deno.stat(path);
    return [path, size, mtime?.getTime(), ino];
  }));
  return createHash("sha256").update(JSON.stringify([...first, files, tensors])).digest("hex");
}
