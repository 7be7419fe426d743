/** Time that long work still takes, at the rate of its latest part. */

/** Work in tokens or bytes, where items take different times. */
export interface Work {
  readonly done: number;
  /** All of it, as far as is known by now. */
  readonly total: number;
}

/** Share of the time so far that the rate is taken from: the first steps of a run are slower. */
const RECENT = 0.5;
/** Reports that are kept of that time. */
const MOST_POINTS = 100;

/** Estimate that is renewed whenever work grows, and falls with the clock until then. */
export class TimeLeft {
  readonly #points: { readonly ms: number; readonly done: number }[];
  #estimate: { readonly ms: number; readonly leftMs: number } | undefined;

  /** Nothing is done at the start: work of earlier runs does not count. */
  constructor(private readonly startedMs: number) {
    this.#points = [{ ms: startedMs, done: 0 }];
  }

  /** Takes the work that is done at a time. */
  report(ms: number, { done, total }: Work): void {
    const points = this.#points, last = points.at(-1)!;
    if (done <= last.done || ms <= last.ms) return;
    const elapsed = ms - this.startedMs;
    while (points.length > 1 && points[1]!.ms <= ms - elapsed * RECENT) points.shift();
    const [first] = points;
    const leftMs = (ms - first!.ms) / (done - first!.done) * (total - done);
    this.#estimate = { ms, leftMs };
    if (ms - last.ms >= elapsed * RECENT / MOST_POINTS) points.push({ ms, done });
  }

  /** Seconds left at a time; undefined before the first report. */
  at(ms: number): number | undefined {
    if (this.#estimate === undefined) return undefined;
    return Math.max(0, this.#estimate.leftMs - (ms - this.#estimate.ms)) / 1000;
  }
}

/**
 * Work of answers that are written side by side, in tokens or characters of one of them. Their lengths are
 * not known before: the others are expected to become as long as those that have ended.
 */
export class AnswerWork {
  readonly #open = new Map<unknown, number>();
  #ended = 0;
  #length = 0;
  /** Answers side by side, at most. */
  #width = 1;
  #done = 0;

  /** `answers` are all of this run, each of at most `longest` tokens. */
  constructor(private readonly answers: number, private readonly longest = Infinity) {}

  /** Takes the length of an answer that has not ended. */
  grow(answer: unknown, length: number): void {
    const before = this.#open.get(answer) ?? 0;
    this.#open.set(answer, length);
    this.#width = Math.max(this.#width, this.#open.size);
    this.#done += (length - before) / this.#open.size;
  }

  /** Takes the length of one that has. */
  end(answer: unknown, length: number): void {
    this.grow(answer, length);
    this.#open.delete(answer);
    this.#ended++;
    this.#length += length;
  }

  /** All of it; undefined before an answer has ended. */
  get work(): Work | undefined {
    if (this.#ended === 0) return undefined;
    const mean = this.#length / this.#ended;
    const rests = Array.from(
      this.#open.values(),
      (length) => Math.min(this.longest - length, Math.max(mean / 4, mean - length)),
    );
    const longest = Math.max(0, ...rests);
    const coming = this.answers - this.#ended - rests.length;
    const share = (rests.reduce((sum, rest) => sum + rest, 0) + coming * mean) / this.#width;
    // The last answers do not end at once.
    const tail = mean / 2 * (1 - 1 / this.#width);
    const left = coming > 0 ? Math.max(longest, share + tail) : longest;
    return { done: this.#done, total: this.#done + left };
  }
}

/** Work of a file whose rows differ in length: its bytes, but for rows of an earlier run. */
export class FileWork {
  #skipped = 0;

  /** `total` is 0 for a stream. */
  constructor(private readonly total: number) {}

  /** Leaves out what is read by now, which takes no time. */
  skip(read: number): void {
    this.#skipped = read;
  }

  /** Work after `read` bytes; undefined for a stream. */
  at(read: number): Work | undefined {
    const total = this.total - this.#skipped;
    return this.total > 0 ? { done: read - this.#skipped, total } : undefined;
  }
}
