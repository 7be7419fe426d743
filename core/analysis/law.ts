/**
 * Scaling laws: loss as a function of parameters N and streams P. The additive law is ours, the others are
 * the paper's.
 *
 *   L = E + (A / (N m(P)))^α
 *   log          m = k ln P + 1                            the law the paper settles on
 *   theoretical  m = (P / ((P − 1) ρ + 1))^(1/α)           streams whose residuals correlate by ρ
 *   chinchilla   m = 1                                     parameters alone
 *
 *   additive     L = E + (A / N)^α + b P^−β                a gain from streams that is the same at any N
 *
 * In all but the last, P streams act like m(P) times the parameters. N counts non-embedding parameters, prefixes and
 * aggregator included, for the P in question; going from P = 1 to 8 adds one or two percent to it.
 */

/** Name of a law. */
export type LawKind = "log" | "theoretical" | "chinchilla" | "additive";

/** A law with its parameters; `stream` is k, ρ or b, and unused in the Chinchilla law. */
export interface Law {
  readonly kind: LawKind;
  readonly E: number;
  /** In parameters, not billions of them. */
  readonly A: number;
  readonly alpha: number;
  readonly stream: number;
  /** Of the additive law alone. */
  readonly beta?: number;
}

/** One trained model. */
export interface Observation {
  readonly n: number;
  readonly p: number;
  readonly loss: number;
}

/** b P^−β of the additive law. */
function streamTerm({ stream, beta = 1 }: Law, P: number): number {
  return stream * P ** -beta;
}

/** m(P): how many times the parameters P streams are worth; the additive law has none. */
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
  if (law.kind === "additive") return law.E + (law.A / N) ** law.alpha + streamTerm(law, P);
  return law.E + (law.A / (N * streamFactor(law, P))) ** law.alpha;
}

/**
 * Parameters that a model with one stream needs to act like N parameters with P streams; undefined where
 * no number of parameters does.
 */
export function equivalentParameters(law: Law, N: number, P: number): number | undefined {
  if (law.kind === "additive") return parametersForLoss(law, predictLoss(law, N, P), 1);
  return N * streamFactor(law, P);
}

/** Parameters needed for a loss with P streams; undefined where no number reaches it. */
export function parametersForLoss(law: Law, loss: number, P: number): number | undefined {
  if (law.kind === "additive") {
    const rest = loss - law.E - streamTerm(law, P);
    return rest > 0 ? law.A / rest ** (1 / law.alpha) : undefined;
  }
  if (!(loss > law.E)) return undefined;
  return law.A / (streamFactor(law, P) * (loss - law.E) ** (1 / law.alpha));
}

/** Streams with which N parameters reach a loss; undefined where no number of streams does. */
export function streamsForLoss(law: Law, N: number, loss: number): number | undefined {
  if (law.kind === "additive") {
    const rest = loss - law.E - (law.A / N) ** law.alpha;
    return rest > 0 ? Math.max(1, (law.stream / rest) ** (1 / law.beta!)) : undefined;
  }
  const M = parametersForLoss(law, loss, 1);
  if (M === undefined) return undefined;
  if (M <= N) return 1;
  if (law.kind === "chinchilla") return undefined;
  if (law.kind === "log") return Math.exp((M / N - 1) / law.stream);
  const r = (M / N) ** law.alpha;
  return r * law.stream >= 1 ? undefined : r * (1 - law.stream) / (1 - r * law.stream);
}
