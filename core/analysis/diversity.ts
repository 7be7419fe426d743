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
import { Moments } from "./correlation.ts";

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
  /** Pearson's correlation of the residuals of two streams over tokens [P][P]. */
  readonly correlations: readonly (readonly (number | undefined)[])[];
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
    correlations: moments.matrix(),
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

/** √((n − 1)/n Σ (x − mean)²) over estimates with one block left out each. */
function jackknifeError(all: Moments, blocks: readonly Moments[]): number | undefined {
  const estimates = blocks.map((block) => all.with(block, -1).meanCorrelation());
  const known = estimates.filter((x) => x !== undefined);
  if (known.length < estimates.length) return undefined;
  const mean = meanOf(known);
  const squares = known.reduce((sum, x) => sum + (x - mean) ** 2, 0);
  return Math.sqrt((BLOCKS - 1) / BLOCKS * squares);
}
