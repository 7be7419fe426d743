/**
 * Renames that replace what has the name already.
 *
 * Where a file that another program has open cannot be replaced, the rename is tried again for about
 * a second: scanners and indexers open new files for a moment.
 */
import { writeAll, writeAllSync } from "../write_all.ts";
import { PLATFORM } from "./mod.ts";
import type { Platform } from "./types.ts";

/** Milliseconds before each further attempt. */
const WAITS = [10, 20, 40, 80, 160, 320, 640];

/** Functions to rename and to wait; a test puts its own in place. */
export interface RenameHost {
  readonly platform: Platform;
  rename(from: string, to: string): Promise<void>;
  wait(milliseconds: number): Promise<void>;
}

const SYSTEM: RenameHost = {
  platform: PLATFORM,
  rename: (from, to) => Deno.rename(from, to),
  wait: (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds)),
};

/** Gives a file or folder another name. */
export async function rename(from: string, to: string, host: RenameHost = SYSTEM): Promise<void> {
  for (const wait of WAITS) {
    try {
      return await host.rename(from, to);
    } catch (error) {
      if (!host.platform.isPassing(error)) throw error;
    }
    await host.wait(wait);
  }
  await host.rename(from, to);
}

/** Writes a file complete or not at all. Readers see the old or the new one. */
export async function replaceFile(path: string, content: string | Uint8Array): Promise<void> {
  const temporary = `${path}.${crypto.randomUUID()}`;
  const bytes = typeof content === "string" ? new TextEncoder().encode(content) : content;
  {
    using file = await Deno.open(temporary, { write: true, createNew: true });
    await writeAll(file, bytes);
    await file.sync();
  }
  await rename(temporary, path);
}

/** Like `replaceFile`; blocks the process while it waits. */
export function replaceFileSync(path: string, bytes: Uint8Array<ArrayBuffer>): void {
  const temporary = `${path}.${crypto.randomUUID()}`;
  {
    using file = Deno.openSync(temporary, { write: true, createNew: true });
    writeAllSync(file, bytes);
    file.syncSync();
  }
  renameSync(temporary, path);
}

/** Like `rename`; blocks the process while it waits. */
export function renameSync(from: string, to: string): void {
  for (const wait of WAITS) {
    try {
      return Deno.renameSync(from, to);
    } catch (error) {
      if (!PLATFORM.isPassing(error)) throw error;
    }
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, wait);
  }
  Deno.renameSync(from, to);
}
