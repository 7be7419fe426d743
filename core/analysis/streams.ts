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

/** Similarity of texts in the streams they prefer. */
export interface TextAgreement {
  /**
   * Mean over pairs of texts of Σ min(share, share'): the part of the tokens that two texts give to
   * the same streams. 1 when all shares are equal, 0 when no stream wins in both.
   */
  readonly shareOverlap: number;
  /**
   * Share of pairs of occurrences of one token id in different texts that have the same winner.
   * Undefined when no id stands in two texts.
   */
  readonly sameToken: number | undefined;
  /**
   * The same expected if winners did not depend on the token: Σ share · share', on the same pairs.
   */
  readonly sameTokenByChance: number | undefined;
  /** Pairs of occurrences behind these two numbers. */
  readonly tokenPairs: number;
}

/** Agreement between texts; undefined unless there are at least two. */
export function agreementOf(texts: readonly WeightedText[]): TextAgreement | undefined {
  const used = texts.filter(({ weights }) => weights.length > 0);
  if (used.length < 2) return undefined;
  const shares = used.map((text) => describeStreams([text]).shares);
  const { pairs, agreeing, expected } = tokenPairs(used, shares);
  return {
    shareOverlap: overlapOfPairs(shares) / (used.length * (used.length - 1) / 2),
    sameToken: pairs === 0 ? undefined : agreeing / pairs,
    sameTokenByChance: pairs === 0 ? undefined : expected / pairs,
    tokenPairs: pairs,
  };
}

/**
 * Σ over pairs and streams of min(share, share'): in order of size, each is the smaller of the
 * rest.
 */
function overlapOfPairs(shares: readonly (readonly number[])[]): number {
  const K = shares.length;
  return shares[0]!.reduce((sum, _, p) => {
    const sorted = shares.map((own) => own[p]!).sort((a, b) => a - b);
    return sum + sorted.reduce((part, share, i) => part + share * (K - 1 - i), 0);
  }, 0);
}

/**
 * Pairs of occurrences of equal ids in different texts. Sums over all pairs minus those inside one
 * text are (Σ x)² − Σ x², so nothing is compared pair by pair.
 */
function tokenPairs(texts: readonly WeightedText[], shares: readonly (readonly number[])[]) {
  const P = shares[0]!.length;
  // Wins [P] by id and text.
  const byId = new Map<number, Map<number, number[]>>();
  texts.forEach(({ tokens, weights }, text) => {
    tokens.forEach((id, t) => {
      const inTexts = byId.getOrInsertComputed(id, () => new Map());
      inTexts.getOrInsertComputed(text, () => new Array(P).fill(0))[winnerOf(weights[t]!)]!++;
    });
  });
  const sum = (values: readonly number[]) => values.reduce((a, b) => a + b, 0);
  const across = (values: readonly number[]) =>
    (sum(values) ** 2 - sum(values.map((x) => x * x))) / 2;
  let pairs = 0, agreeing = 0, expected = 0;
  for (const inTexts of byId.values()) {
    const seen = Array.from(inTexts, ([text, wins]) => ({ text, wins, count: sum(wins) }));
    pairs += across(seen.map(({ count }) => count));
    for (let p = 0; p < P; p++) {
      agreeing += across(seen.map(({ wins }) => wins[p]!));
      expected += across(seen.map(({ text, count }) => count * shares[text]![p]!));
    }
  }
  return { pairs, agreeing, expected };
}
