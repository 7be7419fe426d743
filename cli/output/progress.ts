/**
 * Progress on stderr: how far, how much longer, how fast.
 *
 * On a terminal one line is redrawn, at most ten times a second and the first time at once, so that
 * a slow start shows. Elsewhere, with `--no-progress` and under CI, a plain line comes per interval.
 * Silent under `-q`.
 */
import type { Io } from "./io.ts";
import { formatNumber } from "./table.ts";
import { Rate, type Work } from "./time_left.ts";
import { cutToWidth, displayWidth } from "./wrap.ts";

/** Options of progress. */
export interface ProgressOptions {
  /** Name of the work: `Scoring`. */
  readonly label: string;
  /** Plural name of one item: `rows`. */
  readonly unit: string;
  readonly total?: number | undefined;
  /** Unit of the rate and of the work that `update` is told, where items differ too much: `tokens`. */
  readonly workUnit?: string;
  /** Time at which the work began, where that was before. */
  readonly sinceMs?: number | undefined;
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
/** Before the first line, and between lines, where nothing can be redrawn. */
const FIRST_MS = 2000, PLAIN_MS = 10_000;
/** Columns inside of the bar, and for what the line has besides it: its frame, `, 59m59s left`. */
const BAR_WIDTH = 20, LEFT_WIDTH = 20;
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
  #rate: Rate;
  #work: Work | undefined;
  #timer: ReturnType<typeof setInterval> | undefined;
  #lines = 0;

