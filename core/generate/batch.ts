/**
 * Sequences that are decoded together, one token per step for every occupied row: each is computed, then
 * chosen, unless it waits for its grammar mask (deferred), then reported.
 *
 * On a device that samples tokens the next step is issued before the tokens of this one are known, so
 * that it never waits for the host (asynchronous scheduling). Such a step may be in vain for a sequence
 * that ended with the token before; its result is ignored.
 */
import { EnvironmentError } from "../base/errors.ts";
import type { Engine } from "./engine.ts";
import type { KvCache } from "./kv_cache.ts";
import type { GenerationEvent } from "./request.ts";
import {
  append,
  checked,
  type Choice,
  choose,
  finishReason,
  hasMore,
  headFor,
  isReady,
  needsLogits,
  numbersOf,
  type Sequence,
} from "./sequence.ts";
import { isExact, StepTimes } from "./speculation.ts";

/** Longest wait for the masks of some sequences while others can continue. */
const MASK_MS = 20;

/** A step that is under way. */
interface InFlightStep {
  readonly cache: KvCache;
  /** Whose tokens it computes, by row. */
  readonly rows: readonly (Sequence | undefined)[];
  /** Tokens of each row after its own that the step computes too, in case they are chosen. */
  readonly drafts: readonly (readonly number[])[];
  /** Waits for the step; the returned function reads the token after a row's `i`th and throws on NaN. */
  readonly choices: () => (row: number, i: number) => Choice;
}

/** Called with the row of a sequence that ends by itself, while its keys and values are there. */
type OnEnd = (sequence: Sequence, cache: KvCache, row: number) => void;

export class Batch implements Disposable {
  /** At most `size`; fewer while there is less to do, since every row costs time, used or not. */
  #rows: (Sequence | undefined)[];
  #cache: KvCache | undefined;
  #ahead: InFlightStep | undefined;
  readonly #times = new StepTimes();

  /** Decodes up to `size` sequences at a time, and up to `speculate` drafted tokens with them. */
  constructor(
    private readonly engine: Engine,
    private readonly size: number,
    private readonly onEnd: OnEnd,
    private speculate = 0,
  ) {
    this.#rows = new Array(size).fill(undefined);
  }

  [Symbol.dispose](): void {
    this.#cache?.[Symbol.dispose]();
  }

  /** Sequences under way. */
  get sequences(): Sequence[] {
    return this.#rows.filter((sequence) => sequence !== undefined);
  }

  /** Number of sequences under way. */
  get occupied(): number {
    return this.sequences.length;
  }

  /** Frees the row of a request before the next step; false when it has none. */
  cancel(index: number): boolean {
    const row = this.#rows.findIndex((sequence) => sequence?.index === index);
    if (row < 0) return false;
    this.#rows[row] = undefined;
    return true;
  }

