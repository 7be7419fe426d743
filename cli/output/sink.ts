/**
 * Target of a result: stdout, or a file that appears complete or not at all.
 *
 * Whether a file may be replaced is asked at the start, before anything is computed. Devices and pipes
 * are written to as they are.
 */
import { dirname, sep } from "node:path";
import { UsageError } from "../../core/base/errors.ts";
import { writeAllSync } from "../../core/base/write_all.ts";
import { clearLeftovers } from "../../core/storage/leftovers.ts";
import { NewFile } from "../../core/storage/write_file.ts";
import { guardTerminal } from "./clean.ts";
import type { Invocation } from "./document.ts";
import { ClosedPipeError, type Io } from "./io.ts";
import { endBy, onEndingSignals } from "./signals.ts";
import { orWriteError, writeError } from "./write_error.ts";

/** Takes text; nothing is final before `commit`, and disposing without it leaves no trace. */
export interface Sink extends Disposable {
  /** True if a person reads it on a terminal as it comes. */
  readonly isTerminal: boolean;
  write(text: string): void;
  commit(): void;
}

/**
 * Opens `path`, or stdout for `-` and undefined. `onWhole` is called with the path of a file that is whole
 * before it gets its name.
 */
export function openSink(
  io: Io,
  path: string | undefined,
  overwrite: boolean,
  onWhole?: (path: string) => void,
): Sink {
  if (path === undefined || path === "-") {
    return {
      isTerminal: io.isTerminal("stdout"),
      write: (text) => io.write(text),
      commit: () => {},
      [Symbol.dispose]() {},
    };
  }
  if (isDevice(path)) return openDevice(path);
  return openFileSink(path, overwrite, onWhole);
}

/** Returns whether a path is something that exists and is neither file nor folder: a device or a pipe. */
export function isDevice(path: string): boolean {
  try {
    const { isFile, isDirectory } = Deno.statSync(path);
    return !isFile && !isDirectory;
  } catch {
    return false;
  }
}

/** Returns whether there is anything at a path, even a link to nothing. */
export function exists(path: string): boolean {
  try {
    Deno.lstatSync(path);
    return true;
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return false;
    throw writeError(`"${path}"`, error);
  }
}

/** Returns whether a path is that of a folder, or can only be. */
function isFolder(path: string): boolean {
  try {
    return path.endsWith("/") || path.endsWith(sep) || Deno.statSync(path).isDirectory;
  } catch {
    return false; // a link to nothing
  }
}

/** Refuses the path of a folder, one in no folder, and one that exists and must not be replaced. */
export function checkTarget(path: string, overwrite: boolean): void {
  if (isDevice(path)) return;
  if (isFolder(path)) throw new UsageError(`"${path}" is a folder, not a file`);
  orWriteError(path, () => Deno.statSync(dirname(path)));
  if (exists(path) && !overwrite) {
    throw new UsageError(`"${path}" already exists`, {
      hints: ["pass --overwrite, or another name"],
    });
  }
}

/** Opens a file; fails at once when `path` exists and must not be replaced. */
function openFileSink(path: string, overwrite: boolean, onWhole?: (path: string) => void): Sink {
  checkTarget(path, overwrite);
  clearLeftovers(dirname(path));
  const file = orWriteError(path, () => new NewFile(path));
  const release = onSignals(() => file[Symbol.dispose]());
  return {
    isTerminal: false,
    write: (text) => orWriteError(path, () => file.write(text)),
    commit() {
      release();
      orWriteError(path, () => file.commit(onWhole));
    },
    [Symbol.dispose]() {
      release();
      file[Symbol.dispose]();
    },
  };
}

function openDevice(path: string): Sink {
  const file = orWriteError(path, () => Deno.openSync(path, { write: true }));
  let isOpen = true;
  const close = () => {
    if (isOpen) file.close();
    isOpen = false;
  };
  const isTerminal = file.isTerminal();
  const write = (text: string) => writeAll(file, isTerminal ? guardTerminal(text) : text, path);
  return { isTerminal, write, commit: close, [Symbol.dispose]: close };
}

function writeAll(file: Deno.FsFile, text: string, path: string): void {
  try {
    writeAllSync(file, new TextEncoder().encode(text));
  } catch (error) {
    if (error instanceof Deno.errors.BrokenPipe) {
      throw new ClosedPipeError(`"${path}" was closed`, { cause: error });
    }
    throw writeError(`"${path}"`, error);
  }
}

/** Cleans up before a signal ends the program as if there were no listener. */
function onSignals(cleanUp: () => void): () => void {
  const release = onEndingSignals((signal) => {
    cleanUp();
    release();
    endBy(signal);
  });
  return release;
}

/** Writes a whole text to `path`, or to stdout for `-` and undefined. */
export function writeText(io: Io, text: string, path: string | undefined, overwrite: boolean) {
  using sink = openSink(io, path, overwrite);
  sink.write(text);
  sink.commit();
}

/** A figure that a command writes besides its result. */
export interface Figure extends Disposable {
  /** Writes the whole figure, and reports that it did. */
  write(text: string): void;
}

/** Refuses stdout for a figure, and a file that exists. */
export function checkFigure(
  path: string | undefined,
  { overwrite }: Pick<Invocation, "overwrite">,
): void {
  if (path === undefined) return;
  if (path === "-") {
    throw new UsageError("a figure cannot be written to stdout", { hints: ["name a file for it"] });
  }
  checkTarget(path, overwrite);
}

/** Opens the file of a figure, if one is asked for and `checkFigure` has passed it. */
export function openFigure(
  io: Io,
  path: string | undefined,
  overwrite: boolean,
): Figure | undefined {
  if (path === undefined) return undefined;
  const sink = openSink(io, path, overwrite);
  return {
    write(text) {
      sink.write(text);
      sink.commit();
      io.note(`wrote ${path}`);
    },
    [Symbol.dispose]: () => sink[Symbol.dispose](),
  };
}
