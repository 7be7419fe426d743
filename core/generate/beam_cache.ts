/**
 * Keys and values of the beams of one search, and how a step's beams continue those of the step before.
 *
 * Beams are sequences of one batch. Where attention reads through a table the cells of a cache stay
 * where they are: beam b writes its next token into row b, nothing is written there again, and for every
 * beam the table says in which row each of its slots lies, in all layers and streams alike. Moving a
 * beam moves a row of the table. Elsewhere a beam has a row of its own, in all P streams: the first that
 * continues another takes its row, and the others copy it into rows that no beam continues.
 *
 * The prompt lies in row 0 alone at first.
 */
import type { Engine } from "./engine.ts";
import type { KvCache } from "./kv_cache.ts";

/** Keys and values as a step takes them. */
export interface SelectedBeams {
  readonly cache: KvCache;
  /** Row of each beam in the batch. */
  readonly rows: readonly number[];
  /** Rows of slots, for `ForwardInput.table`. */
  readonly table?: Int32Array;
}

/** Keys and values of beams. */
export abstract class BeamCache implements Disposable {
  protected cache: KvCache;

  /** Beams that all continue a prompt of `used` tokens, whose cache of one sequence is only read. */
  constructor(engine: Engine, prompt: KvCache, beams: number, used: number) {
    this.cache = engine.createCache(beams, used + 1);
    this.cache.copyFrom(prompt, [[0, 0]], used);
  }

  /**
   * Makes beam b continue beam `from[b]`, with `used` tokens so far and room for one more. Fewer can be
   * open than there are beams; the others have rows that are not read.
   */
  abstract select(from: readonly number[], used: number): SelectedBeams;

  /** Makes room for one more token than `used`; rows keep their places. */
  protected reserve(used: number): void {
    if (this.cache.capacity > used) return;
    const rows = Array.from({ length: this.cache.batch }, (_, b) => b);
    const larger = this.cache.rearranged(rows, used + 1, used);
    this[Symbol.dispose]();
    this.cache = larger;
  }

  [Symbol.dispose](): void {
    this.cache[Symbol.dispose]();
  }
}

/** Opens the cache of a search in the way of the device. */
export function openBeamCache(
  engine: Engine,
  prompt: KvCache,
  beams: number,
  used: number,
): BeamCache {
  const Kind = engine.device.traits.pagedCache ? CacheTable : CacheRows;
  return new Kind(engine, prompt, beams, used);
}

/** Cells are written once, and a table at every step. */
class CacheTable extends BeamCache {
  /** [B, S]: the row of each slot of a beam; 0 after the slots in use. */
  #table = new Int32Array(this.cache.batch * this.cache.capacity);

  select(from: readonly number[], used: number): SelectedBeams {
    const { batch: beams, capacity } = this.cache;
    this.reserve(used);
    const { cache } = this;
    const table = new Int32Array(beams * cache.capacity);
    const rows = Array.from({ length: beams }, (_, b) => b);
    for (const b of rows) {
      const source = (from[b] ?? 0) * capacity, target = b * cache.capacity;
      table.set(this.#table.subarray(source, source + used), target);
      table[target + used] = b; // where this step writes
    }
    this.#table = table;
    return { cache, rows, table };
  }
}

/** Every beam has a row of its own. */
class CacheRows extends BeamCache {
  #rows: readonly number[] = Array.from({ length: this.cache.batch }, (_, b) => b);

  select(from: readonly number[], used: number): SelectedBeams {
    this.reserve(used);
    const { cache } = this;
    const sources = from.map((beam) => this.#rows[beam]!);
    const free = [...new Set(this.#rows).difference(new Set(sources))];
    const copies: [source: number, target: number][] = [];
    const rows = sources.map((source, b) => {
      if (sources.indexOf(source) === b) return source;
      const target = free.pop()!;
      copies.push([source, target]);
      return target;
    });
    cache.copyFrom(cache, copies, used);
    this.#rows = [...rows, ...free];
    return { cache, rows: this.#rows };
  }
}
