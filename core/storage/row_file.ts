/** Files of rows, one a line, that grow while a command works. */
import { ioError, readRegularFile, statIfExists, utf8Text } from "../base/files.ts";
import { writeAllSync } from "../base/write_all.ts";

/** A file of rows; whatever ends the process, rows that were appended stay. */
export class RowFile implements Disposable {
  #file: Deno.FsFile | undefined;

  constructor(readonly path: string) {}

  /** Returns the lines that are there. One that a killed process cut off is removed from the file. */
  async read(): Promise<string> {
    if (!await statIfExists(this.path)) return "";
    const bytes = await readRegularFile(this.path), end = bytes.lastIndexOf(10) + 1;
    const text = utf8Text(bytes.subarray(0, end), `"${this.path}"`);
    if (end < bytes.length) await Deno.truncate(this.path, end);
    return text;
  }

  /** Appends lines; the system has them when this returns. */
  append(lines: string): void {
    try {
      this.#file ??= Deno.openSync(this.path, { append: true, create: true });
      writeAllSync(this.#file, new TextEncoder().encode(lines));
    } catch (error) {
      throw ioError("write", this.path, error);
    }
  }

  [Symbol.dispose](): void {
    this.#file?.close();
  }
}
