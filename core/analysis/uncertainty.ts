/**
 * Bootstrap of a fitted law: refits to observations drawn with replacement.
 *
 * The paper gives point estimates. Its valley is flat: E and α trade off against each other, so their
 * intervals are wide while that of k is narrow, which is why anything derived from a law should be
 * computed for every refit and not from intervals of parameters.
 */
import { quantileOf } from "../base/statistics.ts";
import { RandomStream } from "../base/random.ts";
import { refit } from "./fit.ts";
import type { Law, Observation } from "./law.ts";

/** Names of what is estimated, in the order of tables. */
export const PARAMETERS = ["E", "A", "alpha", "stream"] as const;

/** A parameter of a law. */
export type Parameter = typeof PARAMETERS[number];

/** Refits of resampled observations. */
export interface Bootstrap {
  readonly laws: readonly Law[];
  /** Refits that reached no optimum and were left out. */
  readonly dropped: number;
}

/** The gradient of a finished fit is below this; the objective's own scale is 10⁻⁵. */
export const FLAT = 1e-7;

/** Refits of observations drawn with replacement; the same seed draws the same. */
export function bootstrap(
  observations: readonly Observation[],
  law: Law,
  { resamples, seed }: { resamples: number; seed: number },
): Bootstrap {
  const random = new RandomStream(seed, "bootstrap");
  const laws: Law[] = [];
  let dropped = 0;
  for (let i = 0; i < resamples; i++) {
    const drawn = observations.map(() => observations[random.integer(observations.length)]!);
    const fit = refit(drawn, law);
    const isUsable = fit.slope < FLAT &&
      Object.values(fit.law).every((x) => typeof x === "string" || Number.isFinite(x));
    if (isUsable) laws.push(fit.law);
    else dropped++;
  }
  return { laws, dropped };
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
