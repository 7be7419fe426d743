/**
 * One progress line for all evaluations of a comparison.
 *
 * Each runs in a process of its own that keeps its samples in a file as they come; the lines of that
 * file are counted while it runs.
 */
import type { Io } from "../../output/io.ts";
import { type Progress, startProgress } from "../../output/progress.ts";

const POLL_MS = 500;

/** Samples of all evaluations, those of earlier ones and of the one that runs. */
export class OverallProgress implements Disposable {
  readonly #progress: Progress;
  #before = 0;
  #current = 0;

  /** `total` samples are expected in all. */
  constructor(io: Io, total: number) {
    this.#progress = startProgress(io, { label: "Comparing", unit: "samples", total });
  }

  /** Waits for an evaluation of `samples` samples, kept in `path` if anywhere. */
  async during<T>(
    work: Promise<T>,
    samples: number,
    label: string,
    path?: string,
  ): Promise<T> {
    const show = () => this.#progress.update(this.#before + this.#current, label);
    const timer = setInterval(() => {
      this.#current = path === undefined ? 0 : Math.min(samples, countLines(path));
      show();
    }, POLL_MS);
    try {
      return await work;
    } finally {
      clearInterval(timer);
      this.#before += samples;
      this.#current = 0;
      show();
    }
  }

  [Symbol.dispose](): void {
    this.#progress[Symbol.dispose]();
  }
}

/** Lines of a file that another process writes; none before it exists. */
function countLines(path: string): number {
  try {
    const bytes = Deno.readFileSync(path);
    let lines = 0;
    for (const byte of bytes) if (byte === 10) lines++;
    return lines;
  } catch {
    return 0; // it appears with the first sample
  }
}
