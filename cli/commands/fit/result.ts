/** A study as fields with fixed names, for JSON and for the tables that show them. */
import { type Fit, type Interval, intervalOf, type Parameter } from "../../../core/analysis/fit.ts";
import { type Law, predictLoss } from "../../../core/analysis/law.ts";
import type { Question } from "./queries.ts";
import { hasConverged, type Outcome, type Study } from "./study.ts";

/** Name and version of the layout. */
export const SCHEMA = "parscale.fit/2";

/** Parameters of a law by the names of the paper, in its order. */
export function namesOf({ kind }: Law): [name: string, key: Parameter][] {
  const stream: [string, Parameter][] = kind === "chinchilla"
    ? []
    : [[kind === "log" ? "k" : "rho", "stream"]];
  return [["E", "E"], ["A", "A"], ...stream, ["alpha", "alpha"]];
}

/** Parameters of a law as an object. */
export function parametersOf(law: Law): Record<string, number> {
  return Object.fromEntries(namesOf(law).map(([name, key]) => [name, law[key]]));
}

/** Everything a document says. */
export function resultOf(study: Study) {
  const { best, outcomes, bootstrap, questions } = study;
  const { law, fit } = best;
  return {
    law: law.kind,
    observations: study.name,
    parameters_from: fit === undefined ? "paper" : "fit",
    parameters: parametersOf(law),
    huber_loss: best.huberLoss,
    r2: finite(best.r2),
    converged: hasConverged(study),
    starts: fit?.starts ?? null,
    starts_converged: fit?.startsConverged ?? null,
    start: fit === undefined
      ? null
      : parametersOf({ ...fit.start, A: fit.start.A * 1e9, kind: law.kind }),
    second_best: fit?.secondBest === undefined ? null : summary(fit.secondBest),
    intervals: bootstrap === undefined ? null : parameterIntervals(study),
    bootstrap: bootstrap === undefined
      ? null
      : { refits: bootstrap.laws.length, dropped: bootstrap.dropped },
    comparison: outcomes.length < 2 ? null : outcomes.map(comparisonOf),
    queries: questions.map((question) => answerOf(question, study)),
    rows: rowsOf(study),
  };
}

/** R² does not exist for losses that are all equal. */
function finite(value: number): number | null {
  return Number.isFinite(value) ? value : null;
}

function summary({ law, huberLoss, r2 }: Fit) {
  return { parameters: parametersOf(law), huber_loss: huberLoss, r2: finite(r2) };
}

/** Intervals of the parameters by name. */
export function parameterIntervals({ best, bootstrap }: Study): Record<string, Interval> {
  return Object.fromEntries(
    namesOf(best.law).flatMap(([name, key]) => {
      const interval = intervalOf(bootstrap?.laws ?? [], (law) => law[key]);
      return interval === undefined ? [] : [[name, interval]];
    }),
  );
}

/** One line of a comparison of laws. */
export function comparisonOf({ law, huberLoss, r2 }: Outcome) {
  return {
    law: law.kind,
    huber_loss: huberLoss,
    r2: finite(r2),
    parameters: parametersOf(law),
  };
}

/** An answer, with its interval where there are refits. */
export function answerOf({ query, given, answer }: Question, { best, bootstrap }: Study) {
  const unreachable = bootstrap?.laws.filter((law) => answer(law) === undefined).length;
  return {
    query,
    ...given,
    value: answer(best.law) ?? null,
    interval: bootstrap === undefined ? null : intervalOf(bootstrap.laws, answer) ?? null,
    /** Refits without an answer, which the interval leaves out. */
    refits_out_of_reach: unreachable ?? null,
  };
}

/** One row per observation. */
export function rowsOf({ best: { law }, observations }: Study) {
  return observations.map(({ n, p, loss }) => {
    const predicted = predictLoss(law, n, p);
    return { streams: p, n_params: n, predicted, loss, error: predicted - loss };
  });
}
