/**
 * Prefix cache: keys and values of prompts and finished answers, least recently used out first.
 *
 * Keys and values of a token depend on nothing behind it, so those of a shared beginning are copied
 * instead of computed, for every stream. An entry is a whole KV cache as prefill left it, with the
 * tokens of each of its rows.
 */
import type { KvCache } from "./kv_cache.ts";

/** Fewer shared tokens than this are not worth a copy. */
export const LEAST_SHARED = 16;

interface Entry {
  readonly cache: KvCache;
  /** Tokens of each row. */
  readonly rows: readonly (readonly number[])[];
}

/** Where the beginning of a prompt lies. */
interface Match {
  readonly entry: Entry;
  readonly row: number;
  readonly length: number;
}

export class PrefixCache implements Disposable {
  /** Bytes that entries may take; the newest entry stays whatever its size. */
  readonly capacityBytes: number;
  /** Least recently used first. */
  readonly #entries: Entry[] = [];

  constructor(capacityBytes = 0) {
    this.capacityBytes = capacityBytes;
  }

  /** Bytes that entries take. */
  get bytes(): number {
    return this.#entries.reduce((sum, { cache }) => sum + cache.bytes, 0);
  }

  /**
   * Tokens at the beginning of a prompt that need not be computed. The last one always is, since its
   * outputs are wanted.
   */
  sharedLength(tokens: readonly number[]): number {
    return this.#find(tokens)?.length ?? 0;
  }

  /** Copies the beginning of a prompt into row `row` of a cache; returns the number of its tokens. */
  copyInto(target: KvCache, row: number, tokens: readonly number[]): number {
    const match = this.#find(tokens);
    if (!match) return 0;
    this.#entries.splice(this.#entries.indexOf(match.entry), 1);
    this.#entries.push(match.entry);
    target.copyFrom(match.entry.cache, [[match.row, row]], match.length);
    return match.length;
  }

  /** Takes over a cache whose rows hold these tokens. */
  add(cache: KvCache, rows: readonly (readonly number[])[]): void {
    if (rows.length === 1) this.#dropBeginningsOf(rows[0]!);
    this.#entries.push({ cache, rows });
    while (this.#entries.length > 1 && this.bytes > this.capacityBytes) {
      this.#entries.shift()!.cache[Symbol.dispose]();
    }
  }

  [Symbol.dispose](): void {
    for (const { cache } of this.#entries.splice(0)) cache[Symbol.dispose]();
  }

  /** An answer's entry replaces that of its prompt. */
  #dropBeginningsOf(tokens: readonly number[]): void {
    for (const entry of [...this.#entries]) {
      const [only, ...others] = entry.rows;
      if (others.length > 0 || commonLength(only!, tokens) < only!.length) continue;
      entry.cache[Symbol.dispose]();
      this.#entries.splice(this.#entries.indexOf(entry), 1);
    }
  }

  #find(tokens: readonly number[]): Match | undefined {
    let best: Match | undefined;
    for (const entry of this.#entries) {
      for (const [row, own] of entry.rows.entries()) {
        const length = Math.min(commonLength(own, tokens), tokens.length - 1);
        if (length >= Math.max(LEAST_SHARED, (best?.length ?? 0) + 1)) {
          best = { entry, row, length };
        }
      }
    }
    return best;
  }
}

/** Number of tokens with which both begin. */
export function commonLength(a: ArrayLike<number>, b: ArrayLike<number>): number {
  const length = Math.min(a.length, b.length);
  let shared = 0;
  while (shared < length && a[shared] === b[shared]) shared++;
  return shared;
}
