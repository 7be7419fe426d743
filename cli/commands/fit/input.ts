/**
 * Observations of `parscale fit`: from files, stdin, folders of training runs, or built in.
 *
 * A run is one observation. Its loss is the last `eval_loss` of its metrics, or, when it was never
 * evaluated, the smoothed training loss at its end; N comes from its newest checkpoint.
 */
import type { Observation } from "../../../core/analysis/law.ts";
import { parseObservations, requireDistinct } from "../../../core/analysis/observations.ts";
import { parseConfig } from "../../../core/checkpoint/config.ts";
import { readJsonObject, statIfExists } from "../../../core/base/files.ts";
import { CONFIG_FILE } from "../../../core/checkpoint/open.ts";
import { lastCheckpoint } from "../../../core/checkpoint/run.ts";
import { DataError, UsageError } from "../../../core/base/errors.ts";
import { countParameters } from "../../../core/model/parameters.ts";
import type { Io } from "../../output/io.ts";
import { readMetrics } from "../../input/metrics_file.ts";
import { DATA_SETS } from "./data_sets.ts";
import type { FitValues } from "./flags.ts";

/** Observations with a name for them. */
export interface Input {
  readonly name: string;
  readonly observations: readonly Observation[];
}

/** Reads all that the command line names. */
export async function openInput(values: FitValues, io: Io): Promise<Input> {
  const { arguments: paths, parameters } = values;
  if (paths.length > 0) return await readPaths(values, io);
  const name = values.dataSet ?? (parameters === "paper" ? "stack-v2-python" : undefined);
  if (name === undefined) {
    throw new UsageError("`fit` needs FILE or `--data-set`", {
      hints: [
        "pass a file of n_params, streams and loss, - for stdin, or folders of training runs",
        "or --data-set stack-v2-python",
      ],
    });
  }
  return { name, observations: DATA_SETS[name].observations };
}

async function readPaths({ arguments: paths, dataSet, parameters }: FitValues, io: Io) {
  if (dataSet !== undefined && parameters === "fit") {
    throw new UsageError(
      "FILE cannot be combined with `--data-set`",
    );
  }
  const twice = paths.find((path, i) => paths.indexOf(path) !== i);
  if (twice !== undefined) {
    throw new UsageError(`"${twice}" is given twice`);
  }
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
      const name = path === "-" ? "stdin" : `"${path}"`;
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
    throw new DataError(
      `"${folder}" is no run folder: it has no checkpoint`,
      { hints: ["pass a folder written by `parscale train`, or a file of losses"] },
    );
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
  throw new DataError(
    `"${metrics}" has neither ${MEASURES.join(" nor ")}`,
  );
}
