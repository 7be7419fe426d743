/**
 * Hidden files and folders beside a target while it is written, and what becomes of those that a killed
 * process left.
 *
 *     .NAME.partial-PID-RANDOM     a file or folder that is being written
 *     .NAME.replaced-PID-RANDOM    the older folder NAME, until the new one has its name
 *     .NAME.removed-PID-RANDOM     an older checkpoint on its way out
 *
 * The process at work locks what it hides, and the system releases the lock however the process ends.
 * Without a lock it is a leftover: `replaced` gets its name back where NAME is missing, everything else
 * is removed, folders provided that they hold nothing but our files.
 */
import { basename, dirname, join } from "node:path";
import { isAlive } from "../base/platform/mod.ts";
import { hold } from "./lock.ts";
import { HIDDEN, holdsOnlyOurs } from "./our_files.ts";
import { rename } from "./rename.ts";

/** Why a hidden file or folder exists. */
type HiddenKind = "partial" | "replaced" | "removed";

/** Path of a new hidden file or folder beside `path`. In containers several processes have the same id. */
export function hiddenSibling(path: string, kind: HiddenKind): string {
  const random = crypto.randomUUID().slice(0, 8);
  return join(dirname(path), `.${basename(path)}.${kind}-${Deno.pid}-${random}`);
}

/** Deletes a folder that must not be seen half deleted: it loses its name first. */
export async function removeFolder(path: string): Promise<void> {
  const hidden = hiddenSibling(path, "removed");
  using _hold = hold(path);
  rename(path, hidden);
  await Deno.remove(hidden, { recursive: true });
}

/**
 * Removes what dead processes left in a folder, and gives a replaced folder its name back. With
 * `isOurs` no other process writes there, so that everything hidden is a leftover.
 */
export function clearLeftovers(parent: string, isOurs = false): void {
  for (const { name, isFile, isDirectory } of entriesIn(parent)) {
    const [, target, kind, pid] = HIDDEN.exec(name) ?? [];
    if (target === undefined || !isFile && !isDirectory) continue;
    // What is there and not yet locked belongs to a live process.
    if (!isOurs && Number(pid) !== Deno.pid && isAlive(Number(pid))) continue;
    const path = join(parent, name);
    using held = hold(path);
    if (held === undefined) continue;
    try {
      if (isDirectory && !holdsOnlyOurs(path)) continue;
      if (kind === "replaced" && !exists(join(parent, target))) rename(path, join(parent, target));
      else Deno.removeSync(path, { recursive: true });
    } catch {
      // It is not what the user asked for: another time, or by a user with the permission.
    }
  }
}

/** Entries of a folder; none where it is missing or cannot be read. */
function entriesIn(path: string): Deno.DirEntry[] {
  try {
    return [...Deno.readDirSync(path)];
  } catch {
    return [];
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

function exists(path: string): boolean {
  try {
    Deno.lstatSync(path);
    return true;
  } catch {
    return false;
  }
}
