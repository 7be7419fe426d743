/**
 * Pearson correlations of several quantities that are observed together, row by row.
 *
 * Takes rows of P numbers; returns the correlation of any two of them, and the mean over all pairs.
 * Sums are kept relative to an origin, or else weights that hardly vary would lose their variance
 * in rounding; sums of two sets only subtract when both have the same origin.
 */

/** Sums of rows, of which correlations are made. */
export class Moments {
  #count = 0;
  readonly #sums: Float64Array;
  /** Sums of products [P][P]; only i ≤ j is filled. */
  readonly #products: Float64Array;

  /** `origin` is subtracted from every row: any typical row will do. */
  constructor(readonly origin: ArrayLike<number>) {
    const P = origin.length;
    this.#sums = new Float64Array(P);
    this.#products = new Float64Array(P * P);
  }

  /** Rows added so far. */
  get count(): number {
    return this.#count;
  }

  /** Adds one observation of all quantities. */
  add(row: ArrayLike<number>): void {
    const P = this.origin.length;
    this.#count++;
    for (let i = 0; i < P; i++) {
      const own = row[i]! - this.origin[i]!;
      this.#sums[i]! += own;
      for (let j = i; j < P; j++) {
        this.#products[i * P + j]! += own * (row[j]! - this.origin[j]!);
      }
    }
  }

  /** These rows with others of the same origin added (`sign` 1) or taken out (−1). */
  with(other: Moments, sign: 1 | -1): Moments {
    const result = new Moments(this.origin);
    result.#count = this.#count + sign * other.#count;
    result.#sums.set(this.#sums.map((x, i) => x + sign * other.#sums[i]!));
    result.#products.set(this.#products.map((x, i) => x + sign * other.#products[i]!));
    return result;
  }

  /** Mean of quantity i. */
  mean(i: number): number {
    return this.origin[i]! + this.#sums[i]! / this.#count;
  }

  /** Pearson's correlation of quantities i and j; undefined where one of them never varies. */
  correlation(i: number, j: number): number | undefined {
    const variances = this.#covariance(i, i) * this.#covariance(j, j);
    if (!(variances > 0)) return undefined;
    const value = this.#covariance(Math.min(i, j), Math.max(i, j)) / Math.sqrt(variances);
    return Math.max(-1, Math.min(1, value));
  }

  /** The correlations of all pairs [P][P], symmetric. */
  matrix(): (number | undefined)[][] {
    const places = Array.from(this.origin, (_, i) => i);
    return places.map((i) => places.map((j) => this.correlation(i, j)));
  }

  /** Mean correlation of the pairs i < j; undefined where one of them has none. */
  meanCorrelation(): number | undefined {
    let sum = 0, pairs = 0;
    for (let i = 0; i < this.origin.length; i++) {
      for (let j = i + 1; j < this.origin.length; j++, pairs++) {
        const value = this.correlation(i, j);
        if (value === undefined) return undefined;
        sum += value;
      }
    }
    return pairs === 0 ? undefined : sum / pairs;
  }

  #covariance(i: number, j: number): number {
    const n = this.#count, P = this.origin.length;
    return this.#products[i * P + j]! / n - (this.#sums[i]! / n) * (this.#sums[j]! / n);
  }
}
