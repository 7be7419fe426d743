/**
 * Scaling laws of the paper: loss as a function of parameters N and streams P.
 *
 *   L = E + (A / (N m(P)))^α
 *   log          m = k ln P + 1                            the law the paper settles on
 *   theoretical  m = (P / ((P − 1) ρ + 1))^(1/α)           streams whose residuals correlate by ρ
 *   chinchilla   m = 1                                     parameters alone
 *
 * P streams act like m(P) times the parameters. N counts non-embedding parameters, prefixes and
 * aggregator included, for the P in question; going from P = 1 to 8 adds one or two percent to it.
 */

/** Name of a law. */
export type LawKind = "log" | "theoretical" | "chinchilla";

/** A law with its parameters; `stream` is k or ρ, and unused in the Chinchilla law. */
export interface Law {
  readonly kind: LawKind;
  readonly E: number;
  /** In parameters, not billions of them. */
  readonly A: number;
  readonly alpha: number;
  readonly stream: number;
}

/** One trained model. */
export interface Observation {
  readonly n: number;
  readonly p: number;
  readonly loss: number;
}

/** m(P): how many times the parameters P streams are worth. */
export function streamFactor({ kind, stream, alpha }: Law, P: number): number {
  if (kind === "log") return stream * Math.log(P) + 1;
  if (kind === "theoretical") return (P / ((P - 1) * stream + 1)) ** (1 / alpha);
  return 1;
}

/** Loss of a model with N parameters and P streams. */
export function predictLoss(law: Law, N: number, P: number): number {
  if (law.kind === "theoretical") { // not by m(P), which overflows where α is small
    return law.E + (law.A / N) ** law.alpha * ((P - 1) * law.stream + 1) / P;
  }
  return law.E + (law.A / (N * streamFactor(law, P))) ** law.alpha;
}

/** Parameters that a model with one stream needs to act like N parameters with P streams. */
export function equivalentParameters(law: Law, N: number, P: number): number {
  return N * streamFactor(law, P);
}

/** Parameters needed for a loss with P streams; undefined where no number reaches it. */
export function parametersForLoss(law: Law, loss: number, P: number): number | undefined {
  if (!(loss > law.E)) return undefined;
  return law.A / (streamFactor(law, P) * (loss - law.E) ** (1 / law.alpha));
}

/** Streams with which N parameters reach a loss; undefined where no number of streams does. */
export function streamsForLoss(law: Law, N: number, loss: number): number | undefined {
  const M = parametersForLoss(law, loss, 1);
  if (M === undefined) return undefined;
  if (M <= N) return 1;
  if (law.kind === "chinchilla") return undefined;
  if (law.kind === "log") return Math.exp((M / N - 1) / law.stream);
  const r = (M / N) ** law.alpha;
  return r * law.stream >= 1 ? undefined : r * (1 - law.stream) / (1 - r * law.stream);
}
