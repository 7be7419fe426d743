/**
 * Chooses how many streams an answer gets: the most whose predicted times stay within the targets.
 *
 * Predictions come from a table of step times by streams and batch, exponential averages of measured
 * ones. Entries that have not been measured for long follow the speed of those that are.
 */

/** Longest times of an answer, in milliseconds. */
export interface Targets {
  /** Time per output token. */
  readonly tpotMs: number;
  /** Time to the first token. */
  readonly ttftMs: number;
}

/** Work: sequences running or waiting, and their prompt tokens that are still to be prefilled. */
export interface Load {
  readonly sequences: number;
  readonly promptTokens: number;
}

export interface StreamsOptions {
  readonly targets: Targets;
  /** Sequences decoded together, per number of streams. */
  readonly maxBatch: number;
  /** Milliseconds; differences count. */
  readonly now?: () => number;
}

interface Entry {
  readonly ms: number;
  /** That of the machine when `ms` was measured. */
  readonly slowness: number;
  /** Milliseconds at slowness 1; undefined after one measurement, which prepared the program. */
  readonly base: number | undefined;
}

/** Part of a new measurement in an average. */
const WEIGHT = 0.2;

/** Weight of a new arrival in the mean load that arrivals find, and the time after which that is forgotten. */
const ARRIVAL_WEIGHT = 1 / 32, MEMORY_MS = 30_000;

/** Steps towards the batch that a rate of tokens makes, which grows from one to the next. */
const ITERATIONS = 16;

/** Length of a prefill chunk in milliseconds; a round of decode steps comes between two. */
const CHUNK_MS = 250;

export class StreamsByLoad {
  /** By streams, then batch. */
  readonly #steps = new Map<number, Map<number, Entry>>();
  /** Milliseconds per prompt token, by streams. */
  readonly #prefills = new Map<number, Entry>();
  /** Mean ratio of measurements to the bases of their entries. */
  #slowness = 1;
  /** Tokens per millisecond of the sequences that requests found; a mean. */
  #found = 0;
  /** Mean milliseconds between two requests. */
  #gapMs = Infinity;
  #lastArrival = -Infinity;

  constructor(private readonly options: StreamsOptions) {}

