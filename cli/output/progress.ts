/**
 * Progress on stderr: how far, how fast, how much longer.
 *
 * On a terminal one line is redrawn, at most ten times a second and the first time at once, so that
 * a slow start shows. Elsewhere, with `--no-progress` and under CI, a plain line comes per interval.
 * Silent under `-q`.
 */
import type { Io } from "./io.ts";
import { formatNumber } from "./table.ts";
import { TimeLeft, type Work } from "./time_left.ts";
import { cutToWidth, displayWidth } from "./wrap.ts";

/** Options of progress. */
export interface ProgressOptions {
  /** Name of the work: `Scoring`. */
  readonly label: string;
  /** Plural name of one item: `rows`. */
  readonly unit: string;
  readonly total?: number | undefined;
  /**
   * Items between plain lines at most, for `--log-every`: there is one for the first item, and where items
   * take long also after 10 s, and then at longer and longer times.
   */
  readonly everyItems?: number;
  /** Items that were done before, by an earlier run; they count as done and not in the rate. */
  readonly from?: number;
  /** Composes the line, the most important figures first: a narrow terminal has no room for the last. */
  readonly line?: (count: Count) => readonly string[];
}

/** Parts of a line. */
export interface Count {
  readonly done: number;
  readonly total: number | undefined;
  /** `3m05s left`; empty while nothing is known. */
  readonly left: string;
}

const REDRAW_MS = 100;
/** Between lines where nothing can be redrawn. */
const PLAIN_MS = 10_000;
const BAR_WIDTH = 20;
/** Between changes of the time left while nothing is done. */
const TICK_MS = 1000;

/** `45s`, `3m05s`, `2h07m`. */
export function formatDuration(seconds: number): string {
  const whole = Math.round(seconds);
  const two = (value: number) => String(value).padStart(2, "0");
  if (whole < 60) return `${whole}s`;
  if (whole < 3600) return `${Math.floor(whole / 60)}m${two(whole % 60)}s`;
  return `${Math.floor(whole / 3600)}h${two(Math.floor((whole % 3600) / 60))}m`;
}

/** One running count; open it with `using`, so that its line is gone whatever happens. */
export class Progress implements Disposable {
  readonly #redraws: boolean;
  readonly #silent: boolean;
  #startedMs: number;
  #shownMs: number;
  #shownItems: number;
  #done: number;
  #detail = "";
  #left: TimeLeft;
  #timer: ReturnType<typeof setInterval> | undefined;
  #lines = 0;

