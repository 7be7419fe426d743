/**
 * Correlation of the streams' errors: an estimate of ρ in the theory of the ParScale paper.
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
interface StreamPredictions {
  /** log p_i(y) of every predicted token [T][P]. */
  readonly streams: readonly ArrayLike<number>[];
  /** log p(y) of the model as a whole [T]. */
  readonly model: ArrayLike<number>;
}

/** Correlation of the streams' residuals, and their losses. */
export interface Diversity {
  /** Predicted tokens. */
  readonly tokens: number;
  /** Mean over pairs of streams of their residuals' correlation; undefined if one never varies. */
  readonly rho: number | undefined;
  /**
   * Standard error of `rho`: jackknife over 20 blocks of consecutive tokens. Undefined below two
   * tokens per block.
   */
  readonly rhoStandardError: number | undefined;
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
  const meanOfEach = (table: readonly ArrayLike<number>[]) =>
    Array.from({ length: P }, (_, p) => meanOf(table.map((row) => row[p]!)));
  return {
    tokens: T,
    rho: meanCorrelation(residuals),
    rhoStandardError: T < 2 * BLOCKS ? undefined : jackknifeError(residuals),
    meanResiduals: meanOfEach(residuals),
    streamLosses: meanOfEach(rows).map((logprob) => -logprob),
    meanMixtureLoss: meanOf(rows.map(mixtureLoss)),
    modelLoss: -meanOf(texts.flatMap(({ model }) => Array.from(model))),
  };
}

/** −log of the mean of probabilities, which may all be too small to be told from 0. */
function mixtureLoss(logprobs: ArrayLike<number>): number {
  const all = Array.from(logprobs);
  const largest = Math.max(...all);
  return Math.log(all.length) - largest -
    Math.log(all.reduce((sum, x) => sum + Math.exp(x - largest), 0));
}

function meanOf(values: readonly number[]): number {
  return values.reduce((sum, x) => sum + x, 0) / values.length;
}

/** Mean over pairs i < j of Pearson's correlation of columns; undefined where one never varies. */
function meanCorrelation(rows: readonly Float64Array[]): number | undefined {
  const P = rows[0]!.length;
  const means = Array.from({ length: P }, (_, p) => meanOf(rows.map((row) => row[p]!)));
  // Relative to the means, or else rows that hardly vary would lose their variance in rounding.
  const covariance = (i: number, j: number) =>
    rows.reduce((sum, row) => sum + (row[i]! - means[i]!) * (row[j]! - means[j]!), 0);
  const variances = means.map((_, p) => covariance(p, p));
  if (P < 2 || !variances.every((variance) => variance > 0)) return undefined;
  let sum = 0;
  for (let i = 0; i < P; i++) {
    for (let j = i + 1; j < P; j++) {
      const value = covariance(i, j) / Math.sqrt(variances[i]! * variances[j]!);
      sum += Math.max(-1, Math.min(1, value));
    }
  }
  return sum / (P * (P - 1) / 2);
}

/** √((n − 1)/n Σ (x − mean)²) over estimates with one block of consecutive rows left out each. */
function jackknifeError(rows: readonly Float64Array[]): number | undefined {
  const blockOf = (t: number) => Math.floor(t * BLOCKS / rows.length);
  const estimates = Array.from(
    { length: BLOCKS },
    (_, block) => meanCorrelation(rows.filter((_, t) => blockOf(t) !== block)),
  );
  const known = estimates.filter((x) => x !== undefined);
  if (known.length < estimates.length) return undefined;
  const mean = meanOf(known);
  const squares = known.reduce((sum, x) => sum + (x - mean) ** 2, 0);
  return Math.sqrt((BLOCKS - 1) / BLOCKS * squares);
}
