/**
 * Makes a folder appear complete or not at all.
 *
 * Files are written into a hidden folder beside the target, which takes the target's name at the end
 * by a rename. Whatever fails or is interrupted before removes the hidden folder and leaves an older
 * target as it was; what a killed process leaves is removed by the next, see `leftovers.ts`.
 */
import { dirname, join, resolve } from "node:path";
import { UsageError } from "../base/errors.ts";
import { ioError, realPath } from "../base/files.ts";
import { clearLeftovers, hiddenSibling, removeIfExists } from "./leftovers.ts";
import { hold, openLocked } from "./lock.ts";
import { type FolderKind, requireOurs } from "./our_files.ts";
import { rename } from "./rename.ts";

/** Exceptions to the rule that a folder may only be put where there is none. */
interface TargetOptions {
  /** Names of files that may be there. */
  readonly ignores?: (name: string) => boolean | Promise<boolean>;
  readonly problem?: string;
  readonly hint?: string;
}

/**
 * Throws unless a folder may be put at `path`: nothing there, an empty folder, or one of the kind that
 * is to be replaced.
 */
export async function requireFreeTarget(
  path: string,
  replaces: FolderKind | undefined,
  {
    ignores = () => false,
    problem = "already exists",
    hint = "pass `--overwrite`, or choose another `--out`",
  }: TargetOptions = {},
): Promise<void> {
  try {
    if (!(await Deno.lstat(await realPath(path))).isDirectory) {
      throw new UsageError(`"${path}" already exists and is a file`, {
        hints: ["choose another `--out`"],
      });
    }
    if (replaces !== undefined) return requireOurs(path, replaces);
    for await (const { name } of Deno.readDir(path)) {
      if (await ignores(name)) continue;
      throw new UsageError(`"${path}" ${problem}`, { hints: [hint] });
    }
  } catch (error) {
    if ((error as { code?: string }).code === "ENOENT") return;
    throw ioError("write folder", path, error);
  }
}

/**
 * Lets `fill` write into a temporary folder and then gives it the name `target`.
 *
 * Parents are created. With `replaces` an existing folder of that kind stays in place until the new
 * one is complete, and is removed afterwards.
 */
export async function writeFolder<T>(
  target: string,
  options: { replaces?: FolderKind | undefined; signal?: AbortSignal | undefined },
  fill: (partial: string) => Promise<T>,
): Promise<T> {
  const path = resolve(await realPath(target)); // a link stays one
  const partial = hiddenSibling(path, "partial");

  clearLeftovers(dirname(path));
  await requireFreeTarget(target, options.replaces);
  let held: Deno.FsFile | undefined | null;
  try {
    await Deno.mkdir(partial, { recursive: true });
    held = hold(partial);
    const result = await fill(partial);
    options.signal?.throwIfAborted();
    await requireFreeTarget(target, options.replaces);
    await syncFolder(partial);
    await swap(partial, path);
    await syncFolder(dirname(path));
    return result;
  } catch (error) {
    await removeIfExists(partial).catch(() => {}); // the first error is the one to report
    throw ioError("write folder", target, error);
  } finally {
    held?.close();
  }
}

/** Renames `partial` to `path`, moving what is there out of the way and back on failure. */
async function swap(partial: string, path: string): Promise<void> {
  const replaced = hiddenSibling(path, "replaced");
  using _hold = hold(path);
  let moved = true;
  try {
    rename(path, replaced);
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
    moved = false;
  }
  try {
    rename(partial, path);
  } catch (error) {
    if (moved) rename(replaced, path);
    throw error;
  }
  if (moved) await removeIfExists(replaced);
}

/** Makes new names in a folder survive a power cut; not every file system offers it. */
async function syncFolder(path: string): Promise<void> {
  try {
    using folder = await Deno.open(path);
    await folder.sync();
  } catch {
    // The files themselves are on the disk already; only their names may be late.
  }
}

/** Name of the file that a process at work in a folder locks. It holds the id of the process. */
export const LOCK_FILE = ".lock";

/**
 * Makes a folder, locks it for this process, and removes what killed processes left there.
 * @throws {EnvironmentError} when another process holds it
 */
export function lockFolder(path: string): Deno.FsFile {
  try {
    Deno.mkdirSync(path, { recursive: true });
    const lock = openLocked(join(path, LOCK_FILE), path, "`--out`");
    lock.truncateSync();
    lock.writeSync(new TextEncoder().encode(`${Deno.pid}\n`));
    clearLeftovers(path, true);
    return lock;
  } catch (error) {
    throw ioError("write folder", path, error);
  }
}
