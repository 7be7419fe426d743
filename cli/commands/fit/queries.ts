/**
 * Questions to a law. Takes flags such as `--predict 1.6e9,8`, read before anything is fitted;
 * returns for any law the answers, so that refitted laws can answer the same questions.
 */
import {
  equivalentParameters,
  type Law,
  parametersForLoss,
  predictLoss,
  streamFactor,
  streamsForLoss,
} from "../../../core/analysis/law.ts";
import { DataError, UsageError } from "../../../core/base/errors.ts";
import { parseNumber } from "../../framework/values.ts";
import type { FitValues } from "./flags.ts";

/** One question. */
export interface Question {
  readonly query: string;
  /** What was given, under the names of the output. */
  readonly given: Readonly<Record<string, number>>;
  /** Undefined where the law has no answer. */
  readonly answer: (law: Law) => number | undefined;
}

type Quantity = "N" | "P" | "LOSS";

/** Names of quantities in rows. */
const FIELDS: Readonly<Record<Quantity, string>> = {
  N: "n_params",
  P: "streams",
  LOSS: "loss",
};

interface Kind {
  readonly flag: string;
  readonly key: "predict" | "equivalent" | "paramsFor" | "streamsFor";
  readonly query: string;
  readonly takes: readonly [Quantity, Quantity];
  readonly example: string;
  readonly answer: (law: Law, first: number, second: number) => number | undefined;
}

const KINDS: readonly Kind[] = [
  {
    flag: "predict",
    key: "predict",
    query: "loss",
    takes: ["N", "P"],
    example: "1.6e9,8",
    answer: predictLoss,
  },
  {
    flag: "equivalent",
    key: "equivalent",
    query: "equivalent_params",
    takes: ["N", "P"],
    example: "1.6e9,8",
    answer: equivalentParameters,
  },
  {
    flag: "params-for",
    key: "paramsFor",
    query: "params_for_loss",
    takes: ["LOSS", "P"],
    example: "1.05,8",
    answer: parametersForLoss,
  },
  {
    flag: "streams-for",
    key: "streamsFor",
    query: "streams_for_loss",
    takes: ["LOSS", "N"],
    example: "1.05,1.6e9",
    answer: (law, loss, N) => streamsForLoss(law, N, loss),
  },
];

/**
 * Reads all questions, in the order of the flags in help.
 * @throws {UsageError} for one that cannot be understood
 */
export function parseQuestions(values: FitValues): Question[] {
  const pairs = KINDS.flatMap((kind) => values[kind.key].map((text) => parseQuestion(kind, text)));
  const savings = values.saving.map((P): Question => ({
    query: "saving",
    given: { streams: P },
    answer: (law) => 1 - 1 / streamFactor(law, P),
  }));
  return [...pairs, ...savings];
}

function parseQuestion({ flag, query, takes, example, answer }: Kind, text: string): Question {
  const numbers = text.split(",").map((part) => parseNumber(part.trim()));
  const [first, second] = numbers;
  const fits = (value: number | undefined, quantity: Quantity) =>
    value !== undefined && value > 0 && (quantity !== "P" || Number.isInteger(value));
  if (numbers.length !== 2 || !fits(first, takes[0]) || !fits(second, takes[1])) {
    throw new UsageError(
      `invalid value "${text}" for \`--${flag}\`: must be ${takes.join(",")} such as ${example}`,
    );
  }
  return {
    query,
    given: { [FIELDS[takes[0]]]: first!, [FIELDS[takes[1]]]: second! },
    answer: (law) => finite(answer(law, first!, second!)),
  };
}

/** More streams than a number can hold are out of reach, too. */
function finite(value: number | undefined): number | undefined {
  return value !== undefined && Number.isFinite(value) ? value : undefined;
}

/**
 * No model reaches a loss of E or less, by no means.
 * @throws {DataError} for a question about such a loss
 */
export function requireReachable(questions: readonly Question[], law: Law): void {
  const asked = questions.filter(({ query }) => query.endsWith("_for_loss"));
  const low = asked.find(({ given }) => given.loss! <= law.E);
  if (low === undefined) return;
  throw new DataError(
    `loss ${low.given.loss} is out of reach: E of the law is ${law.E.toFixed(6)}`,
  );
}
