/**
 * Where a result goes: stdout, or a file that appears complete or not at all.
 *
 * A file is written under a temporary name beside its target, synced, then renamed. Whether the
 * target may be replaced is asked at the start, before anything is computed.
 */
import { EnvironmentError, UsageError } from "../../core/base/errors.ts";
import type { Io } from "./io.ts";
import { onEndingSignals } from "./signals.ts";

/** Takes text; nothing is final before `commit`. */
export interface Sink {
  /** Whether a person reads it on a terminal as it comes. */
  readonly isTerminal: boolean;
  write(text: string): void;
  commit(): void;
  /** Leaves no trace; does nothing after `commit`. */
  abandon(): void;
}

/** Opens `path`, or stdout for `-` and undefined. */
export function openSink(io: Io, path: string | undefined, overwrite: boolean): Sink {
  if (path === undefined || path === "-") {
    return {
      isTerminal: io.isTerminal("stdout"),
      write: (text) => io.write(text),
      commit: () => {},
      abandon: () => {},
    };
  }
  return openFileSink(path, overwrite);
}

function exists(path: string): boolean {
  try {
    Deno.lstatSync(path);
    return true;
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return false;
    throw error;
  }
}

/** Opens a file; fails at once when `path` exists and must not be replaced. */
function openFileSink(path: string, overwrite: boolean): Sink {
  const present = exists(path);
  if (present && !overwrite) {
    throw new UsageError(`Cannot write "${path}": found an existing file, expected none`, {
      hints: ["pass --overwrite to replace it"],
    });
  }
  if (present && Deno.statSync(path).isDirectory) {
    throw new UsageError(`Cannot write "${path}": found a folder, expected a file name`);
  }
  const slash = Math.max(path.lastIndexOf("/"), path.lastIndexOf("\\")) + 1;
  const temporary = `${path.slice(0, slash)}.${path.slice(slash)}.${Deno.pid}.tmp`;
  const file = create(temporary, path);
  const encoder = new TextEncoder();
  let open = true;
  const release = onSignals(() => Deno.removeSync(temporary));
  return {
    isTerminal: false,
    write(text) {
      const bytes = encoder.encode(text);
      for (let written = 0; written < bytes.length;) {
        written += file.writeSync(bytes.subarray(written));
      }
    },
    commit() {
      open = false;
      release();
      file.syncSync();
      file.close();
      Deno.renameSync(temporary, path);
    },
    abandon() {
      if (!open) return;
      open = false;
      release();
      file.close();
      Deno.removeSync(temporary);
    },
  };
}

/** Cleans up before a signal ends the program as if there were no listener. */
function onSignals(cleanUp: () => void): () => void {
  const release = onEndingSignals((signal) => {
    cleanUp();
    release();
    Deno.kill(Deno.pid, signal);
  });
  return release;
}

function create(temporary: string, path: string): Deno.FsFile {
  try {
    return Deno.openSync(temporary, { write: true, create: true, truncate: true });
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) {
      throw new UsageError(
        `Cannot write "${path}": found no such folder, expected an existing one`,
      );
    }
    if (error instanceof Deno.errors.PermissionDenied) {
      throw new EnvironmentError(`Cannot write "${path}": found no permission to write there`, {
        hints: ["check the owner and mode of its folder, or name another with --out"],
      });
    }
    throw error;
  }
}

/** Writes a whole text to `path`, or to stdout for `-` and undefined. */
export function writeText(io: Io, text: string, path: string | undefined, overwrite: boolean) {
  const sink = openSink(io, path, overwrite);
  try {
    sink.write(text);
    sink.commit();
  } finally {
    sink.abandon();
  }
}
