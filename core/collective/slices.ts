/**
 * How a flat array is divided among ranks, as in ZeRO-1: equal slices that ignore the borders of tensors.
 * The array is padded with zeros to a multiple of `world` slices of whole cache lines.
 */

/** Slices begin at multiples of this many elements. */
const ALIGNMENT = 64;

/** A range of elements. */
export interface Slice {
  readonly start: number;
  readonly count: number;
}

/** Elements of an array of `count` with its padding; there is none for a single rank. */
export function paddedCount(count: number, world: number): number {
  if (world === 1) return count;
  const unit = world * ALIGNMENT;
  return Math.ceil(count / unit) * unit;
}

/** The slice of a rank in an array of `padded` elements. */
export function sliceOf(padded: number, world: number, rank: number): Slice {
  const count = padded / world;
  return { start: rank * count, count };
}

/** Ranges of at most `size` elements that together are the first `count` of an array. */
export function* chunksOf(count: number, size: number): Generator<Slice> {
  for (let start = 0; start < count; start += size) {
    yield { start, count: Math.min(size, count - start) };
  }
}
