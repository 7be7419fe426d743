/**
 * Order statistics of a few numbers.
 *
 * Between two ranks the value is interpolated, as NumPy and R do unless told otherwise.
 */

/** The value below which this share of the others lies; `sorted` rises and is not empty. */
export function quantileOf(sorted: readonly number[], share: number): number {
  const position = share * (sorted.length - 1);
  const below = Math.floor(position);
  const above = Math.min(below + 1, sorted.length - 1);
  return sorted[below]! + (position - below) * (sorted[above]! - sorted[below]!);
}

/** Median and distance of the quartiles, of at least one number in any order. */
export function centerOf(values: readonly number[]): { median: number; spread: number } {
  const sorted = values.toSorted((a, b) => a - b);
  const at = (share: number) => quantileOf(sorted, share);
  return { median: at(0.5), spread: at(0.75) - at(0.25) };
}

/** Median of at least one number in any order. */
export const medianOf = (values: readonly number[]): number => centerOf(values).median;
