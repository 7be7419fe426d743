/**
 * Order of sequences that wait for rows: owners take turns, so that one with many sequences delays
 * another by one row at most (start-time fair queueing).
 */
import type { Sequence } from "./sequence.ts";

/** One row in this many is kept for owners that have none. */
const ROWS_PER_SPARE = 8;

/** Waiting sequences in the order in which they are taken. */
export class Turns {
  /** Those that are taken leave the list. */
  readonly waiting: Sequence[] = [];
  /** The turn of every waiting sequence: its place among those of its owner. */
  readonly #turns = new WeakMap<Sequence, number>();
  /** The latest turn of which a sequence was taken. */
  #now = 0;

  /** Adds a sequence after those of its turn and of earlier ones. */
  add(sequence: Sequence): void {
    const own = this.waiting.findLast((other) => ownerOf(other) === ownerOf(sequence));
    const turn = own ? this.#turns.get(own)! + 1 : this.#now;
    this.#turns.set(sequence, turn);
    const behind = this.waiting.findLastIndex((other) => this.#turns.get(other)! <= turn);
    this.waiting.splice(behind + 1, 0, sequence);
  }

  /** Notes which sequences left the list for a row. */
  taken(sequences: readonly Sequence[]): void {
    for (const sequence of sequences) {
      this.#now = Math.max(this.#now, this.#turns.get(sequence)!);
    }
  }
}

/** Rows that a sequence may find free, of `free` in a batch: the last are for owners without a row. */
export function freeFor(
  sequence: Sequence,
  underWay: readonly Sequence[],
  { free, batch }: { readonly free: number; readonly batch: number },
): number {
  const owner = ownerOf(sequence);
  const hasRow = underWay.some((other) => ownerOf(other) === owner);
  return hasRow ? free - Math.floor(batch / ROWS_PER_SPARE) : free;
}

function ownerOf(sequence: Sequence): unknown {
  return sequence.request.owner ?? sequence;
}
