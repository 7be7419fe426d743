/**
 * Training by several processes that hold the same model and read different batches.
 *
 * All processes call the same methods in the same order; one that does not leaves the others waiting. One
 * of them is the primary process, which writes files. The arrays of a model are flat f32 of
 * `slice(count).total` elements. Ranks, MPI and NCCL lie behind `DataParallel`; `ALONE` is the collective of
 * a single process, which exchanges and copies nothing.
 */
import type { DeviceTensor } from "../runtime/device.ts";

/** The part of a flat array that one process updates. */
export interface Slice {
  readonly start: number;
  readonly count: number;
  /** Elements of the whole array, with the zeros at its end that make all slices equal. */
  readonly total: number;
}

/** Batches for one process. */
export interface Feed<B> {
  /** The next batch; undefined after the last. */
  next(): B | undefined;
  /** Place in the data at which the next batch begins. */
  readonly cursor: unknown;
}

/** Batches that processes can divide, such as `core/data`'s `BatchStream`. */
export interface DivisibleFeed<B> extends Feed<B> {
  /** Passes over the next batch; false after the last. */
  skip(): boolean;
}

/** The processes that train a model together, as one of them sees them. */
export interface Collective {
  /** The part that this process updates of an array of `count` elements. */
  slice(count: number): Slice;
  /** Sums of numbers over all processes, in f64 and the same bits everywhere. */
  sum(values: readonly number[]): Promise<number[]>;
  /** The total, over all slices, of a number that this process has computed from its own. */
  sumOfSlices(own: number): Promise<number>;
  /** Replaces gradients by their sum over all processes, at least in the slice of this one. */
  sumGradients(gradients: DeviceTensor): Promise<void>;
  /** Completes an array of which every process has updated its slice. */
  gather(values: DeviceTensor): Promise<void>;
  /**
   * The `count` elements of an array of which every process holds its slice, in parts from first to last.
   * All processes go through the parts, after a wait for the last to begin; the primary one alone finds
   * the elements in them. A part may be overwritten by the next.
   */
  parts(slice: DeviceTensor, count: number): Iterable<DeviceTensor> | AsyncIterable<DeviceTensor>;
  /** The batches that this process reads; the cursor is the same in all processes. */
  share<B>(feed: DivisibleFeed<B>): Feed<B>;
}

const done = Promise.resolve();

/** The collective of a single process. */
export const ALONE: Collective = {
  slice: (count) => ({ start: 0, count, total: count }),
  sum: (values) => Promise.resolve([...values]),
  sumOfSlices: (own) => Promise.resolve(own),
  sumGradients: () => done,
  gather: () => done,
  parts: (slice) => [slice],
  share: (feed) => feed,
};

/** Ranges of at most `size` elements that together are the first `count` of an array. */
export function* chunksOf(count: number, size: number): Generator<Omit<Slice, "total">> {
  for (let start = 0; start < count; start += size) {
    yield { start, count: Math.min(size, count - start) };
  }
}
