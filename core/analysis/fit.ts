/**
 * Fits a scaling law to observed losses, as the ParScale paper does: the sum of Huber losses of
 * ln L_pred − ln L_true, from a grid of starting points; and refits it to resampled observations.
 *
 * Differences on purpose: variables are logarithms, which keeps them positive, gradients are exact,
 * and every start descends to the optimum itself. The reference stops earlier in a flat valley, which
 * is why its last digits depend on the version of its optimiser.
 */
import { DataError } from "../base/errors.ts";
import { RandomStream } from "../base/random.ts";
import { quantileOf } from "../base/statistics.ts";
import { minimize, type Minimum, type Objective } from "./lbfgs.ts";
import { type Law, type LawKind, type Observation, predictLoss } from "./law.ts";

/** Error at which Huber's loss turns from a parabola into a line. */
const DELTA = 1e-3;

/** A is of order 0.01 to 1 in these units. */
const UNIT = 1e9;

/** Objectives closer than this count as the same optimum. */
const SAME = 1e-9;

/** The paper's starting points: E, A / 10⁹, α, k or ρ. */
const START_GRID = {
  E: [-1, -0.5, 0].map(Math.exp),
  A: [-4, -2, 0, 2, 4].map(Math.exp),
  alpha: [0, 0.5, 1, 1.5, 2],
  stream: [0.2, 0.4, 0.6, 0.8],
} as const;

/** Replaces the grid's first α, whose logarithm would be infinite. */
const LEAST_ALPHA = 0.05;

/** Smallest E, k or ρ from which a refit starts. */
const LEAST_REFIT = 0.01;

/** A starting point in the units of the grid. */
export type Start = Omit<Law, "kind">;

/** A law and how well it fits. */
export interface Fit {
  readonly law: Law;
  /** Sum, not mean. */
  readonly huberLoss: number;
  /** On losses, not on logarithms. */
  readonly r2: number;
  /** Largest entry of the gradient in logarithmic parameters; nearly zero at an optimum. */
  readonly slope: number;
}

/** A fit from all starts. */
export interface GridFit extends Fit {
  readonly starts: number;
  /** Starts that reached the same objective. */
  readonly startsConverged: number;
}

/** Every starting point for a law. */
function startsFor(kind: LawKind): Start[] {
  const { E, A, alpha, stream } = START_GRID;
  const streams = kind === "chinchilla" ? [1] : stream;
  return E.flatMap((e) =>
    A.flatMap((a) =>
      alpha.flatMap((x) =>
        streams.map((s) => ({ E: e, A: a, alpha: Math.max(x, LEAST_ALPHA), stream: s }))
      )
    )
  );
}

/**
 * Fits from the whole grid.
 * @throws {DataError} when the observations cannot determine the law
 */
export function fitLaw(observations: readonly Observation[], kind: LawKind): GridFit {
  requireEnough(observations, kind);
  const starts = startsFor(kind);
  const minima = starts.map((start) => descend(observations, kind, start));
  const best = minima.reduce((best, one) => one.value < best.value ? one : best);
  return {
    ...fitOf(best, observations, kind),
    starts: starts.length,
    startsConverged: minima.filter(({ value }) => value - best.value <= SAME).length,
  };
}

/**
 * Fits from one law, for instance that of all observations when some are left out. What is at its bound
 * there starts above it: at zero its logarithm has no slope, and no descent would leave it.
 */
export function refit(observations: readonly Observation[], from: Law): Fit {
  const start = {
    E: Math.max(from.E, LEAST_REFIT),
    A: from.A / UNIT,
    alpha: from.alpha,
    stream: Math.max(from.stream, LEAST_REFIT),
  };
  return fitOf(descend(observations, from.kind, start), observations, from.kind);
}

/** Objective and R² of a given law. */
export function assess(
  law: Law,
  observations: readonly Observation[],
): Pick<Fit, "huberLoss" | "r2"> {
  const mean = observations.reduce((sum, { loss }) => sum + loss, 0) / observations.length;
  let huberLoss = 0, residual = 0, total = 0;
  for (const { n, p, loss } of observations) {
    const predicted = predictLoss(law, n, p);
    huberLoss += huber(Math.log(predicted) - Math.log(loss));
    residual += (loss - predicted) ** 2;
    total += (loss - mean) ** 2;
  }
  return { huberLoss, r2: 1 - residual / total };
}

function fitOf(minimum: Minimum, observations: readonly Observation[], kind: LawKind): Fit {
  const [E, A, alpha, stream = 0] = [...minimum.x].map(Math.exp) as [
    number,
    number,
    number,
    number?,
  ];
  const law = { kind, E, A: A * UNIT, alpha, stream };
  return { law, ...assess(law, observations), slope: minimum.slope };
}

function descend(observations: readonly Observation[], kind: LawKind, start: Start): Minimum {
  const { E, A, alpha, stream } = start;
  const values = [E, A, alpha, stream].slice(0, COUNTS[kind]);
  return minimize(objectiveOf(observations, kind), values.map(Math.log));
}

function huber(e: number): number {
  const size = Math.abs(e);
  return size <= DELTA ? e * e / 2 : DELTA * (size - DELTA / 2);
}

/**
 * The objective in ln E, ln A / 10⁹, ln α and ln k or ln ρ, with its gradient. Logarithms of what
 * depends on P alone are taken once per P, not per row: they are half the work.
 */