  constructor(readonly io: Io, readonly options: ProgressOptions) {
    // Rows on the same terminal are progress enough, and would be mixed with it.
    const showsRows = io.settings.streamsRows === true && io.isTerminal("stdout");
    this.#silent = io.settings.quiet > 0 || showsRows;
    this.#done = this.#shownItems = options.from ?? 0;
    this.#redraws = io.isTerminal("stderr") && io.settings.progress && !io.env("CI");
    this.#startedMs = this.#shownMs = io.system.now();
    this.#left = new TimeLeft(this.#startedMs);
    if (!this.#redraws || this.#silent) return;
    io.redraw(this.#text());
    this.#timer = setInterval(() => io.redraw(this.#text()), TICK_MS);
    Deno.unrefTimer(this.#timer as unknown as number);
  }

  /** Begins to count the time now, after what belongs to no item. */
  restart(): void {
    this.#startedMs = this.io.system.now();
    this.#left = new TimeLeft(this.#startedMs);
  }

  /**
   * Tells how many items are done; `detail` is added to the line, for instance a loss. The time left is that
   * of `work` of this run, where items differ.
   */
  update(done: number, detail = "", work?: Work): void {
    const { total, from = 0 } = this.options;
    this.#done = done;
    this.#detail = detail;
    if (this.#silent) return;
    const now = this.io.system.now();
    if (work) this.#left.report(now, work);
    else if (total !== undefined) {
      this.#left.report(now, { done: done - from, total: total - from });
    }
    if (this.#redraws) {
      if (now - this.#shownMs < REDRAW_MS) return;
      this.io.redraw(this.#text());
    } else {
      const { everyItems } = this.options;
      const pause = everyItems === undefined ? PLAIN_MS : PLAIN_MS * Math.min(6, 1 + this.#lines);
      const isFirst = everyItems !== undefined && this.#lines === 0 && done > from;
      const isFull = everyItems !== undefined && done - this.#shownItems >= everyItems;
      if (!isFirst && !isFull && now - this.#shownMs < pause) return;
      this.io.note(this.#text());
      this.#lines++;
      if (isFull) this.#shownItems = done;
    }
    this.#shownMs = now;
  }

  /** Removes the redrawn line; a long run leaves one line that says how it went. */
  [Symbol.dispose](): void {
    clearInterval(this.#timer);
    if (this.#silent) return;
    if (this.#redraws) this.io.redraw("");
    if (!this.#redraws && this.#lines === 0) return;
    const { label, unit } = this.options;
    const { items, seconds } = this.#elapsed();
    const name = items === 1 ? singular(unit) : unit;
    const line = [`${label}: ${items} ${name} in ${formatDuration(seconds)}`, ...this.#rate()];
    this.io.note(line.join(", "));
  }

  /** Items of this run and the seconds it has taken. */
  #elapsed(): { readonly items: number; readonly seconds: number } {
    const seconds = (this.io.system.now() - this.#startedMs) / 1000;
    return { items: this.#done - (this.options.from ?? 0), seconds };
  }

  /** Items a second, or seconds an item where that is more. */
  #rate(): string[] {
    const { items, seconds } = this.#elapsed();
    const { unit } = this.options;
    if (items === 0 || seconds <= 0) return [];
    if (items >= seconds) return [`${formatNumber(items / seconds)} ${unit}/s`];
    return [`${formatNumber(Number((seconds / items).toPrecision(3)))} s a ${singular(unit)}`];
  }

  #text(): string {
    const { total } = this.options;
    const seconds = this.#left.at(this.io.system.now());
    const left = seconds === undefined ? "" : `${formatDuration(seconds)} left`;
    const parts = this.options.line?.({ done: this.#done, total, left }) ?? this.#usualLine(left);
    const present = parts.filter((part) => part !== "");
    if (!this.#redraws) return present.join(", ");
    // A line that wraps could not be redrawn.
    const width = this.io.width() - 1;
    while (present.length > 1 && displayWidth(present.join(", ")) > width) present.pop();
    return cutToWidth(present.join(", "), width);
  }

  #usualLine(left: string): string[] {
    const { label, unit, total } = this.options;
    const count = total === undefined ? `${this.#done} ${unit}` : `${this.#done}/${total} ${unit}`;
    const filled = total ? Math.min(BAR_WIDTH, Math.floor(BAR_WIDTH * this.#done / total)) : 0;
    const bar = this.#redraws && total !== undefined && this.io.width() >= 80
      ? ` [${"=".repeat(filled).padEnd(BAR_WIDTH)}]`
      : "";
    return [`${label}:${bar} ${count}`, ...this.#rate(), left, this.#detail];
  }
}

function singular(unit: string): string {
  return unit.replace(/s$/, "");
}

/** Progress of reading tokens in several passes, such as long prompts or validation data. */
export class ReadingProgress implements Disposable {
  #progress: Progress | undefined;

  /** `label` names the work. */
  constructor(private readonly io: Io, private readonly label: string) {}

  /** Reports the number of tokens read. */
  update(done: number, total?: number): void {
    this.#progress ??= new Progress(this.io, { label: this.label, unit: "tokens", total });
    this.#progress.update(done);
  }

  /** Ends the line; the next report begins another. */
  end(): void {
    this.#progress?.[Symbol.dispose]();
    this.#progress = undefined;
  }

  [Symbol.dispose](): void {
    this.end();
  }
}