  /** Takes the time of a decode step. */
  observe(streams: number, batch: number, ms: number): void {
    const entries = this.#entries(streams);
    entries.set(batch, this.#averaged(entries.get(batch), ms));
  }

  /** Records the time of a prefill chunk of `tokens` tokens. */
  observePrefill(streams: number, tokens: number, ms: number): void {
    const entry = this.#averaged(this.#prefills.get(streams), ms / Math.max(1, tokens));
    this.#prefills.set(streams, entry);
  }

  /** Takes a step time from before the first request, of which the shortest counts. */
  seed(streams: number, batch: number, ms: number): void {
    const entries = this.#entries(streams);
    entries.set(batch, seeded(entries.get(batch), ms));
  }

  /** The same of a prefill chunk. */
  seedPrefill(streams: number, tokens: number, ms: number): void {
    this.#prefills.set(streams, seeded(this.#prefills.get(streams), ms / tokens));
  }

  /** Counts a request that comes to this load. */
  arrive(load: ReadonlyMap<number, Load>): void {
    const now = this.options.now?.() ?? performance.now();
    let found = 0;
    for (const [streams, { sequences }] of load) {
      const batch = Math.min(sequences, this.options.maxBatch);
      if (batch > 0) found += batch / (this.stepMs(streams, batch) || Infinity);
    }
    const gapMs = now - this.#lastArrival;
    const weight = Math.max(ARRIVAL_WEIGHT, 1 - Math.exp(-gapMs / MEMORY_MS));
    this.#found += weight * (found - this.#found);
    this.#gapMs = this.#gapMs === Infinity ? gapMs : this.#gapMs + weight * (gapMs - this.#gapMs);
    this.#lastArrival = now;
  }

  /** The most of the available streams that stay within the targets; the fewest if none do. */
  choose(available: readonly number[], wanted: Load, load: ReadonlyMap<number, Load>): number {
    const descending = available.toSorted((a, b) => b - a);
    return descending.find((streams) => this.#fits(streams, wanted, load)) ?? descending.at(-1)!;
  }

  /** Predicted milliseconds of a decode step; 0 while nothing is known. */
  stepMs(streams: number, batch: number): number {
    const entries = this.#steps.get(streams);
    if (!entries) return this.#scaled(this.#steps, streams, (known) => this.stepMs(known, batch));
    const known = [...entries.keys()];
    const below = Math.max(...known.filter((size) => size <= batch));
    const above = Math.min(...known.filter((size) => size >= batch));
    const at = (size: number) => this.#current(entries.get(size)!);
    if (below === -Infinity) return at(above);
    // More sequences take more time, at most in proportion.
    if (above === Infinity) return at(below) * batch / below;
    if (above === below) return at(batch);
    return at(below) + (at(above) - at(below)) * (batch - below) / (above - below);
  }

  /** Step times by batch; empty at first. */
  #entries(streams: number): Map<number, Entry> {
    return this.#steps.getOrInsertComputed(streams, () => new Map());
  }

  #fits(streams: number, wanted: Load, load: ReadonlyMap<number, Load>): boolean {
    const own = (load.get(streams)?.sequences ?? 0) + wanted.sequences;
    // More would have to wait for the end of other answers.
    if (own > this.options.maxBatch) return false;
    let roundMs = 0, present = 0;
    const ownPrefillMs = wanted.promptTokens * this.#prefillMs(streams);
    let prefillMs = ownPrefillMs;
    for (const [other, { sequences: others, promptTokens }] of load) {
      present += others;
      prefillMs += promptTokens * this.#prefillMs(other);
      if (other === streams || others === 0) continue;
      roundMs += this.stepMs(other, Math.min(others, this.options.maxBatch));
    }
    // The part of the time that is left for steps if all prompts are such.
    const decoding = Math.max(0.01, 1 - ownPrefillMs / this.#gapMs);
    roundMs += this.stepMs(streams, this.#expectedBatch(streams, own, present, decoding));
    const firstMs = prefillMs + roundMs * (1 + prefillMs / CHUNK_MS);
    return roundMs <= this.options.targets.tpotMs && firstMs <= this.options.targets.ttftMs;
  }

  /**
   * Sequences that decode together once the rate of tokens is what it lately was, by Little's law: slower
   * steps hold more sequences. A lull of a moment thus does not count.
   */
  #expectedBatch(streams: number, own: number, present: number, decoding: number): number {
    let batch = own;
    for (let i = 0; i < ITERATIONS; i++) {
      const others = Math.max(0, this.#found * this.stepMs(streams, batch) / decoding - present);
      batch = Math.min(own + others, this.options.maxBatch);
    }
    return batch;
  }

  #prefillMs(streams: number): number {
    const entry = this.#prefills.get(streams);
    if (entry) return this.#current(entry);
    return this.#scaled(this.#prefills, streams, (known) => this.#prefillMs(known));
  }

  /** The prediction of the nearest number of streams in a table, in proportion where that is more. */
  #scaled(
    table: ReadonlyMap<number, unknown>,
    streams: number,
    predict: (known: number) => number,
  ): number {
    const known = [...table.keys()].toSorted((a, b) =>
      Math.abs(a - streams) - Math.abs(b - streams)
    );
    return known.length === 0 ? 0 : predict(known[0]!) * Math.max(1, streams / known[0]!);
  }

  #averaged(entry: Entry | undefined, ms: number): Entry {
    if (!entry) return { ms, slowness: this.#slowness, base: undefined };
    if (!entry.base) return { ms, slowness: this.#slowness, base: ms / this.#slowness };
    const expected = this.#current(entry);
    // Now and then a step waits for something else: a slow one counts little.
    const taken = Math.min(ms, 2 * expected);
    this.#slowness += WEIGHT * (taken / entry.base - this.#slowness);
    const mean = expected + WEIGHT * (taken - expected);
    return { ms: mean, slowness: this.#slowness, base: entry.base };
  }

  #current({ ms, slowness }: Entry): number {
    return ms * this.#slowness / slowness;
  }
}

function seeded(entry: Entry | undefined, ms: number): Entry {
  const least = Math.min(ms, entry?.ms ?? Infinity);
  return { ms: least, slowness: 1, base: least };
}
