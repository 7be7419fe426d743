/**
 * From the flags of `parscale fit` to observations, laws and questions.
 *
 * Observations come from files, stdin, folders of training runs, or are built in. A run is one
 * observation. Its loss is the last `eval_loss` of its metrics, or, when it was never evaluated, the
 * smoothed training loss at its end; N comes from its newest checkpoint.
 */
import { DATA_SETS } from "../../../core/analysis/cost_family.ts";
import {
  equivalentParameters,
  type Law,
  type LawKind,
  type Observation,
  parametersForLoss,
  predictLoss,
  streamFactor,
  streamsForLoss,
} from "../../../core/analysis/law.ts";
import { parseObservations, requireDistinct } from "../../../core/analysis/observations.ts";
import { DataError, UsageError } from "../../../core/base/errors.ts";
import { readJsonObject, statIfExists } from "../../../core/base/files.ts";
import { parseConfig } from "../../../core/checkpoint/config.ts";
import { CONFIG_FILE } from "../../../core/checkpoint/open.ts";
import { lastCheckpoint } from "../../../core/checkpoint/run.ts";
import { countParameters } from "../../../core/model/parameters.ts";
import type { ValuesOf } from "../../framework/command.ts";
import { parseNumber } from "../../framework/values.ts";
import { readMetrics } from "../../input/metrics_file.ts";
import type { Invocation } from "../../output/document.ts";
import { inputName, type Io } from "../../output/io.ts";
import { checkFigure } from "../../output/sink.ts";
import type { command } from "./flags.ts";

/** Flags of the command. */
export type FitValues = ValuesOf<typeof command>;

/** Everything that a study of laws needs. */
export interface FitPlan extends Pick<FitValues, "seed" | "curves"> {
  /** Names the observations. */
  readonly name: string;
  readonly observations: readonly Observation[];
  /** Kinds to fit, or printed laws to test. */
  readonly laws: readonly (LawKind | Law)[];
  /** Refits; 0 for none. */
  readonly resamples: number;
  readonly questions: readonly Question[];
}

/** A question to a law. */
export interface Question {
  readonly query: Query;
  /** The quantities given, under the names of the output, in the order of `ANSWERS`. */
  readonly given: Readonly<Record<string, number>>;
}

/** Reads observations and questions, so that what is wrong shows before anything is fitted. */
export async function planFit(values: FitValues, io: Io, invocation: Invocation): Promise<FitPlan> {
  const { curves, bootstrap: resamples, seed } = values;
  checkFigure(curves, invocation);
  const questions = parseQuestions(values);
  const input = await openInput(values, io);
  return { ...input, laws: lawsOf(values), resamples, seed, questions, curves };
}

function lawsOf({ law, parameters, dataSet = "stack-v2-python" }: FitValues): (LawKind | Law)[] {
  const kinds = law === "both" ? ["log", "theoretical"] as const : [law];
  if (parameters === "fit") return [...kinds];
  return kinds.map((kind) => {
    if (kind === "log" || kind === "theoretical") return DATA_SETS[dataSet].laws[kind];
    throw new UsageError(`the paper prints no parameters for \`--law ${kind}\``, {
      hints: ["use --law log or --law theoretical"],
    });
  });
}

type Answer = (law: Law, first: number, second: number) => number | undefined;

/** Answers of a law by query; undefined where it has none. */
const ANSWERS = {
  loss: predictLoss,
  equivalent_params: equivalentParameters,
  params_for_loss: parametersForLoss,
  streams_for_loss: (law, loss, N) => streamsForLoss(law, N, loss),
  saving: (law, P) => 1 - 1 / streamFactor(law, P),
} satisfies Record<string, Answer>;

type Query = keyof typeof ANSWERS;

/** The answer of a law. More streams than a number can hold are out of reach, too. */
export function answer({ query, given }: Question, law: Law): number | undefined {
  const [first, second] = Object.values(given);
  const value = (ANSWERS[query] as Answer)(law, first!, second!);
  return value !== undefined && Number.isFinite(value) ? value : undefined;
}

/** Names of quantities in rows. */
const FIELDS = { N: "n_params", P: "streams", LOSS: "loss" } as const;

/** Flags that take two quantities. */
const PAIRS = [
  { flag: "predict", query: "loss", takes: ["N", "P"], example: "1.6e9,8" },
  { flag: "equivalent", query: "equivalent_params", takes: ["N", "P"], example: "1.6e9,8" },
  { flag: "params-for", query: "params_for_loss", takes: ["LOSS", "P"], example: "1.05,8" },
  { flag: "streams-for", query: "streams_for_loss", takes: ["LOSS", "N"], example: "1.05,1.6e9" },
] as const;

