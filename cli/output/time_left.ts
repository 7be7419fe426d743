/** Rate of long work, and what answers of unknown length still need. */

/** Work in one unit. */
export interface Work {
  readonly done: number;
  /** All of it, as far as is known by now. */
  readonly total?: number | undefined;
}

/**
 * Share of the time so far that the rate is taken from, since the first steps of a run are slower; and the
 * least share of the work, since one report may be half of it and the next a thousandth.
 */
const RECENT = 0.5, LEAST_WORK = 0.1;
/** Reports that are kept of that time. */
const MOST_POINTS = 100;

/** Rate of the latest part of some work. */
export class Rate {
  readonly #points: { readonly ms: number; readonly done: number }[];
  #last: { readonly ms: number; readonly perMs: number } | undefined;

  /** `before` was done by an earlier run or in a time that does not count. */
  constructor(private readonly startedMs: number, private readonly before = 0) {
    this.#points = [{ ms: startedMs, done: before }];
  }

  /** Units a second; undefined before the first report. */
  get perSecond(): number | undefined {
    return this.#last && this.#last.perMs * 1000;
  }

  /** Takes what is done at a time. */
  report(ms: number, done: number): void {
    const points = this.#points, last = points.at(-1)!;
    if (done <= last.done || ms <= last.ms) return;
    const recent = (ms - this.startedMs) * RECENT;
    const isEnough = (from: { readonly ms: number; readonly done: number }) =>
      from.ms <= ms - recent && done - from.done >= LEAST_WORK * (done - this.before);
    while (points.length > 1 && isEnough(points[1]!)) points.shift();
    const [first] = points;
    this.#last = { ms, perMs: (done - first!.done) / (ms - first!.ms) };
    if (ms - last.ms >= recent / MOST_POINTS) points.push({ ms, done });
  }

  /** Seconds that as many units take, less those since the last report. */
  secondsFor(units: number, ms: number): number | undefined {
    return this.#last && (units / this.#last.perMs - (ms - this.#last.ms)) / 1000;
  }
}

/**
 * Work of answers of unknown length in tokens, `width` of them side by side. All are expected to be as long as
 * those that have ended, and those under way to be half done.
 */
export class AnswerWork {
  #written = 0;
  #ended = 0;

  constructor(private readonly answers: number, private readonly width: number) {}

  /** Takes a token of some answer. */
  grow(): void {
    this.#written++;
  }

  /** Takes the end of an answer. */
  end(): void {
    this.#ended++;
  }

  /** Its total is known once an answer has ended, unless their number is not. */
  get work(): Work {
    if (this.#ended === 0 || this.answers === Infinity) return { done: this.#written };
    const left = this.answers - this.#ended;
    const length = this.#written / (this.#ended + Math.min(this.width, left) / 2);
    // As if those under way had just begun: the last ones have no others beside them.
    return { done: this.#written, total: this.#written + left * length };
  }
}
