/**
 * Prefix cache: keys and values of prompts and finished answers, least recently used out first.
 *
 * Keys and values of a token depend on nothing behind it, so those of a shared prefix are copied
 * instead of computed, for every stream. An entry is a whole KV cache as prefill left it, with the
 * tokens of each of its rows. Rows are found by blocks of tokens, so a prompt is compared only with rows
 * that share all its known blocks.
 */
import type { KvCache } from "./kv_cache.ts";

/** Fewer shared tokens than this are not worth a copy; also the tokens of a block. */
export const LEAST_SHARED = 16;

interface Entry {
  readonly cache: KvCache;
  readonly rows: readonly Row[];
}

/** A row of an entry. */
interface Row {
  readonly entry: Entry;
  readonly tokens: readonly number[];
}

/** Rows that begin with the same blocks, and those of them that share one block more, by its tokens. */
class Branch {
  readonly rows = new Set<Row>();
  readonly next = new Map<string, Branch>();
}

export class PrefixCache implements Disposable {
  /** Least recently used first. */
  readonly #entries = new Set<Entry>();
  readonly #root = new Branch();

  /** Entries take `capacityBytes` at most; the newest one stays whatever its size. */
  constructor(private readonly capacityBytes = 0) {}

  /** Bytes that entries take. */
  get bytes(): number {
    return [...this.#entries].reduce((sum, { cache }) => sum + cache.bytes, 0);
  }

  /**
   * Length of the prefix of a prompt that need not be computed. The last one always is, since its
   * outputs are wanted.
   */
  sharedLength(tokens: readonly number[]): number {
    return this.#find(tokens)?.length ?? 0;
  }

  /** Copies the cached prefix of a prompt into row `row` of a cache; returns the number of its tokens. */
  copyInto(target: KvCache, row: number, tokens: readonly number[]): number {
    const match = this.#find(tokens);
    if (!match) return 0;
    const { entry } = match.row;
    this.#entries.delete(entry);
    this.#entries.add(entry);
    target.copyFrom(entry.cache, [[entry.rows.indexOf(match.row), row]], match.length);
    return match.length;
  }

  /** Takes over a cache whose rows hold these tokens. */
  add(cache: KvCache, rows: readonly (readonly number[])[]): void {
    if (rows.length === 1) this.#dropPrefixesOf(rows[0]!);
    const own: Row[] = [];
    const entry = { cache, rows: own };
    this.#entries.add(entry);
    for (const tokens of rows) {
      const row = { entry, tokens };
      own.push(row);
      let branch = this.#root;
      for (const block of blocksOf(tokens, tokens.length)) {
        if (!branch.next.has(block)) branch.next.set(block, new Branch());
        branch = branch.next.get(block)!;
        branch.rows.add(row);
      }
    }
    for (const oldest of this.#entries) {
      if (oldest === entry || this.bytes <= this.capacityBytes) return;
      this.#drop(oldest);
    }
  }

  [Symbol.dispose](): void {
    for (const entry of this.#entries) this.#drop(entry);
  }

  /** An answer's entry replaces that of its prompt. */
  #dropPrefixesOf(tokens: readonly number[]): void {
    for (const entry of this.#entries) {
      const [{ tokens: own }, ...others] = entry.rows as [Row, ...Row[]];
      if (others.length === 0 && commonLength(own, tokens) === own.length) this.#drop(entry);
    }
  }

  #drop(entry: Entry): void {
    this.#entries.delete(entry);
    for (const row of entry.rows) {
      let branch = this.#root;
      for (const block of blocksOf(row.tokens, row.tokens.length)) {
        const next = branch.next.get(block)!;
        next.rows.delete(row);
        if (next.rows.size === 0) branch.next.delete(block);
        branch = next;
      }
    }
    entry.cache[Symbol.dispose]();
  }

  /** The row with the longest shared prefix, and its length. */
  #find(tokens: readonly number[]): { readonly row: Row; readonly length: number } | undefined {
    const most = tokens.length - 1;
    let branch = this.#root;
    for (const block of blocksOf(tokens, most)) {
      const next = branch.next.get(block);
      if (!next) break;
      branch = next;
    }
    let best: { readonly row: Row; readonly length: number } | undefined;
    for (const row of branch.rows) {
      const length = Math.min(commonLength(row.tokens, tokens), most);
      if (length > (best?.length ?? 0)) best = { row, length };
    }
    return best;
  }
}

/** The whole blocks of the first `length` tokens. */
function* blocksOf(tokens: readonly number[], length: number): Generator<string> {
  for (let end = LEAST_SHARED; end <= length; end += LEAST_SHARED) {
    yield tokens.slice(end - LEAST_SHARED, end).join();
  }
}

/** Number of tokens with which both begin. */
export function commonLength(a: ArrayLike<number>, b: ArrayLike<number>): number {
  const length = Math.min(a.length, b.length);
  let shared = 0;
  while (shared < length && a[shared] === b[shared]) shared++;
  return shared;
}
