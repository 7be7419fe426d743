/**
 * Renames that replace what has the name already.
 *
 * Where a file that another program has open cannot be replaced, the rename is tried again for about
 * a second: scanners and indexers open new files for a moment.
 */
import { PLATFORM } from "../base/platform/mod.ts";
import type { Platform } from "../base/platform/types.ts";

/** Milliseconds before each further attempt. */
const WAITS = [10, 20, 40, 80, 160, 320, 640];

/** Functions to rename and to wait; a test puts its own in place. */
export interface RenameHost {
  readonly platform: Platform;
  rename(from: string, to: string): void;
  wait(milliseconds: number): void;
}

const SYSTEM: RenameHost = {
  platform: PLATFORM,
  rename: (from, to) => Deno.renameSync(from, to),
  wait: (ms) => void Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms),
};

/** Gives a file or folder another name. */
export function rename(from: string, to: string, host: RenameHost = SYSTEM): void {
  for (const wait of WAITS) {
    try {
      return host.rename(from, to);
    } catch (error) {
      if (!host.platform.isPassing(error)) throw error;
    }
    host.wait(wait);
  }
  host.rename(from, to);
}
