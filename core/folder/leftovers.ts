/**
 * Hidden folders beside a target while it is written, and what becomes of those that a killed process
 * left behind.
 *
 *     .NAME.partial-PID-RANDOM     being filled
 *     .NAME.replaced-PID-RANDOM    the older NAME, until the new one has its name
 *     .NAME.removed-PID-RANDOM     an older checkpoint on its way out
 *
 * The process at work holds a lock on its hidden folder, which the system releases however the process
 * ends. A folder without a lock is a leftover: `replaced` gets its name back where NAME is missing,
 * everything else is removed, provided it holds nothing but our files.
 */
import { basename, dirname, join } from "node:path";
import { isAlive } from "../base/platform/mod.ts";
import { rename } from "../base/platform/rename.ts";
import { holdsOnlyOurs } from "./our_files.ts";

/** Why a hidden folder exists. */
export type HiddenKind = "partial" | "replaced" | "removed";

const HIDDEN = /^\.(.+)\.(partial|replaced|removed)-(\d+)(?:-[\da-f]{8})?$/;

/** Path of a new hidden folder beside `path`. In containers several processes have the same id. */
export function hiddenSibling(path: string, kind: HiddenKind): string {
  const random = crypto.randomUUID().slice(0, 8);
  return join(dirname(path), `.${basename(path)}.${kind}-${Deno.pid}-${random}`);
}

/**
 * Holds a folder for this process, under whatever name it will have. Undefined where another process
 * holds it; null where folders cannot be locked.
 */
export async function holdFolder(path: string): Promise<Deno.FsFile | undefined | null> {
  let handle: Deno.FsFile | undefined;
  try {
    handle = await Deno.open(path);
    if (await handle.tryLock(true)) return handle;
  } catch {
    handle?.close();
    return null;
  }
  handle.close();
}

/** Deletes a folder that must not be seen half deleted: it loses its name first. */
export async function removeFolder(path: string): Promise<void> {
  const hidden = hiddenSibling(path, "removed");
  using _hold = await holdFolder(path);
  await rename(path, hidden);
  await Deno.remove(hidden, { recursive: true });
}

/**
 * Removes what dead processes left in a folder, and gives a replaced folder its name back. With
 * `isOurs` no other process writes there, so that every hidden folder is a leftover.
 */
export async function clearLeftovers(parent: string, isOurs = false): Promise<void> {
  // No such folder, or none that can be read, has nothing of ours to clear.
  const entries = await Array.fromAsync(Deno.readDir(parent)).catch(() => []);
  for (const { name, isDirectory } of entries) {
    const [, target, kind, pid] = HIDDEN.exec(name) ?? [];
    if (target === undefined || !isDirectory) continue;
    // A folder that is there and not yet held belongs to a live process.
    if (!isOurs && Number(pid) !== Deno.pid && isAlive(Number(pid))) continue;
    const path = join(parent, name);
    using hold = await holdFolder(path);
    if (hold === undefined) continue;
    try {
      if (!await holdsOnlyOurs(path)) continue;
      if (kind === "replaced" && !await exists(join(parent, target))) {
        await rename(path, join(parent, target));
      } else await Deno.remove(path, { recursive: true });
    } catch {
      // It is not what the user asked for: another time, or by a user with the permission.
    }
  }
}

/** Removes a file or folder unless there is none. */
export async function removeIfExists(path: string): Promise<void> {
  try {
    await Deno.remove(path, { recursive: true });
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
  }
}

async function exists(path: string): Promise<boolean> {
  return await Deno.lstat(path).then(() => true, () => false);
}
