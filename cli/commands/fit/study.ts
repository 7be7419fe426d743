/**
 * Everything computed for one answer of `parscale fit`: laws, refits, answers.
 *
 * With `--law both` each law is fitted and judged; the one with the smaller objective goes on to
 * rows, answers and figures.
 */
import { assess, fitLaw, type GridFit } from "../../../core/analysis/fit.ts";
import type { Law, LawKind, Observation } from "../../../core/analysis/law.ts";
import {
  type Bootstrap,
  bootstrap,
  FLAT,
  type Jackknife,
  jackknife,
} from "../../../core/analysis/uncertainty.ts";
import { UsageError } from "../../../core/base/errors.ts";
import { DATA_SETS } from "./data_sets.ts";
import type { Split } from "./holdout.ts";
import type { Question } from "./queries.ts";
import type { FitValues } from "./flags.ts";

/** One law with how well it fits. */
export interface Outcome {
  readonly law: Law;
  /** Undefined without observations, as for `huberLoss`. */
  readonly r2: number | undefined;
  readonly huberLoss: number | undefined;
  /** Undefined when the parameters were given. */
  readonly fit: GridFit | undefined;
  readonly jackknife: Jackknife | undefined;
}

/** Results of all laws, and more about the best. */
export interface Study extends Split {
  /** Of the observations. */
  readonly name: string;
  readonly best: Outcome;
  /** In the order they were asked for, the best among them. */
  readonly outcomes: readonly Outcome[];
  readonly bootstrap: Bootstrap | undefined;
  readonly questions: readonly Question[];
}

/** Fits, refits and judges. */
export function studyLaws(
  values: FitValues,
  name: string,
  split: Split,
  questions: readonly Question[],
): Study {
  const { used } = split;
  const outcomes = kindsOf(values).map((kind) =>
    values.parameters === "paper" ? printed(values, kind, used) : fitted(values, kind, used)
  );
  const [best] = outcomes.toSorted((a, b) => (a.huberLoss ?? 0) - (b.huberLoss ?? 0));
  const { bootstrap: resamples, seed } = values;
  return {
    ...split,
    name,
    best: best!,
    outcomes,
    questions,
    bootstrap: resamples > 0 ? bootstrap(used, best!.law, { resamples, seed }) : undefined,
  };
}

/** Whether the gradient vanishes at every fitted law. */
export function hasConverged({ outcomes }: Pick<Study, "outcomes">): boolean {
  return outcomes.every(({ fit }) => fit === undefined || fit.slope < FLAT);
}

/** Root of the mean square. */
export function rootMeanSquare(errors: readonly number[]): number {
  return Math.sqrt(errors.reduce((sum, error) => sum + error * error, 0) / errors.length);
}

function kindsOf({ law }: FitValues): LawKind[] {
  return law === "both" ? ["log", "theoretical"] : [law];
}

function fitted(values: FitValues, kind: LawKind, used: readonly Observation[]): Outcome {
  const fit = fitLaw(used, kind);
  // Laws are compared by what they foresee, so --law both always leaves out.
  const leavesOut = values.jackknife || values.law === "both";
  return { ...fit, fit, jackknife: leavesOut ? jackknife(used, fit.law) : undefined };
}

function printed(values: FitValues, kind: LawKind, used: readonly Observation[]): Outcome {
  if (kind === "chinchilla") {
    throw new UsageError(
      "the paper prints no parameters for `--law chinchilla`",
      { hints: ["use --law log or --law theoretical"] },
    );
  }
  const law = DATA_SETS[values.dataSet ?? "stack-v2-python"].laws[kind];
  const { huberLoss, r2 } = used.length > 0
    ? assess(law, used)
    : { huberLoss: undefined, r2: undefined };
  return { law, huberLoss, r2, fit: undefined, jackknife: undefined };
}