/** Reads all questions, in the order of the flags in help. */
function parseQuestions({ predict, equivalent, paramsFor, streamsFor, saving }: FitValues) {
  const texts = [predict, equivalent, paramsFor, streamsFor];
  const pairs = PAIRS.flatMap((pair, i) => texts[i]!.map((text) => parsePair(pair, text)));
  return [...pairs, ...saving.map((P): Question => ({ query: "saving", given: { streams: P } }))];
}

function parsePair({ flag, query, takes, example }: typeof PAIRS[number], text: string): Question {
  const numbers = text.split(",").map((part) => parseNumber(part.trim()));
  const given = takes.map((quantity, i) => [FIELDS[quantity], numbers[i]] as const);
  const fits = given.every(([field, value]) =>
    value !== undefined && value > 0 && (field !== "streams" || Number.isInteger(value))
  );
  if (numbers.length === 2 && fits) {
    return { query, given: Object.fromEntries(given as [string, number][]) };
  }
  throw new UsageError(
    `invalid value "${text}" for \`--${flag}\`: must be ${takes.join(",")} such as ${example}`,
  );
}

type Input = Pick<FitPlan, "name" | "observations">;

/** Reads observations from the given files, or takes a built-in data set. */
async function openInput(values: FitValues, io: Io): Promise<Input> {
  const { arguments: paths, parameters } = values;
  if (paths.length > 0) return await readPaths(values, io);
  const name = values.dataSet ?? (parameters === "paper" ? "stack-v2-python" : undefined);
  if (name !== undefined) return { name, observations: DATA_SETS[name].observations };
  throw new UsageError("`fit` needs FILE or `--data-set`", {
    hints: [
      "pass a file of n_params, streams and loss, - for stdin, or folders of training runs",
      "or --data-set stack-v2-python",
    ],
  });
}

async function readPaths({ arguments: paths, dataSet, parameters }: FitValues, io: Io) {
  if (dataSet !== undefined && parameters === "fit") {
    throw new UsageError("FILE cannot be combined with `--data-set`");
  }
  const twice = paths.find((path, i) => paths.indexOf(path) !== i);
  if (twice !== undefined) throw new UsageError(`"${twice}" is given twice`);
  const observations: Observation[] = [];
  const measures = new Set<string>();
  for (const path of paths) {
    const info = path === "-" ? undefined : await statIfExists(path);
    if (info?.isDirectory) {
      const { measure, ...observation } = await readRun(path);
      measures.add(measure);
      observations.push(observation);
      io.detail(`${path}: N ${observation.n}, P ${observation.p}, ${measure} ${observation.loss}`);
    } else {
      const name = inputName(path);
      observations.push(...parseObservations(await io.readText(path), name));
    }
  }
  if (measures.size > 1) {
    io.warn(
      "some runs have an eval_loss and others only the training loss: the law mixes both",
      "train with --eval-data to have one of each run",
    );
  }
  const name = paths.map((path) => path === "-" ? "stdin" : path).join(", ");
  if (paths.length > 1) requireDistinct(observations, name);
  return { name, observations };
}

/** Measures a run may have, the better first. */
const MEASURES = ["eval_loss", "loss_ema"] as const;

async function readRun(folder: string): Promise<Observation & { readonly measure: string }> {
  const checkpoint = await lastCheckpoint(folder);
  if (checkpoint === undefined) {
    throw new DataError(`"${folder}" is not a run folder: it has no checkpoint`, {
      hints: ["pass a folder written by `parscale train`, or a file of losses"],
    });
  }
  const path = `${checkpoint}/${CONFIG_FILE}`;
  const config = parseConfig(await readJsonObject(path), path);
  const { total, embedding } = countParameters(config);
  const metrics = `${folder}/metrics.jsonl`;
  const rows = (await readMetrics(metrics)).reverse();
  for (const measure of MEASURES) {
    const loss = rows.map((row) => row[measure]).find((value) => typeof value === "number");
    if (loss === undefined) continue;
    if (loss > 0) return { n: total - embedding, p: config.streams, loss, measure };
    throw new DataError(`${measure} in "${metrics}" is ${loss}, expected a loss above 0`);
  }
  throw new DataError(`"${metrics}" has neither ${MEASURES.join(" nor ")}`);
}
