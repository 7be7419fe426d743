/**
 * Everything computed for one answer of `parscale fit`: laws, refits, answers.
 *
 * With `--law both` each law is fitted and judged; the one with the smaller objective goes on to
 * rows, answers and figures.
 */
import {
  assess,
  type Bootstrap,
  bootstrap,
  fitLaw,
  FLAT,
  type GridFit,
} from "../../../core/analysis/fit.ts";
import type { Law, LawKind, Observation } from "../../../core/analysis/law.ts";
import { UsageError } from "../../../core/base/errors.ts";
import { DATA_SETS } from "./data_sets.ts";
import type { Input } from "./input.ts";
import type { Question } from "./queries.ts";
import type { FitValues } from "./flags.ts";

/** One law with how well it fits. */
export interface Outcome {
  readonly law: Law;
  readonly r2: number;
  readonly huberLoss: number;
  /** Undefined when the parameters were given. */
  readonly fit: GridFit | undefined;
}

/** Results of all laws, and more about the best. */
export interface Study extends Input {
  readonly best: Outcome;
  /** In the order they were asked for, the best among them. */
  readonly outcomes: readonly Outcome[];
  readonly bootstrap: Bootstrap | undefined;
  readonly questions: readonly Question[];
}

/** Fits, refits and judges. */
export function studyLaws(
  values: FitValues,
  input: Input,
  questions: readonly Question[],
): Study {
  const { observations } = input;
  const outcomes = kindsOf(values).map((kind) =>
    values.parameters === "paper" ? printed(values, kind, observations) : fitted(kind, observations)
  );
  const [best] = outcomes.toSorted((a, b) => a.huberLoss - b.huberLoss);
  const { bootstrap: resamples, seed } = values;
  return {
    ...input,
    best: best!,
    outcomes,
    questions,
    bootstrap: resamples > 0 ? bootstrap(observations, best!.law, { resamples, seed }) : undefined,
  };
}

/** Whether the gradient vanishes at every fitted law. */
export function hasConverged({ outcomes }: Pick<Study, "outcomes">): boolean {
  return outcomes.every(({ fit }) => fit === undefined || fit.slope < FLAT);
}

function kindsOf({ law }: FitValues): LawKind[] {
  return law === "both" ? ["log", "theoretical"] : [law];
}

function fitted(kind: LawKind, observations: readonly Observation[]): Outcome {
  const fit = fitLaw(observations, kind);
  return { ...fit, fit };
}

function printed(values: FitValues, kind: LawKind, observations: readonly Observation[]): Outcome {
  if (kind === "chinchilla") {
    throw new UsageError(
      "the paper prints no parameters for `--law chinchilla`",
      { hints: ["use --law log or --law theoretical"] },
    );
  }
  const law = DATA_SETS[values.dataSet ?? "stack-v2-python"].laws[kind];
  return { ...assess(law, observations), law, fit: undefined };
}
