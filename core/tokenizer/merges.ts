/**
 * Byte pair encoding proper: the table of merges and their application to one word.
 *
 * The pair with the lowest rank merges first, the leftmost one among equals. A heap holds the
 * candidates and a linked list the tokens. A long word, such as a run of a million letters, is merged
 * in overlapping windows, so that its time is linear and its working memory stays in the cache.
 *
 * Windows give the tokens of the whole: tokens are those of a word exactly when every two neighbours,
 * merged alone, stay as they are, since a merge depends on nothing beyond the two tokens it would
 * join. Windows are joined where both have the same token at the same place. Two that share none, which
 * takes a table made for it, are answered by merging the whole word at once.
 */

/** Fields of a slot: left id, right id, rank + 1 (0 in a free slot), id of the merged token. */
const SLOT = 4;

/** Ranks and positions share one number in the heap: rank · 2³² + position. */
const RANK_UNIT = 2 ** 32;

/** Longer words are merged in windows of this many bytes. */
const WINDOW = 2048;

/** Bytes that two windows share; three times the longest token of the usual vocabularies. */
const OVERLAP = 384;

/** Merges by pair of ids: open addressing, one cache line or less per look-up. */
export class MergeTable {
  readonly #slots: Int32Array;
  readonly #mask: number;
  readonly #work = new Workspace(WINDOW);

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
    if (count > WINDOW) {
      const merged = this.#applyInWindows(ids.subarray(0, count));
      if (merged) {
        ids.set(merged);
        return merged.length;
      }
    }
    const work = count <= WINDOW ? this.#work : new Workspace(count);
    this.#merge(ids, count, work);
    let left = 0;
    for (let at = 0; at < count; at = work.next[at]!) ids[left++] = ids[at]!;
    return left;
  }

  /** The tokens of a long word; undefined when two windows share no token. */
  #applyInWindows(ids: Int32Array): Int32Array | undefined {
    const out = new Int32Array(ids.length), window = new Int32Array(WINDOW);
    const { next } = this.#work;
    // Tokens of the last window from the start of the next one on, and where they begin.
    const oldIds = new Int32Array(WINDOW), oldStarts = new Int32Array(WINDOW);
    let written = 0, old = 0;
    for (let begin = 0;;) {
      const count = Math.min(WINDOW, ids.length - begin);
      window.set(ids.subarray(begin, begin + count));
      this.#merge(window, count, this.#work);
      let at = 0, same = 0;
      while (same < old && (oldStarts[same] !== at || oldIds[same] !== window[at])) {
        if (oldStarts[same]! < at) same++;
        else if (oldStarts[same]! > at) at = next[at]!;
        else {
          same++;
          at = next[at]!;
        }
      }
      if (old > 0 && same === old) return undefined;
      out.set(oldIds.subarray(0, same), written);
      written += same;
      const isLast = begin + count === ids.length;
      const end = isLast ? count : count - OVERLAP;
      for (; at < end; at = next[at]!) out[written++] = window[at]!;
      if (isLast) return out.subarray(0, written);
      const from = at;
      for (old = 0; at < count; at = next[at]!) {
        oldIds[old] = window[at]!;
        oldStarts[old++] = at - from;
      }
      if (old === 0) return undefined;
      begin += from;
    }
  }

  /** Merges in place. The tokens that are left form the linked list `next`, from index 0. */
  #merge(ids: Int32Array, count: number, { next, previous, ranks, merged, heap }: Workspace): void {
    const look = (at: number) => {
      const after = next[at]!;
      const slot = after < count ? this.#find(ids[at]!, ids[after]!) : -1;
      const rank = slot < 0 ? -1 : this.#slots[slot + 2]! - 1;
      ranks[at] = rank;
      if (rank < 0) return;
      merged[at] = this.#slots[slot + 3]!;
      // Of a run of one token only the first pair waits in the heap: the others come after it.
      const before = previous[at]!;
      if (before < 0 || ranks[before] !== rank) heap.push(rank * RANK_UNIT + at);
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
      const waits = after < count && ranks[after]! >= 0 && ranks[after] === ranks[gone];
      ids[at] = merged[at]!;
      ranks[gone] = -1;
      next[at] = after;
      if (after < count) previous[after] = at;
      if (previous[at]! >= 0) look(previous[at]!);
      look(at);
      if (waits && ranks[after] !== ranks[at]) heap.push(ranks[after]! * RANK_UNIT + after);
    }
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
    this.#place(this.size++, value);
  }

  /** Puts a value into the free place `at`, or above it. */
  #place(at: number, value: number): void {
    const items = this.#items;
    for (let parent = (at - 1) >> 1; at > 0 && items[parent]! > value; parent = (at - 1) >> 1) {
      items[at] = items[parent]!;
      at = parent;
    }
    items[at] = value;
  }

  pop(): number {
    const items = this.#items;
    const top = items[0]!, size = --this.size;
    // The last item moves to the place that is left at the bottom, and from there up again.
    let at = 0;
    for (let child = 1; child < size; child = at * 2 + 1) {
      if (child + 1 < size && items[child + 1]! < items[child]!) child++;
      items[at] = items[child]!;
      at = child;
    }
    this.#place(at, items[size]!);
    return top;
  }
}
