/** Progress while a long prompt is read; a prompt of one chunk has none. */
import type { Io } from "./io.ts";
import { Progress } from "./progress.ts";

/** Shows one prompt after the other. */
export class PrefillProgress implements Disposable {
  #progress: Progress | undefined;

  constructor(private readonly io: Io) {}

  /** Reports the number of prompt tokens read. */
  update(done: number, total: number): void {
    this.#progress ??= new Progress(this.io, { label: "Reading prompt", unit: "tokens", total });
    this.#progress.update(done);
  }

  /** Ends the line, when the first token is there. */
  end(): void {
    this.#progress?.[Symbol.dispose]();
    this.#progress = undefined;
  }

  [Symbol.dispose](): void {
    this.end();
  }
}
