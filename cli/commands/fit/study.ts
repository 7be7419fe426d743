/**
 * Everything computed for one answer of `parscale fit`: laws, refits, answers, under the names of
 * documents.
 */
import {
  assess,
  type Bootstrap,
  bootstrap,
  type Fit,
  fitLaw,
  FLAT,
  type GridFit,
  type Interval,
  intervalOf,
  type Parameter,
} from "../../../core/analysis/fit.ts";
import { type Law, type LawKind, predictLoss } from "../../../core/analysis/law.ts";
import { DataError } from "../../../core/base/errors.ts";
import { answer, type FitPlan, type Question } from "./plan.ts";

/** One law with how well it fits. */
interface Outcome extends Omit<Fit, "slope"> {
  /** Undefined when the parameters were given. */
  readonly fit: GridFit | undefined;
}

/** Results of all laws, and more about the best, that with the smallest objective. */
export interface Study extends FitPlan {
  readonly best: Outcome;
  /** In the order they were asked for, the best among them. */
  readonly outcomes: readonly Outcome[];
  readonly bootstrap: Bootstrap | undefined;
  /** Intervals of the best law's parameters by name; of none without refits. */
  readonly intervals: Readonly<Record<string, Interval>>;
}

/**
 * Fits, compares, and refits the best.
 * @throws {DataError} for a question about a loss of E or less, which no model reaches
 */
export function studyLaws(plan: FitPlan): Study {
  const { observations, laws, resamples, seed } = plan;
  const outcomes = laws.map((law): Outcome => {
    if (typeof law !== "string") return { ...assess(law, observations), law, fit: undefined };
    const fit = fitLaw(observations, law);
    return { ...fit, fit };
  });
  const [best] = outcomes.toSorted((a, b) => a.huberLoss - b.huberLoss);
  const { law } = best!;
  const refits = resamples > 0 ? bootstrap(observations, law, { resamples, seed }) : undefined;
  requireReachable(plan, law);
  const intervals = namesOf(law).flatMap(([name, key]) => {
    const interval = intervalOf(refits?.laws ?? [], (law) => law[key]);
    return interval === undefined ? [] : [[name, interval]];
  });
  return {
    ...plan,
    best: best!,
    outcomes,
    bootstrap: refits,
    intervals: Object.fromEntries(intervals),
  };
}

function requireReachable({ questions }: FitPlan, { E }: Law): void {
  const low = questions.find(({ query, given }) => query.endsWith("_for_loss") && given.loss! <= E);
  if (low === undefined) return;
  throw new DataError(`loss ${low.given.loss} is out of reach: E of the law is ${E.toFixed(6)}`);
}

/** Returns true if the gradient vanishes at every fitted law. */
export function hasConverged({ outcomes }: Study): boolean {
  return outcomes.every(({ fit }) => fit === undefined || fit.slope < FLAT);
}

const STREAM_NAMES: Readonly<Record<LawKind, [name: string, key: Parameter][]>> = {
  chinchilla: [],
  log: [["k", "stream"]],
  theoretical: [["rho", "stream"]],
};

/** Parameters of a law by the names of the paper, in its order. */
export function namesOf({ kind }: Law): [name: string, key: Parameter][] {
  return [["E", "E"], ["A", "A"], ...STREAM_NAMES[kind], ["alpha", "alpha"]];
}

function parametersOf(law: Law): Record<string, number> {
  return Object.fromEntries(namesOf(law).map(([name, key]) => [name, law[key]]));
}

/** Everything a document says. */
export function resultOf(study: Study) {
  const { best, outcomes, bootstrap, intervals, questions } = study;
  const { law, fit } = best;
  return {
    law: law.kind,
    observations: study.name,
    parameters_from: fit === undefined ? "paper" : "fit",
    ...summaryOf(best),
    converged: hasConverged(study),
    starts: fit?.starts ?? null,
    starts_converged: fit?.startsConverged ?? null,
    intervals: bootstrap === undefined ? null : intervals,
    bootstrap: bootstrap === undefined
      ? null
      : { refits: bootstrap.laws.length, dropped: bootstrap.dropped },
    comparison: outcomes.length < 2 ? null : outcomes.map(comparisonOf),
    queries: questions.map((question) => answerOf(question, study)),
    rows: rowsOf(study),
  };
}

function summaryOf({ law, huberLoss, r2 }: Pick<Fit, "law" | "huberLoss" | "r2">) {
  // R² does not exist for losses that are all equal.
  const finite = Number.isFinite(r2) ? r2 : null;
  return { parameters: parametersOf(law), huber_loss: huberLoss, r2: finite };
}

/** One line of a comparison of laws. */
export function comparisonOf(outcome: Outcome) {
  const { parameters, ...quality } = summaryOf(outcome);
  return { law: outcome.law.kind, ...quality, parameters };
}

/** An answer, with its interval where there are refits. */
export function answerOf(question: Question, { best, bootstrap }: Study) {
  const { query, given } = question;
  const answers = (law: Law) => answer(question, law);
  const unreachable = bootstrap?.laws.filter((law) => answers(law) === undefined).length;
  return {
    query,
    ...given,
    value: answers(best.law) ?? null,
    interval: bootstrap === undefined ? null : intervalOf(bootstrap.laws, answers) ?? null,
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