  /** Decodes one token for every occupied row, and those of its draft that are chosen. */
  async *step(): AsyncGenerator<GenerationEvent> {
    const ahead = this.#ahead?.rows.some((row) => this.#isOpen(row)) ? this.#ahead : undefined;
    const step = ahead ?? await this.#issue();
    this.#ahead = this.#continuesAfter(step) ? await this.#issue(step) : undefined;
    await masksOf(step.rows.filter((row) => this.#isOpen(row)));
    // All are chosen before one is reported: what the caller does between two events changes none.
    for (const report of this.#choose(step)) yield* report;
  }

  #isOpen(sequence: Sequence | undefined): sequence is Sequence {
    return sequence !== undefined && this.#rows.includes(sequence);
  }

  /** Chooses the next token of every sequence; one that waits for its mask defers the choice to a later step. */
  #choose({ rows, drafts, choices }: InFlightStep): AsyncGenerator<GenerationEvent>[] {
    const choiceOf = choices();
    return rows.flatMap((sequence, b) => {
      if (!this.#isOpen(sequence)) return [];
      const draft = drafts[b]!, choose = sequence.deferred ?? (() => choiceOf(b, 0));
      sequence.used -= draft.length; // what is kept of the draft is added again
      sequence.deferred = isReady(sequence) ? undefined : choose;
      if (sequence.deferred) return [];
      return [this.#report(sequence, attempt(choose), draft, (i) => choiceOf(b, i))];
    });
  }

  /** Appends a chosen token, then those of the draft as long as each is chosen. */
  async *#report(
    sequence: Sequence,
    first: Chosen,
    draft: readonly number[],
    choiceOf: (i: number) => Choice,
  ): AsyncGenerator<GenerationEvent> {
    const { index } = sequence;
    for (let i = 0, { choice, error } = first; this.#isOpen(sequence);) {
      if (!choice) {
        this.cancel(index);
        return yield { kind: "failed", index, error };
      }
      append(sequence, choice.token);
      const reason = finishReason(sequence);
      const drafted = draft.length > 0 &&
        { draft: { tokens: i ? 0 : draft.length, isKept: i > 0 } };
      yield { kind: "token", index, ...choice, ...drafted };
      if (!this.#isOpen(sequence)) return;
      if (reason) {
        const row = this.#rows.indexOf(sequence);
        this.onEnd(sequence, this.#cache!, row);
        this.#rows[row] = undefined;
        return yield { kind: "done", index, reason };
      }
      if (choice.token !== draft[i++]) return;
      await masksOf(this.sequences);
      if (!isReady(sequence)) return;
      sequence.used++;
      ({ choice, error } = attempt(() => choiceOf(i)));
    }
  }

  /** Returns whether the next step can be issued now: for the same rows, by tokens on the device. */
  #continuesAfter({ cache, rows }: InFlightStep): boolean {
    const { device } = this.engine;
    return this.#isAsynchronous(rows) && cache === this.#cache && !this.#isSparse &&
      rows.every((sequence, b) => sequence === this.#rows[b]) &&
      rows.some((sequence) => sequence && hasMore(sequence)) &&
      rows.every((sequence) => !sequence || sequence.used < cache.capacity) && !!device.readLater;
  }

  /** Issues a step for all rows, or for those of another step that is still under way. */
  async #issue(after?: InFlightStep): Promise<InFlightStep> {
    if (!after) this.#shrink();
    // The token under way may be the last that is allowed.
    const rows = this.#rows.map((sequence) =>
      !after || (sequence && hasMore(sequence)) ? sequence : undefined
    );
    const drafts = await this.#drafts(rows),
      T = 1 + Math.max(...drafts.map(({ length }) => length));
    const cache = this.#reserve(Math.max(...rows.map((sequence) => (sequence?.used ?? 0) + T)));
    // What a free row computes is not read. One whose choice is deferred computes what its next token
    // overwrites. Both change no states.
    const counts = rows.map((sequence) => Number(sequence && !sequence.deferred));
    const start = rows.map((sequence) => sequence?.used ?? 0);
    const ids = rows.map((sequence) => sequence?.answer.at(-1) ?? 0);
    const grow = (sign: 1 | -1) =>
      rows.forEach((one, b) => one && (one.used += sign * (counts[b]! + drafts[b]!.length)));
    grow(1);
    const sampling = () => rows.flatMap((sequence) => numbersOf(sequence?.request));
    if (this.#isAsynchronous(rows)) {
      const given = after ? {} : { ids };
      const wait = await this.engine.sample(cache, { ...given, start, sampling: sampling() });
      return {
        cache,
        rows,
        drafts,
        choices: () => ((tokens) => (b: number) => ({ token: checked(tokens[b]!) }))(wait()),
      };
    }
    const { config, device } = this.engine;
    const requests = rows.flatMap((sequence) => sequence ? [sequence.request] : []);
    const options = headFor(device, requests);
    const began = performance.now();
    const running = this.engine.forward(cache, {
      ids: ids.map((id, b) => [id, ...drafts[b]!, ...new Array(T - 1 - drafts[b]!.length).fill(0)]),
      start,
      counts,
      select: Array.from({ length: rows.length * T }, (_, i) => i),
      ...(options.head === "sample" ? { sampling: sampling() } : {}),
    }, options);
    const outputs = await running.catch((error) => {
      if (T === 1 || !(error instanceof EnvironmentError)) throw error;
    });
    if (!outputs) { // over the memory limit, in which steps of one token may fit
      this.speculate = 0;
      grow(-1);
      return await this.#issue();
    }
    this.#times.observe(rows.length, T, performance.now() - began);
    const choices = () => (b: number, i: number) => choose(config, outputs, b * T + i, rows[b]!);
    return { cache, rows, drafts, choices };
  }

  /** Drafts of rows where they pay. */
  async #drafts(rows: readonly (Sequence | undefined)[]): Promise<(readonly number[])[]> {
    const none = rows.map(() => []), most = this.speculate + 1;
    if (2 * rows.length > most) return none;
    const drafters = rows.map((one) => one?.deferred ? undefined : one?.drafter);
    const drafts = rows.map((one, b) =>
      drafters[b]?.draft(Math.min(this.speculate, one!.limit - one!.answer.length - 1)) ?? []
    );
    if (drafts.every(({ length }) => length === 0)) return none;
    const { streams } = this.engine.config;
    const T = this.#times.best(drafters, drafts.map(({ length }) => length), { most, streams });
    if (T === 1 || !await isExact(this.engine, most)) return none;
    return drafts.map((draft) => draft.slice(0, T - 1));
  }

  /** Returns whether the device chooses the tokens of all these, and tokens are all that is asked for. */
  #isAsynchronous(rows: readonly (Sequence | undefined)[]): boolean {
    return this.engine.device.traits.samplesTokens &&
      !rows.some((row) => row && (needsLogits(row.request) || row.request.streamWeights));
  }

