/**
 * Means with standard errors, and differences of two methods on the same rows, with intervals that use
 * the pairing.
 *
 * Rows are hard or easy for both methods alike; taking the difference row by row removes that, and the
 * interval is narrower than two separate standard errors suggest.
 */

/** A mean over n values, with sample standard deviation / √n where there are two or more. */
export function meanWithError(
  values: readonly number[],
): { value: number; stderr: number | undefined; n: number } {
  const n = values.length;
  const value = values.reduce((sum, x) => sum + x, 0) / n;
  const squares = values.reduce((sum, x) => sum + (x - value) ** 2, 0);
  return { value, stderr: n > 1 ? Math.sqrt(squares / (n - 1) / n) : undefined, n };
}

/** A mean difference and its 95% interval. */
export interface Difference {
  readonly difference: number;
  readonly low: number;
  readonly high: number;
  /** Rows both have. */
  readonly n: number;
}

/** Rows from which on a sign test of rows that all differ alike is below 5%. */
const FEWEST_ALIKE = 6;

/**
 * Mean of a − b over rows, by Student's t; undefined for fewer than two rows, and for a few that all differ
 * alike, of whose spread nothing is known.
 */
export function pairedDifference(
  a: readonly number[],
  b: readonly number[],
): Difference | undefined {
  const n = a.length;
  if (b.length !== n) throw new RangeError(`cannot pair ${n} rows with ${b.length}`);
  const { value: difference, stderr } = meanWithError(a.map((value, i) => value - b[i]!));
  if (stderr === undefined || stderr === 0 && difference !== 0 && n < FEWEST_ALIKE) {
    return undefined;
  }
  const reach = studentQuantile(n - 1) * stderr;
  return { difference, low: difference - reach, high: difference + reach, n };
}

/** A mean as `meanWithError` gives it. */
export type Mean = ReturnType<typeof meanWithError>;

/**
 * The difference a − b of two means whose rows are not known, as if they had nothing in common: of the
 * same rows this is wider than `pairedDifference`. Degrees of freedom by Welch and Satterthwaite.
 */
export function differenceOfMeans(a: Mean, b: Mean): Difference | undefined {
  if (a.stderr === undefined || b.stderr === undefined) return undefined;
  const [va, vb] = [a.stderr ** 2, b.stderr ** 2], n = Math.min(a.n, b.n);
  const freedom = (va + vb) ** 2 / (va ** 2 / (a.n - 1) + vb ** 2 / (b.n - 1));
  // Never less than one; rounding may say a little less.
  const degrees = Math.max(1, Math.floor(freedom + 1e-9));
  const reach = va + vb === 0 ? 0 : studentQuantile(degrees) * Math.sqrt(va + vb);
  const difference = a.value - b.value;
  if (va + vb === 0 && difference !== 0 && n < FEWEST_ALIKE) return undefined;
  return { difference, low: difference - reach, high: difference + reach, n };
}

/** Values of Student's t that 2.5% lie above, for few degrees of freedom. */
const SMALL = [12.706, 4.303, 3.182, 2.776, 2.571];

/** The same for any number of degrees, beyond the table by the expansion of Cornish and Fisher. */
function studentQuantile(degrees: number): number {
  const z = 1.959964;
  return SMALL[degrees - 1] ??
    z + (z ** 3 + z) / (4 * degrees) + (5 * z ** 5 + 16 * z ** 3 + 3 * z) / (96 * degrees ** 2) +
      (3 * z ** 7 + 19 * z ** 5 + 17 * z ** 3 - 15 * z) / (384 * degrees ** 3);
}
