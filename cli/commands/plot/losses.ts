/** Losses of the runs that `parscale plot` draws. */
import { basename, resolve } from "node:path";
import { DataError, UsageError } from "../../../core/base/errors.ts";
import { type JsonObject, readJsonObject, show, statIfExists } from "../../../core/base/files.ts";
import type { ValuesOf } from "../../framework/command.ts";
import { parseMetrics, readMetrics } from "../../input/metrics_file.ts";
import type { Io } from "../../output/io.ts";
import type { command } from "./flags.ts";

/** Flags of the command. */
export type PlotValues = ValuesOf<typeof command>;

/** Kind of loss. */
export type Measure = "train" | "eval";

/** A place on a curve. */
export type Point = readonly [x: number, loss: number];

/** The loss of a step, with its tokens. */
export type StepLoss = readonly [x: number, loss: number, tokens?: number];

/** The losses of one run. */
export interface RunLosses {
  readonly path: string;
  readonly label: string;
  readonly points: Readonly<Record<Measure, readonly StepLoss[]>>;
}

const FIELDS: Readonly<Record<Measure, string>> = { train: "loss", eval: "eval_loss" };

/** Reads all runs that the command line names. */
export async function readLosses(values: PlotValues, io: Io): Promise<RunLosses[]> {
  const runs = await readRuns(values, io);
  if (runs.some(({ points }) => values.measure.some((one) => points[one].length > 0))) return runs;
  throw new UsageError("`--measure eval` needs runs with a validation loss", {
    hints: ["train with --eval-data or --eval-split, or plot --measure train"],
  });
}

async function readRuns(values: PlotValues, io: Io): Promise<RunLosses[]> {
  const { arguments: paths, label: labels } = values;
  if (paths.length === 0) {
    throw new UsageError("`plot` needs at least one run", {
      hints: ["pass folders of `parscale train`, or files like metrics.jsonl"],
    });
  }
  if (labels.length > 0 && labels.length !== paths.length) {
    throw new UsageError(`\`--label\` has ${labels.length} names for ${paths.length} runs`, {
      hints: ["give one name per run, in the order of the runs"],
    });
  }
  const twice = [paths, labels].map((all) => all.find((one, i) => all.indexOf(one) !== i));
  const again = twice.find((one) => one !== undefined);
  if (again !== undefined) throw new UsageError(`"${again}" is given twice`);
  const folders = paths.map(folderName);
  const isUnique = (name: string) => folders.indexOf(name) === folders.lastIndexOf(name);
  const runs: RunLosses[] = [];
  for (const [i, path] of paths.entries()) {
    const { name, rows } = await readRows(path, io);
    const label = labels[i] ?? (isUnique(folders[i]!) ? folders[i]! : path);
    runs.push({ path, label, points: lossesOf(rows, values, name) });
  }
  return values.chain ? await chained(runs) : runs;
}

/** `run` for `runs/run`, `runs/run/` and `runs/run/metrics.jsonl`. */
function folderName(path: string): string {
  if (path === "-") return "stdin";
  const full = resolve(path);
  return basename(full) === "metrics.jsonl" ? basename(resolve(full, "..")) : basename(full);
}

/** Rows of metrics, and what messages call their source. */
async function readRows(path: string, io: Io): Promise<{ name: string; rows: JsonObject[] }> {
  if (path === "-") {
    return { name: "stdin", rows: await parseMetrics(await io.readText("-"), "stdin") };
  }
  const info = await statIfExists(path);
  if (info === undefined) {
    throw new DataError(`no such file or folder: "${path}"`, {
      hints: ["pass a folder that `parscale train` has written"],
    });
  }
  const file = info.isDirectory ? `${path}/metrics.jsonl` : path;
  return { name: `"${file}"`, rows: await readMetrics(file) };
}

function lossesOf(
  rows: readonly JsonObject[],
  { x, measure }: Pick<PlotValues, "x" | "measure">,
  name: string,
): RunLosses["points"] {
  if (rows.length === 0) throw new DataError(`${name} has no steps yet`);
  const key = x === "steps" ? "step" : "tokens";
  const train = pointsOf(rows, key, "train", name);
  if (measure.includes("train") && train.length === 0) {
    throw new DataError(`${name} has no field "loss"`);
  }
  return { train, eval: pointsOf(rows, key, "eval", name) };
}

function pointsOf(
  rows: readonly JsonObject[],
  key: string,
  measure: Measure,
  name: string,
): StepLoss[] {
  const field = FIELDS[measure];
  return rows.flatMap((row, i): StepLoss[] => {
    const at = row[key], loss = row[field] ?? undefined;
    if (loss === undefined) return [];
    const wrong = typeof at !== "number" ? key : typeof loss !== "number" ? field : undefined;
    const tokens = Number(row.tokens) - Number(rows[i - 1]?.tokens ?? 0);
    if (wrong === undefined) return [[at as number, loss as number, tokens > 0 ? tokens : 1]];
    throw new DataError(
      `row ${i + 1} of ${name} has ${wrong} ${show(row[wrong])}, expected a number`,
    );
  });
}

/** Moves each run that continues from another one after it, in whatever order they are given. */
async function chained(runs: readonly RunLosses[]): Promise<RunLosses[]> {
  const parents = await Promise.all(runs.map((run) => parentOf(run, runs)));
  if (parents.every((parent) => parent === undefined)) {
    throw new UsageError("`--chain` needs a run that was trained from another one of them", {
      hints: ["pass the folder of both stages, that of stage one too"],
    });
  }
  const offsetOf = (run: RunLosses, seen: ReadonlySet<RunLosses> = new Set()): number => {
    const parent = parents[runs.indexOf(run)];
    // Runs that name each other stand where they are.
    if (parent === undefined || seen.has(run)) return 0;
    return parent.at + offsetOf(parent.run, new Set([...seen, run]));
  };
  return runs.map((run) => {
    const offset = offsetOf(run);
    const move = (points: readonly StepLoss[]) =>
      points.map(([x, ...rest]): StepLoss => [x + offset, ...rest]);
    return { ...run, points: { train: move(run.points.train), eval: move(run.points.eval) } };
  });
}

/** The run that another was trained from, and where on its x axis. */
async function parentOf(
  run: RunLosses,
  runs: readonly RunLosses[],
): Promise<{ readonly run: RunLosses; readonly at: number } | undefined> {
  const path = `${run.path}/config.json`;
  if (!await statIfExists(path)) return undefined;
  const { folder, config } = await readJsonObject(path);
  const model = (config as JsonObject | undefined)?.model;
  if (typeof model !== "string") return undefined;
  const from = resolve(typeof folder === "string" ? folder : ".", model);
  for (const other of runs) {
    const place = resolve(other.path);
    const step = from === place ? Infinity : stepOf(from, place);
    if (other === run || step === undefined) continue;
    const { train } = other.points;
    return { run: other, at: (train[Math.min(step, train.length) - 1] ?? train[0]!)[0] };
  }
}

/** The step of a checkpoint in a run folder. */
function stepOf(path: string, run: string): number | undefined {
  const step = /^checkpoint-(\d+)$/.exec(basename(path))?.[1];
  return step !== undefined && resolve(path, "..") === run ? Number(step) : undefined;
}