function objectiveOf(observations: readonly Observation[], kind: LawKind): Objective {
  const streams = [...new Set(observations.map(({ p }) => p))];
  const lnP = Float64Array.from(streams, Math.log);
  const place = Uint32Array.from(observations, ({ p }) => streams.indexOf(p));
  const lnN = Float64Array.from(observations, ({ n }) => Math.log(n / UNIT));
  const lnL = Float64Array.from(observations, ({ loss }) => Math.log(loss));
  // Of each P: the logarithm of what N is multiplied with, what the whole term is multiplied with,
  // and how the term changes with the stream parameter, over (A / N m)^α.
  const lnM = new Float64Array(streams.length);
  const share = new Float64Array(streams.length).fill(1);
  const byParameter = new Float64Array(streams.length);
  return (x, gradient) => {
    const [E, alpha, stream] = [Math.exp(x[0]!), Math.exp(x[2]!), Math.exp(x[3] ?? 0)];
    for (let s = 0; s < streams.length; s++) {
      if (kind === "log") {
        const m = stream * lnP[s]! + 1;
        lnM[s] = Math.log(m);
        byParameter[s] = -alpha * lnP[s]! / m;
      }
      if (kind === "theoretical") {
        share[s] = ((streams[s]! - 1) * stream + 1) / streams[s]!;
        byParameter[s] = 1 - 1 / streams[s]!;
      }
    }
    const lnA = x[1]!;
    let value = 0, byE = 0, byA = 0, byAlpha = 0, byStream = 0;
    for (let row = 0; row < lnN.length; row++) {
      const s = place[row]!;
      const ratio = lnA - lnN[row]! - lnM[s]!; // ln of A / (N m)
      const base = Math.exp(alpha * ratio);
      const t = base * share[s]!;
      const L = E + t;
      const e = Math.log(L) - lnL[row]!;
      value += huber(e);
      const g = (e > DELTA ? DELTA : e < -DELTA ? -DELTA : e) / L;
      byE += g;
      byA += g * t;
      byAlpha += g * t * ratio;
      byStream += g * base * byParameter[s]!;
    }
    gradient[0] = byE * E;
    gradient[1] = byA * alpha;
    gradient[2] = byAlpha * alpha;
    if (gradient.length > 3) gradient[3] = byStream * stream;
    return value;
  };
}

/** Parameters of each law. */
const COUNTS: Readonly<Record<LawKind, number>> = { chinchilla: 3, log: 4, theoretical: 4 };

/** Fewest different P that determine a law. */
const FEWEST_STREAMS: Readonly<Record<LawKind, number>> = { chinchilla: 1, log: 2, theoretical: 2 };

const countDistinct = (observations: readonly Observation[], key: "n" | "p") =>
  new Set(observations.map((row) => row[key])).size;

/** More observations than parameters, and several P where a law has streams. */
function requireEnough(observations: readonly Observation[], kind: LawKind): void {
  const parameters = COUNTS[kind];
  if (observations.length <= parameters) {
    throw new DataError(
      `the ${kind} law has ${parameters} parameters and needs more observations than that: there ` +
        `are ${observations.length}`,
      { hints: ["add losses of models with other numbers of parameters or streams"] },
    );
  }
  const streams = countDistinct(observations, "p");
  if (streams < FEWEST_STREAMS[kind]) {
    const name = kind === "log" ? "k" : "ρ";
    throw new DataError(
      `the ${kind} law needs several P to determine ${name}: all ` +
        `observations have P = ${observations[0]!.p}`,
      { hints: ["fit E, A and α alone with `--law chinchilla`"] },
    );
  }
  if (countDistinct(observations, "n") < 2) {
    throw new DataError(
      `the ${kind} law needs several N: all observations have N = ${observations[0]!.n}`,
      { hints: ["add losses of models with other numbers of parameters"] },
    );
  }
}

/** A parameter of a law. */
export type Parameter = keyof Start;

/** Refits of resampled observations. */
export interface Bootstrap {
  readonly laws: readonly Law[];
  /** Refits left out: they reached no optimum, or had too few different N or P to determine one. */
  readonly dropped: number;
}

/** The gradient of a finished fit is below this; the objective's own scale is 10⁻⁵. */
export const FLAT = 1e-7;

/**
 * Refits of observations drawn with replacement; the same seed draws the same.
 *
 * The paper gives point estimates. Its valley is flat: E and α trade off against each other, so their
 * intervals are wide while that of k is narrow, which is why anything derived from a law should be
 * computed for every refit and not from intervals of parameters.
 */
export function bootstrap(
  observations: readonly Observation[],
  law: Law,
  { resamples, seed }: { resamples: number; seed: number },
): Bootstrap {
  const random = new RandomStream(seed, "bootstrap");
  const laws: Law[] = [];
  for (let i = 0; i < resamples; i++) {
    const drawn = observations.map(() => observations[random.integer(observations.length)]!);
    // A parameter that the drawn rows do not determine would stay where it starts.
    const isDetermined = countDistinct(drawn, "n") > 1 &&
      countDistinct(drawn, "p") >= FEWEST_STREAMS[law.kind];
    if (!isDetermined) continue;
    const fit = refit(drawn, law);
    const isUsable = fit.slope < FLAT &&
      Object.values(fit.law).every((x) => typeof x === "string" || Number.isFinite(x));
    if (isUsable) laws.push(fit.law);
  }
  return { laws, dropped: resamples - laws.length };
}

/** A median and an interval that holds 95 percent. */
export interface Interval {
  readonly low: number;
  readonly median: number;
  readonly high: number;
}

/** Percentiles 2.5, 50 and 97.5 of any quantity of the refitted laws; undefined values are left out. */
export function intervalOf(
  laws: readonly Law[],
  quantity: (law: Law) => number | undefined,
): Interval | undefined {
  const values = laws.map(quantity).filter((x) =>
    x !== undefined && Number.isFinite(x)
  ) as number[];
  if (values.length === 0) return undefined;
  values.sort((a, b) => a - b);
  const at = (share: number) => quantileOf(values, share);
  return { low: at(0.025), median: at(0.5), high: at(0.975) };
}
