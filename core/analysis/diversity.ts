/**
 * How differently the streams of a model err: an estimate of ρ in the theory of the ParScale paper.
 *
 *   Δ_i = (p_i(y|x) − p(y|x)) / p(y|x)     relative residual of stream i
 *   ρ   = correlation of Δ_i and Δ_j       L(N, P) = E + (A/N)^α ((P − 1) ρ + 1) / P
 *
 * Takes log-probabilities that each stream alone gave to the tokens of a text. The true
 * distribution p is not known, so the observed token stands in its place, with p = 1: Δ_i = p_i(y)
 * − 1. Some tokens are hard to foresee for any stream; the estimate counts this common part as
 * correlation, so it tends to lie above the ρ of the theory, and says more beside another model's
 * on the same text than by itself.
 */
/** Blocks of consecutive tokens for the standard error. */
const BLOCKS = 20;

/** Predictions of one text. */
export interface StreamPredictions {
  /** log p_i(y) of every predicted token [T][P]. */
  readonly streams: readonly ArrayLike<number>[];
  /** log p(y) of the model as a whole [T]. */
  readonly model: ArrayLike<number>;
}

/** How alike the streams' residuals are. */
export interface Diversity {
  /** Predicted tokens. */
  readonly tokens: number;
  /** Mean over pairs of streams of their residuals' correlation; undefined if one never varies. */
  readonly rho: number | undefined;
  /**
   * Standard error of `rho`: jackknife over 20 blocks of consecutive tokens. Undefined below two
   * tokens per block.
   */
  readonly standardError: number | undefined;
  /** Mean relative residual of each stream [P], from −1 (never foreseen) to 0 (always certain). */
  readonly meanResiduals: readonly number[];
  /** Mean −log p(y) of each stream alone [P], in nats. */
  readonly streamLosses: readonly number[];
  /**
   * Mean −log of the plain mean of the streams' probabilities, the mixture of the theory, in nats.
   */
  readonly meanMixtureLoss: number;
  /** Mean −log p(y) of the model, which mixes hidden states by its own weights, in nats. */
  readonly modelLoss: number;
}

/** Diversity of the streams over all texts; undefined when no token has one before it. */
export function diversityOf(texts: readonly StreamPredictions[]): Diversity | undefined {
  const rows = texts.flatMap(({ streams }) => streams);
  const T = rows.length;
  if (T === 0) return undefined;
  const P = rows[0]!.length;
  const residuals = rows.map((row) => Float64Array.from(row, (logprob) => Math.exp(logprob) - 1));
  const blocks = Array.from({ length: BLOCKS }, () => new Moments(residuals[0]!));
  residuals.forEach((row, t) => blocks[Math.floor(t * BLOCKS / T)]!.add(row));
  const moments = blocks.reduce((sum, block) => sum.with(block, 1), new Moments(residuals[0]!));
  const places = Array.from({ length: P }, (_, p) => p);
  const models = texts.flatMap(({ model }) => Array.from(model));
  return {
    tokens: T,
    rho: moments.meanCorrelation(),
    standardError: T < 2 * BLOCKS ? undefined : jackknifeError(moments, blocks),
    meanResiduals: places.map((p) => moments.mean(p)),
    streamLosses: places.map((p) => -meanOf(rows.map((row) => row[p]!))),
    meanMixtureLoss: meanOf(rows.map(mixtureLoss)),
    modelLoss: -meanOf(models),
  };
}

/** −log of the mean of probabilities, which may all be too small to be told from 0. */
function mixtureLoss(logprobs: ArrayLike<number>): number {
  const all = Array.from(logprobs);
  const peak = Math.max(...all);
  return Math.log(all.length) - peak -
    Math.log(all.reduce((sum, x) => sum + Math.exp(x - peak), 0));
}

function meanOf(values: readonly number[]): number {
  return values.reduce((sum, x) => sum + x, 0) / values.length;
}

/**
 * Sums of rows of P numbers, for their means and correlations. They are kept relative to an origin,
 * or else rows that hardly vary would lose their variance in rounding; sums of two sets only
 * subtract when both have the same origin.
 */
class Moments {
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

  /** Adds one row. */
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

  /** Mean of column i. */
  mean(i: number): number {
    return this.origin[i]! + this.#sums[i]! / this.#count;
  }

  /** Mean over pairs i < j of Pearson's correlation; undefined where one column never varies. */
  meanCorrelation(): number | undefined {
    let sum = 0, pairs = 0;
    for (let i = 0; i < this.origin.length; i++) {
      for (let j = i + 1; j < this.origin.length; j++, pairs++) {
        const variances = this.#covariance(i, i) * this.#covariance(j, j);
        if (!(variances > 0)) return undefined;
        const value = this.#covariance(i, j) / Math.sqrt(variances);
        sum += Math.max(-1, Math.min(1, value));
      }
    }
    return pairs === 0 ? undefined : sum / pairs;
  }

  #covariance(i: number, j: number): number {
    const n = this.#count, P = this.origin.length;
    return this.#products[i * P + j]! / n - (this.#sums[i]! / n) * (this.#sums[j]! / n);
  }
}

/** √((n − 1)/n Σ (x − mean)²) over estimates with one block left out each. */
function jackknifeError(all: Moments, blocks: readonly Moments[]): number | undefined {
  const estimates = blocks.map((block) => all.with(block, -1).meanCorrelation());
  const known = estimates.filter((x) => x !== undefined);
  if (known.length < estimates.length) return undefined;
  const mean = meanOf(known);
  const squares = known.reduce((sum, x) => sum + (x - mean) ** 2, 0);
  return Math.sqrt((BLOCKS - 1) / BLOCKS * squares);
}
