/**
 * Byte pair encoding proper: the table of merges and their application to one word.
 *
 * Takes the ids of a word's bytes. Returns the ids of its tokens. The pair with the lowest rank
 * merges first, the leftmost one among equals. A heap holds the candidates and a linked list the
 * tokens, so a word of n bytes takes n log n steps; a run of a million letters is one word.
 */

/** Fields of a slot: left id, right id, rank + 1 (0 in a free slot), id of the merged token. */
const SLOT = 4;

/** Ranks and positions share one number in the heap: rank · 2³² + position. */
const RANK_UNIT = 2 ** 32;

/** Words up to this many bytes share their working memory. */
const SMALL_WORD = 256;

/** Merges by pair of ids: open addressing, one cache line or less per look-up. */
export class MergeTable {
  readonly #slots: Int32Array;
  readonly #mask: number;
  readonly #small = new Workspace(SMALL_WORD);

  /** Makes an empty table with room for `capacity` merges. */
  constructor(capacity: number) {
    let count = 16;
    while (count * 0.7 < capacity) count *= 2;
    this.#slots = new Int32Array(count * SLOT);
    this.#mask = count - 1;
  }

  /** Adds a merge; of two equal pairs the later counts, as elsewhere. */
  set(left: number, right: number, rank: number, merged: number): void {
    const at = this.#find(left, right);
    this.#slots[at] = left;
    this.#slots[at + 1] = right;
    this.#slots[at + 2] = rank + 1;
    this.#slots[at + 3] = merged;
  }

  /** Merges the first `count` of `ids` in place and returns how many are left. */
  apply(ids: Int32Array, count: number): number {
    const work = count <= SMALL_WORD ? this.#small : new Workspace(count);
    const { next, previous, ranks, merged, heap } = work;
    const look = (at: number) => {
      const after = next[at]!;
      const slot = after < count ? this.#find(ids[at]!, ids[after]!) : -1;
      const rank = slot < 0 ? -1 : this.#slots[slot + 2]! - 1;
      ranks[at] = rank;
      if (rank < 0) return;
      merged[at] = this.#slots[slot + 3]!;
      heap.push(rank * RANK_UNIT + at);
    };
    for (let i = 0; i < count; i++) {
      next[i] = i + 1;
      previous[i] = i - 1;
    }
    for (let i = 0; i < count; i++) look(i);
    while (heap.size > 0) {
      const best = heap.pop();
      const rank = Math.floor(best / RANK_UNIT);
      const at = best - rank * RANK_UNIT;
      if (ranks[at] !== rank) continue; // one of the two has merged otherwise since
      const gone = next[at]!, after = next[gone]!;
      ids[at] = merged[at]!;
      ranks[gone] = -1;
      next[at] = after;
      if (after < count) previous[after] = at;
      look(at);
      if (previous[at]! >= 0) look(previous[at]!);
    }
    let left = 0;
    for (let at = 0; at < count; at = next[at]!) ids[left++] = ids[at]!;
    return left;
  }

  /** The slot of a pair, or the free slot where it belongs. */
  #find(left: number, right: number): number {
    let hash = Math.imul(left, 0x9e3779b1) ^ Math.imul(right, 0x85ebca6b);
    hash ^= hash >>> 15;
    for (let i = hash & this.#mask;; i = (i + 1) & this.#mask) {
      const at = i * SLOT;
      if (this.#slots[at + 2] === 0) return at;
      if (this.#slots[at] === left && this.#slots[at + 1] === right) return at;
    }
  }
}

/** Memory for one word: a doubly linked list of tokens and, per token, the merge with its right. */
class Workspace {
  readonly next: Int32Array;
  readonly previous: Int32Array;
  readonly ranks: Int32Array;
  readonly merged: Int32Array;
  readonly heap: Heap;

  constructor(count: number) {
    this.next = new Int32Array(count);
    this.previous = new Int32Array(count);
    this.ranks = new Int32Array(count);
    this.merged = new Int32Array(count);
    // Every byte enters once and every merge twice at most.
    this.heap = new Heap(count * 3);
  }
}

/** Smallest number first. */
class Heap {
  size = 0;
  readonly #items: Float64Array;

  constructor(capacity: number) {
    this.#items = new Float64Array(capacity);
  }

  push(value: number): void {
    const items = this.#items;
    let at = this.size++;
    for (let parent = (at - 1) >> 1; at > 0 && items[parent]! > value; parent = (at - 1) >> 1) {
      items[at] = items[parent]!;
      at = parent;
    }
    items[at] = value;
  }

  pop(): number {
    const items = this.#items;
    const top = items[0]!, value = items[--this.size]!;
    let at = 0;
    for (let child = 1; child < this.size; child = at * 2 + 1) {
      if (child + 1 < this.size && items[child + 1]! < items[child]!) child++;
      if (items[child]! >= value) break;
      items[at] = items[child]!;
      at = child;
    }
    items[at] = value;
    return top;
  }
}
