/**
 * Keys and values of the beams of one search, and how a step's beams continue those of the step before.
 *
 * Beams are sequences of one batch. Where attention reads through a table the cells of a cache stay
 * where they are: beam b writes its next token into row b, nothing is written there again, and for every
 * beam the table says in which row each of its slots lies, in all layers and streams alike. Moving a
 * beam moves a row of the table. Elsewhere it moves the beam's rows in all P streams, as copies from one
 * cache into another.
 *
 * The prompt lies in row 0 alone, and all tables begin by pointing there.
 */
import type { Engine } from "./engine.ts";
import type { KvCache } from "./kv_cache.ts";

/** A cache, and where it is read through one, the table for `ForwardInput.table`. */
export interface SelectedBeams {
  readonly cache: KvCache;
  readonly table?: Int32Array;
}

/** Keys and values of beams. */
export interface BeamCache extends Disposable {
  /**
   * Makes beam b continue beam `from[b]`, with `used` tokens so far and room for one more. Fewer can be
   * open than there are beams; the others repeat beam 0 and are not read.
   */
  select(from: readonly number[], used: number): SelectedBeams;
}

/** Beams that all continue a prompt of `used` tokens, whose cache of one sequence is only read. */
export function openBeamCache(
  engine: Engine,
  prompt: KvCache,
  beams: number,
  used: number,
): BeamCache {
  return engine.device.traits.pagedCache
    ? new CacheTable(engine, prompt, beams, used)
    : new CachePair(prompt, beams, used);
}

/** One cache whose cells are written once, and a table that is written at every step. */
class CacheTable implements BeamCache {
  #cache: KvCache;
  /** [B, S]: the row of each slot of a beam; 0 behind the slots in use. */
  #table: Int32Array;

  constructor(engine: Engine, prompt: KvCache, beams: number, used: number) {
    this.#cache = engine.createCache(beams, used + 1);
    this.#cache.copyFrom(prompt, [[0, 0]], used);
    this.#table = new Int32Array(beams * this.#cache.capacity);
  }

  select(from: readonly number[], used: number): SelectedBeams {
    const { batch: beams, capacity } = this.#cache;
    if (capacity < used + 1) this.#grow(used);
    const next = new Int32Array(beams * this.#cache.capacity);
    for (let b = 0; b < beams; b++) {
      const source = (from[b] ?? 0) * capacity;
      const target = b * this.#cache.capacity;
      next.set(this.#table.subarray(source, source + used), target);
      next[target + used] = b; // where this step writes
    }
    this.#table = next;
    return { cache: this.#cache, table: next };
  }

  /** Rows keep their places: beams may have cells in each other's. */
  #grow(used: number): void {
    const rows = Array.from({ length: this.#cache.batch }, (_, b) => b);
    const larger = this.#cache.rearranged(rows, used + 1, used);
    this[Symbol.dispose]();
    this.#cache = larger;
  }

  [Symbol.dispose](): void {
    this.#cache[Symbol.dispose]();
  }
}

/** Two caches used in turn: the beams of one step are copied from those of the step before. */
class CachePair implements BeamCache {
  #current: KvCache;
  #spare: KvCache | undefined;

  constructor(prompt: KvCache, private readonly beams: number, used: number) {
    this.#current = prompt.rearranged(new Array(beams).fill(0), used + 1, used);
  }

  select(from: readonly number[], used: number): SelectedBeams {
    const sources = Array.from({ length: this.beams }, (_, b) => from[b] ?? 0);
    const grows = this.#current.capacity < used + 1;
    const stays = !grows && sources.every((source, b) => source === b);
    if (stays) return { cache: this.#current };
    let target = this.#spare;
    if (grows || !target) target = this.#current.rearranged(sources, used + 1, used);
    else target.copyFrom(this.#current, sources.map((source, b) => [source, b]), used);
    if (grows) this[Symbol.dispose]();
    this.#spare = grows ? undefined : this.#current;
    this.#current = target;
    return { cache: target };
  }

  [Symbol.dispose](): void {
    this.#current[Symbol.dispose]();
    this.#spare?.[Symbol.dispose]();
  }
}
