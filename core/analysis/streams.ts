/**
 * Statistics of the aggregation weights of a ParScale model.
 *
 * Every token has a row of P weights, which sum to 1. Runs never cross from one text to the next, so
 * the length expected by chance depends on how the texts are cut.
 */

/** A text and the aggregation weights at its tokens. */
export interface WeightedText {
  /** T token ids. */
  readonly tokens: readonly number[];
  /** [T][P] */
  readonly weights: readonly ArrayLike<number>[];
}

/** Statistics of the weights of one or more texts. */
export interface StreamStatistics {
  readonly tokens: number;
  /** Share of the tokens that each stream wins [P]; sums to 1. */
  readonly shares: readonly number[];
  /** Mean weight of each stream [P]; sums to 1. */
  readonly meanWeights: readonly number[];
  /** Mean over tokens of the entropy of the weights, in nats: 0 when one stream has all. */
  readonly meanEntropy: number;
  /** The same as a share of ln P, which is the entropy of equal weights. */
  readonly entropyShare: number;
  /** Tokens per run, a run being consecutive tokens of one text with the same winner. */
  readonly meanRunLength: number;
  /**
   * The same if every winner were drawn by itself with the probabilities `shares`: tokens divided
   * by the expected number of runs, which is 1 + (T − 1)(1 − Σ shares²) for a text of T tokens.
   */
  readonly chanceRunLength: number;
  /** `meanRunLength / chanceRunLength`: above 1, neighbouring tokens prefer the same stream. */
  readonly locality: number;
}

/** The stream with the largest weight; the first of several with the same weight. */
export function winnerOf(weights: ArrayLike<number>): number {
  let winner = 0;
  for (let p = 1; p < weights.length; p++) if (weights[p]! > weights[winner]!) winner = p;
  return winner;
}

/** −Σ w ln w in nats, from 0 to ln P. */
export function entropyOf(weights: ArrayLike<number>): number {
  let entropy = 0;
  for (let p = 0; p < weights.length; p++) {
    const weight = weights[p]!;
    if (weight > 0) entropy -= weight * Math.log(weight);
  }
  return Math.max(0, entropy);
}

/** Statistics of texts together; there must be at least one token. */
export function describeStreams(texts: readonly WeightedText[]): StreamStatistics {
  const rows = texts.flatMap(({ weights }) => weights);
  const P = rows[0]!.length;
  const wins = new Float64Array(P);
  const sums = new Float64Array(P);
  let entropy = 0, runs = 0;
  for (const { weights } of texts) {
    let last = -1;
    for (const row of weights) {
      const winner = winnerOf(row);
      wins[winner]!++;
      entropy += entropyOf(row);
      if (winner !== last) runs++;
      last = winner;
      for (let p = 0; p < P; p++) sums[p]! += row[p]!;
    }
  }
  const shares = Array.from(wins, (count) => count / rows.length);
  const meanEntropy = entropy / rows.length;
  const meanRunLength = rows.length / runs;
  const chanceRunLength = rows.length / expectedRuns(texts, shares);
  return {
    tokens: rows.length,
    shares,
    meanWeights: Array.from(sums, (sum) => sum / rows.length),
    meanEntropy,
    entropyShare: P === 1 ? 0 : meanEntropy / Math.log(P),
    meanRunLength,
    chanceRunLength,
    locality: meanRunLength / chanceRunLength,
  };
}

/** Runs in texts whose winners are drawn independently: a new one begins wherever two differ. */
function expectedRuns(texts: readonly WeightedText[], shares: readonly number[]): number {
  const change = 1 - shares.reduce((sum, share) => sum + share ** 2, 0);
  return texts.reduce(
    (sum, { weights }) => weights.length === 0 ? sum : sum + 1 + (weights.length - 1) * change,
    0,
  );
}
