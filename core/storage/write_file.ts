/**
 * Files that appear complete or not at all.
 *
 * A file is written under a hidden name beside its own, synced, and renamed. What a killed process
 * leaves is removed by the next, see `leftovers.ts`.
 */
import { ioError } from "../base/files.ts";
import { writeAllSync } from "../base/write_all.ts";
import { hiddenSibling } from "./leftovers.ts";
import { rename } from "./rename.ts";

/** A file that is being written; disposing of it before `commit` leaves no trace. */
export class NewFile implements Disposable {
  readonly #hidden: string;
  readonly #file: Deno.FsFile;
  #state: "open" | "closed" | "gone" = "open";

  /** Begins the file that is to have the name `path`. */
  constructor(readonly path: string) {
    this.#hidden = hiddenSibling(path, "partial");
    this.#file = Deno.openSync(this.#hidden, { write: true, createNew: true });
    try {
      this.#file.tryLockSync(true);
    } catch {
      // Without locks a leftover is recognised by the id of its process alone.
    }
  }

  /** Appends a text or bytes. */
  write(content: string | Uint8Array): void {
    const bytes = typeof content === "string" ? new TextEncoder().encode(content) : content;
    writeAllSync(this.#file, bytes);
  }

  /** Gives the file its name. `onWhole` is called before, with the path of the complete file. */
  commit(onWhole?: (path: string) => void): void {
    this.#file.syncSync();
    this.#close();
    onWhole?.(this.#hidden);
    rename(this.#hidden, this.path);
    this.#state = "gone";
  }

  [Symbol.dispose](): void {
    if (this.#state === "gone") return;
    this.#close();
    this.#state = "gone";
    Deno.removeSync(this.#hidden);
  }

  #close(): void {
    if (this.#state === "open") this.#file.close();
    this.#state = "closed";
  }
}

/** Writes a whole file. Readers see the old or the new one. */
export function writeFile(path: string, content: string | Uint8Array): void {
  try {
    using file = new NewFile(path);
    file.write(content);
    file.commit();
  } catch (error) {
    throw ioError("write", path, error);
  }
}

/** A JSON document as files have it. */
export function jsonText(value: unknown): string {
  return JSON.stringify(value, null, 2) + "\n";
}

/** Writes a JSON document. */
export function writeJson(path: string, value: unknown): void {
  writeFile(path, jsonText(value));
}

/** Writes a file of lines as they are made. */
export async function writeLines(
  path: string,
  lines: Iterable<string> | AsyncIterable<string>,
): Promise<void> {
  try {
    using file = new NewFile(path);
    for await (const line of lines) file.write(line);
    file.commit();
  } catch (error) {
    throw ioError("write", path, error);
  }
}