  /** Gives a prefilled sequence a row: that of another cache, whose keys and values are copied. */
  place(sequence: Sequence, from: KvCache, fromRow: number): void {
    const free = this.#rows.indexOf(undefined);
    const b = free < 0 ? this.#rows.length : free;
    if (free < 0) this.#rows.push(...new Array(Math.min(b, this.size - b)).fill(undefined));
    this.#reserve(sequence.used + 1).copyFrom(from, [[fromRow, b]], sequence.used);
    this.#rows[b] = sequence;
  }

  /** The cache, grown to hold this many tokens per sequence. */
  #reserve(slots: number): KvCache {
    const old = this.#cache;
    const size = this.#rows.length;
    if (old && old.batch === size && old.capacity >= slots) return old;
    if (!old) return this.#cache = this.engine.createCache(size, slots);
    const used = Math.max(0, ...this.#rows.map((sequence) => sequence?.used ?? 0));
    // What a new row starts with is never read.
    const from = Array.from({ length: size }, (_, b) => b < old.batch ? b : 0);
    return this.#replace(old, old.rearranged(from, Math.max(slots, used), used));
  }

  /** True if free rows are half of all. */
  get #isSparse(): boolean {
    return this.occupied * 2 <= this.#rows.length;
  }

  /** Drops free rows once they are half of all. */
  #shrink(): void {
    if (!this.#cache || !this.#isSparse) return;
    const occupied = this.#rows.flatMap((sequence, b) => sequence ? [b] : []);
    const used = Math.max(...occupied.map((b) => this.#rows[b]!.used));
    const old = this.#cache;
    this.#replace(old, old.rearranged(occupied, old.capacity, used));
    this.#rows = occupied.map((b) => this.#rows[b]);
  }

  #replace(old: KvCache, by: KvCache): KvCache {
    old[Symbol.dispose]();
    return this.#cache = by;
  }
}

/** Waits for the masks of sequences: a moment, or for the first one where none can continue. */
async function masksOf(sequences: readonly Sequence[]): Promise<void> {
  const pending = sequences.filter((sequence) => !isReady(sequence));
  if (pending.length === 0) return;
  const ready = pending.map(({ maskReady }) => maskReady!);
  if (pending.length === sequences.length) return await Promise.race(ready);
  const { promise, resolve } = Promise.withResolvers<void>();
  const timer = setTimeout(resolve, MASK_MS);
  await Promise.race([promise, Promise.all(ready)]);
  clearTimeout(timer);
}

/** A choice, or why there is none. */
interface Chosen {
  readonly choice?: Choice;
  readonly error?: unknown;
}

function attempt(choose: () => Choice): Chosen {
  try {
    return { choice: choose() };
  } catch (error) {
    return { error };
  }
}
