/** Display of what happens while the data of a run are opened. */
import type { DataReporter, SkippedFiles } from "../../../core/data/training_data.ts";
import type { Io } from "../../output/io.ts";
import { Progress } from "../../output/progress.ts";
import type { Work } from "../../output/time_left.ts";

/** Reports on stderr what happens while data are opened, with one progress line for all files. */
export class DataDisplay implements DataReporter, Disposable {
  #file: string | undefined;
  #tokens = 0;
  /** Tokens of the files before. */
  #before = 0;
  #progress: Progress | undefined;

  constructor(readonly io: Io) {}

  tokens(file: string, tokens: number, detail = "", work?: Required<Work>): void {
    if (file !== this.#file) {
      this.#before += this.#tokens;
      this.#file = file;
    }
    this.#tokens = tokens;
    this.#progress ??= new Progress(this.io, { label: "Tokenizing", unit: "tokens" });
    // As many tokens as the other bytes have.
    const done = this.#before + tokens, total = work && done * work.total / work.done;
    this.#progress.update(done, `${file} ${detail}`.trimEnd(), { done, total });
  }

  skipped({ empty, bad }: SkippedFiles): void {
    if (empty.length > 0) this.io.note(`left out ${filesText(empty, "empty")}`);
    if (bad.length > 0) this.io.note(`left out ${filesText(bad, "unreadable")}`);
  }

  tables([first, ...more]: readonly string[]): void {
    const others = more.length > 0 ? ` and ${more.length} more` : "";
    this.io.note(
      `reading tables as plain text: "${first}"${others}; rows are read from JSON lines and Parquet`,
    );
  }

  wait(host: string): void {
    this.io.note(`contacting ${host} …`);
  }

  commit(repository: string, commit: string): void {
    this.io.note(`Reading ${repository} at ${commit}`);
  }

  [Symbol.dispose](): void {
    this.#progress?.[Symbol.dispose]();
  }
}

/** `3 empty files, such as "a.txt"`. */
function filesText([first, ...more]: readonly string[], what: string): string {
  return more.length === 0
    ? `1 ${what} file: "${first}"`
    : `${more.length + 1} ${what} files, such as "${first}"`;
}
