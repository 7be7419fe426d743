/** Locks of files and folders. The system releases them when a process ends, however it ends. */
import { EnvironmentError } from "../base/errors.ts";

/**
 * Locks a file or folder under whatever name it will have. Undefined where another process holds it; null
 * where it cannot be locked.
 */
export function hold(path: string): Deno.FsFile | undefined | null {
  let handle: Deno.FsFile | undefined;
  try {
    handle = Deno.openSync(path);
    if (handle.tryLockSync(true)) return handle;
  } catch {
    handle?.close();
    return null;
  }
  handle.close();
}

/**
 * Opens a file, which is made if missing, and locks it.
 * @throws {EnvironmentError} when another process holds it, which is named where the file holds its id;
 *   `used` is what that process uses, `flag` the one that names another
 */
export function openLocked(path: string, used: string, flag: string): Deno.FsFile {
  const file = Deno.openSync(path, { read: true, write: true, create: true });
  if (file.tryLockSync(true)) return file;
  file.close();
  const holder = /^\d+$/.exec(textOf(path).trim());
  throw new EnvironmentError(
    `another process${holder ? ` (pid ${holder})` : ""} is using "${used}"`,
    { hints: [`wait for it, or choose another ${flag}`] },
  );
}

/** Some systems refuse to read what another process has locked. */
function textOf(path: string): string {
  try {
    return Deno.readTextFileSync(path);
  } catch {
    return "";
  }
}
