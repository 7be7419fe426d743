/**
 * Progress on stderr: how far, how fast, how much longer.
 *
 * On a terminal one line is redrawn, at most ten times a second and the first time at once, so that
 * a slow start shows. Elsewhere, with `--no-progress` and under CI, a plain line comes per interval.
 * Silent under `-q`.
 */
import type { Io } from "./io.ts";
import { formatNumber } from "./table.ts";

/** What is counted. */
export interface ProgressOptions {
  /** What is being done: `Scoring`. */
  readonly label: string;
  /** Plural name of one item: `rows`. */
  readonly unit: string;
  readonly total?: number | undefined;
  /** Seconds between plain lines. */
  readonly everySeconds?: number;
  /** Items between plain lines; replaces `everySeconds`. For `--log-every`. */
  readonly everyItems?: number;
}

const REDRAW_MS = 100;
const BAR_WIDTH = 20;

/** `45s`, `3m05s`, `2h07m`. */
export function formatDuration(seconds: number): string {
  const whole = Math.round(seconds);
  const two = (value: number) => String(value).padStart(2, "0");
  if (whole < 60) return `${whole}s`;
  if (whole < 3600) return `${Math.floor(whole / 60)}m${two(whole % 60)}s`;
  return `${Math.floor(whole / 3600)}h${two(Math.floor((whole % 3600) / 60))}m`;
}

/** One running count. */
export class Progress implements Disposable {
  readonly #redraws: boolean;
  readonly #silent: boolean;
  readonly #startedMs: number;
  #shownMs: number;
  #shownItems = 0;
  #done = 0;
  #lines = 0;

  /** See `startProgress`. */
  constructor(readonly io: Io, readonly options: ProgressOptions) {
    this.#silent = io.settings.quiet > 0;
    this.#redraws = io.isTerminal("stderr") && io.settings.progress && !io.env("CI");
    this.#startedMs = this.#shownMs = io.system.now();
    if (this.#redraws && !this.#silent) io.redraw(this.#text(""));
  }

  /** Tells how many items are done; `detail` is added to the line, for instance a loss. */
  update(done: number, detail = ""): void {
    this.#done = done;
    if (this.#silent) return;
    const now = this.io.system.now();
    if (this.#redraws) {
      if (now - this.#shownMs < REDRAW_MS) return;
      this.io.redraw(this.#text(detail));
    } else {
      const { everyItems, everySeconds = 10 } = this.options;
      const due = everyItems === undefined
        ? now - this.#shownMs >= everySeconds * 1000
        : done - this.#shownItems >= everyItems;
      if (!due) return;
      this.io.note(this.#text(detail));
      this.#lines++;
    }
    this.#shownMs = now;
    this.#shownItems = done;
  }

  /** Removes the redrawn line; a long run leaves one line that says how it went. */
  [Symbol.dispose](): void {
    if (this.#silent) return;
    if (this.#redraws) this.io.redraw("");
    const seconds = (this.io.system.now() - this.#startedMs) / 1000;
    if (!this.#redraws && this.#lines === 0) return;
    const { label, unit } = this.options;
    this.io.note(`${label}: ${this.#done} ${unit} in ${formatDuration(seconds)}${this.#rate()}`);
  }

  #rate(): string {
    const seconds = (this.io.system.now() - this.#startedMs) / 1000;
    if (this.#done === 0 || seconds <= 0) return "";
    return `, ${formatNumber(this.#done / seconds)} ${this.options.unit}/s`;
  }

  #text(detail: string): string {
    const { label, unit, total } = this.options;
    const seconds = (this.io.system.now() - this.#startedMs) / 1000;
    const count = total === undefined ? `${this.#done} ${unit}` : `${this.#done}/${total} ${unit}`;
    const left = total !== undefined && this.#done > 0
      ? `, ${formatDuration(seconds / this.#done * (total - this.#done))} left`
      : "";
    const filled = total ? Math.min(BAR_WIDTH, Math.floor(BAR_WIDTH * this.#done / total)) : 0;
    const bar = this.#redraws && total !== undefined
      ? ` [${"=".repeat(filled).padEnd(BAR_WIDTH)}]`
      : "";
    const line = `${label}:${bar} ${count}${this.#rate()}${left}${detail && `, ${detail}`}`;
    // A line that wraps could not be redrawn.
    return this.#redraws ? line.slice(0, this.io.width() - 1) : line;
  }
}

/** Starts a count; open it with `using`, so that its line is gone whatever happens. */
export function startProgress(io: Io, options: ProgressOptions): Progress {
  return new Progress(io, options);
}
