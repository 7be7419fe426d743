/**
 * Prefix cache: keys and values of prompts and finished answers, least recently used out first.
 *
 * Keys and values of a token depend on nothing after it, so those of a shared prefix are copied
 * instead of computed, for every stream. An entry is a whole KV cache as prefill left it, with the
 * tokens of each of its rows. Rows are found by blocks of tokens, so a prompt is compared only with rows
 * that share all its known blocks.
 *
 * Recurrent states hold for a whole row alone, so there only whole rows are reused. A
 * prompt that parts from a row is prefilled in two pieces, and the first is kept (`prefill_group.ts`).
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

  /** False if there is room for the newest entry alone. */
  get keepsSeveral(): boolean {
    return this.capacityBytes > 0;
  }

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
    if (rows.length === 1 && !cache.hasStates) this.#dropPrefixesOf(rows[0]!);
    const own: Row[] = [];
    const entry = { cache, rows: own };
    this.#entries.add(entry);
    for (const tokens of rows) {
      const row = { entry, tokens };
      own.push(row);
      let branch = this.#root;
      for (const block of blocksOf(tokens, tokens.length)) {
        branch = branch.next.getOrInsertComputed(block, () => new Branch());
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

  /** Longest common prefix of a prompt and a row, whether or not it can be copied. */
  commonLength(tokens: readonly number[]): number {
    return longest(this.#path(tokens).at(-1)!.rows, tokens)?.length ?? 0;
  }

  /** The row with the longest prefix that can be copied, and its length. */
  #find(tokens: readonly number[]): Match | undefined {
    const path = this.#path(tokens);
    const shared = longest(path.at(-1)!.rows, tokens);
    if (!shared?.row.entry.cache.hasStates) return shared;
    for (const { rows } of path.toReversed()) {
      const whole = longest(rows, tokens, (row, length) => length === row.tokens.length);
      if (whole) return whole;
    }
  }

  /** The branches of the known blocks of a prompt, the root first. */
  #path(tokens: readonly number[]): Branch[] {
    const path = [this.#root];
    for (const block of blocksOf(tokens, tokens.length - 1)) {
      const next = path.at(-1)!.next.get(block);
      if (!next) break;
      path.push(next);
    }
    return path;
  }
}

interface Match {
  readonly row: Row;
  readonly length: number;
}

/** The row that shares most with a prompt, whose last token is always left out. */
function longest(
  rows: Iterable<Row>,
  tokens: readonly number[],
  accepts: (row: Row, length: number) => boolean = () => true,
): Match | undefined {
  let best: Match | undefined;
  for (const row of rows) {
    const length = Math.min(commonLength(row.tokens, tokens), tokens.length - 1);
    if (length > (best?.length ?? 0) && accepts(row, length)) best = { row, length };
  }
  return best;
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