  constructor(readonly io: Io, readonly options: ProgressOptions) {
    // Rows on the same terminal are progress enough, and would be mixed with it.
    const showsRows = io.settings.streamsRows === true && io.isTerminal("stdout");
    this.#silent = io.settings.quiet > 0 || showsRows;
    this.#done = this.#shownItems = options.from ?? 0;
    this.#redraws = io.isTerminal("stderr") && io.settings.progress && !io.env("CI");
    this.#shownMs = io.system.now();
    this.#startedMs = options.sinceMs ?? this.#shownMs;
    this.#rate = this.#newRate();
    if (!this.#redraws || this.#silent) return;
    io.redraw(this.#text());
    this.#timer = setInterval(() => io.redraw(this.#text()), TICK_MS);
    Deno.unrefTimer(this.#timer as unknown as number);
  }

  /** Begins to count the time now, after what belongs to no item. */
  restart(): void {
    this.#startedMs = this.io.system.now();
    this.#rate = this.#newRate();
  }

  #newRate(): Rate {
    const { workUnit, from } = this.options;
    return new Rate(this.#startedMs, workUnit === undefined ? from : 0);
  }

  /**
   * Tells how many items are done; `detail` is added to the line, for instance a loss. The time left is that
   * of `work`, items unless given; `total` of it may be an estimate.
   */
  update(done: number, detail = "", work?: Work): void {
    const { total, workUnit } = this.options;
    this.#done = done;
    this.#detail = detail;
    if (this.#silent) return;
    const now = this.io.system.now();
    if (workUnit === undefined) work ??= { done, total };
    this.#work = work ?? this.#work;
    if (work !== undefined) this.#rate.report(now, work.done);
    if (this.#redraws) {
      if (now - this.#shownMs < REDRAW_MS) return;
      this.io.redraw(this.#text());
    } else if (this.#isDue(now)) {
      this.io.note(this.#text());
      this.#lines++;
    } else return;
    this.#shownMs = now;
  }

  /** Returns whether it is time for a plain line. */
  #isDue(now: number): boolean {
    const { everyItems, from = 0 } = this.options;
    const waited = now - this.#shownMs;
    if (everyItems === undefined) return waited >= (this.#lines === 0 ? FIRST_MS : PLAIN_MS);
    const isFull = this.#done - this.#shownItems >= everyItems;
    if (isFull) this.#shownItems = this.#done;
    const isFirst = this.#lines === 0 && this.#done > from;
    return isFull || isFirst || waited >= PLAIN_MS * Math.min(6, 1 + this.#lines);
  }

  /** Removes the redrawn line; a long run leaves one line that says how it went. */
  [Symbol.dispose](): void {
    clearInterval(this.#timer);
    if (this.#silent) return;
    if (this.#redraws) this.io.redraw("");
    if (!this.#redraws && this.#lines === 0) return;
    const { label, unit, from = 0 } = this.options;
    const items = this.#done - from;
    const seconds = (this.io.system.now() - this.#startedMs) / 1000;
    const name = items === 1 ? singular(unit) : unit;
    const line = `${label}: ${amount(items, unit)} ${name} in ${formatDuration(seconds)}`;
    this.io.note([line, ...rateText(items / seconds, unit)].join(", "));
  }

  #text(): string {
    const { total, unit, workUnit = unit } = this.options;
    const left = this.#leftText(), rate = rateText(this.#rate.perSecond ?? 0, workUnit);
    const parts = this.options.line?.({ done: this.#done, total, left }) ??
      [this.#countText(), left, ...rate, this.#detail];
    const present = parts.filter((part) => part !== "");
    if (!this.#redraws) return present.join(", ");
    // A line that wraps could not be redrawn.
    const width = this.io.width() - 1;
    while (present.length > 1 && displayWidth(present.join(", ")) > width) present.pop();
    return cutToWidth(present.join(", "), width);
  }

  /** It is never 0 before the end, however long the last part takes. */
  #leftText(): string {
    const { done = 0, total } = this.#work ?? {};
    if (total === undefined) return "";
    const units = Math.max(0, total - done);
    const seconds = this.#rate.secondsFor(units, this.io.system.now());
    if (seconds === undefined) return "";
    return `${formatDuration(Math.max(units > 0 ? 1 : 0, seconds))} left`;
  }

  #countText(): string {
    const { label, unit, total } = this.options;
    const of = total === undefined ? "" : `/${amount(total, unit)}`;
    const count = ` ${amount(this.#done, unit)}${of} ${unit}`;
    const needed = Math.max(80, displayWidth(label + count) + BAR_WIDTH + LEFT_WIDTH);
    if (!this.#redraws || !total || this.io.width() < needed) return `${label}:${count}`;
    const filled = Math.min(BAR_WIDTH, Math.floor(BAR_WIDTH * this.#done / total));
    return `${label}: [${"=".repeat(filled).padEnd(BAR_WIDTH)}]${count}`;
  }
}

function singular(unit: string): string {
  return unit.replace(/s$/, "");
}

/** Items as they are; megabytes rounded, but small ones not to 0. */
function amount(value: number, unit: string): string {
  if (unit !== "MB") return String(value);
  if (value >= 10) return value.toFixed();
  return value >= 0.1 ? value.toFixed(1) : String(Number(value.toPrecision(1)));
}

/** Items a second, or seconds an item where that is more; none where nothing is done. */
function rateText(perSecond: number, unit: string): string[] {
  if (!(perSecond > 0 && perSecond < Infinity)) return [];
  const short = (value: number) => formatNumber(Number(value.toPrecision(3)));
  if (perSecond >= 1 || unit === "MB") return [`${short(perSecond)} ${unit}/s`];
  return [`${short(1 / perSecond)} s a ${singular(unit)}`];
}

/** Progress of reading tokens in several passes, such as long prompts or validation data. */
export class ReadingProgress implements Disposable {
  #progress: Progress | undefined;
  /** The first pass begins now; others with their first report. */
  #sinceMs: number | undefined;

  /** `label` names the work. */
  constructor(private readonly io: Io, private readonly label: string) {
    this.#sinceMs = io.system.now();
  }

  /** Reports the number of tokens read. */
  update(done: number, total?: number): void {
    const options = { label: this.label, unit: "tokens", total, sinceMs: this.#sinceMs };
    this.#progress ??= new Progress(this.io, options);
    this.#progress.update(done);
  }

  /** Ends the line once all is read; the next report begins another. */
  end(): void {
    const { total } = this.#progress?.options ?? {};
    if (total !== undefined) this.#progress!.update(total);
    this[Symbol.dispose]();
  }

  [Symbol.dispose](): void {
    this.#progress?.[Symbol.dispose]();
    this.#progress = this.#sinceMs = undefined;
  }
}
