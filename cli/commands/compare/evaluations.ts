/**
 * Finished evaluations: folders of `parscale eval --out`, or the documents of `parscale eval --json`, one
 * after the other on stdin. A document has means and no rows. Where its evaluation was kept by --out, and
 * the folder is still there, its rows are compared one by one; else the difference of two means is all there
 * is, and its interval is wider.
 */
import { join } from "node:path";
import { DataError, UsageError } from "../../../core/base/errors.ts";
import {
  isObject,
  type JsonObject,
  jsonValue,
  readJsonObject,
  readRegularText,
  statIfExists,
} from "../../../core/base/files.ts";
import {
  CONFIG,
  parseScores,
  resultList,
  RESULTS,
  SCORES,
} from "../../../core/eval/harness/eval_folder.ts";
import type { DocumentScore } from "../../../core/eval/harness/results.ts";
import { requireFields } from "../../../core/eval/harness/samples.ts";
import type { Io } from "../../output/io.ts";

/** One way to spend compute on an answer. */
export interface Method {
  readonly kind: "single" | "parscale" | "beam";
  /** Streams or beams. */
  readonly scale: number;
  /** Bits of weights where they are not exact. */
  readonly quantize: string | undefined;
  /** Name of its evaluation, where another one is of the same method. */
  readonly name?: string;
  readonly label: string;
}

/** The headline of a task: a mean over its rows. */
export interface Summary {
  readonly metric: string;
  readonly value: number;
  readonly stderr: number | null;
  readonly n: number;
  /** Hash of all prompts; equal only where the same was asked. */
  readonly prompts: string;
}

/** A method with what it came to. */
export interface Evaluation {
  readonly method: Method;
  /** For messages: its folder, or where it stood on stdin. */
  readonly name: string;
  /** Of every row; undefined where only means are known. */
  readonly scores: readonly DocumentScore[] | undefined;
  /** By task. */
  readonly summaries: ReadonlyMap<string, Summary>;
  /** Time and memory of one answer at a time. */
  readonly timing: Timing | undefined;
}

/** Measured on a few rows, one at a time. */
export interface Timing {
  readonly secondsPerAnswer: number;
  readonly secondsPerToken: number | null;
  readonly peakBytes: number | null;
}

/** Evaluations from folders, and those whose documents stand on stdin where a - is. */
export async function readAll(folders: readonly string[], io: Io): Promise<Evaluation[]> {
  if (folders.filter((folder) => folder === "-").length > 1) {
    throw new UsageError("`-` is given twice; stdin can be read once");
  }
  const evaluations: Evaluation[] = [];
  for (const folder of folders) {
    if (folder === "-") evaluations.push(...await readDocuments(io));
    else evaluations.push(await readEvaluation(folder));
  }
  if (evaluations.length >= 2) return evaluations;
  const given = evaluations.length === 0 ? "none" : "one";
  throw new UsageError(`\`compare\` needs at least two evaluations; there is ${given}`);
}

/** Reads a finished evaluation. */
export async function readEvaluation(folder: string): Promise<Evaluation> {
  for (const name of [CONFIG, RESULTS, SCORES]) {
    if (await statIfExists(join(folder, name))) continue;
    throw new DataError(`"${folder}" is not a finished evaluation: it has no ${name}`, {
      hints: ["pass a folder that `parscale eval --out` has finished"],
    });
  }
  const identity = await readJsonObject(join(folder, CONFIG));
  const path = join(folder, SCORES);
  const { results } = await readJsonObject(join(folder, RESULTS));
  const summaries = summariesOf(results, `"${join(folder, RESULTS)}"`);
  const scores = parseScores(await readRegularText(path), path);
  const method = methodOf(identity, folder);
  return { method, name: `"${folder}"`, scores, summaries, timing: undefined };
}

/** Adds their names to methods that several evaluations share. */
export function nameApart(evaluations: readonly Evaluation[]): Evaluation[] {
  const byLabel = Map.groupBy(evaluations, ({ method }) => method.label);
  return evaluations.map((evaluation) => {
    const { method, name } = evaluation, { label } = method;
    if (byLabel.get(label)!.length === 1) return evaluation;
    return { ...evaluation, method: { ...method, name, label: `${label}, ${name}` } };
  });
}

const SUMMARY_FIELDS = {
  metric: "text",
  value: "a number",
  stderr: "a number or null",
  n: "an integer of at least 0",
} as const;

/** Headlines of the tasks in the `results` of the evaluation that messages call `name`. */
function summariesOf(results: unknown, name: string): ReadonlyMap<string, Summary> {
  return new Map(
    resultList<TaskRow>(results, "tasks", name).map(({ task, metrics, prompts_sha256 }) => {
      const place = `the first metric of ${task} in ${name}`;
      const mean = requireFields<Summary>(metrics[0], SUMMARY_FIELDS, place);
      const { metric, value, stderr, n } = mean;
      return [task, { metric, value, stderr, n, prompts: prompts_sha256 }];
    }),
  );
}

interface TaskRow {
  readonly task: string;
  readonly metrics: readonly unknown[];
  readonly prompts_sha256: string;
}

/** Reads the method from an evaluation's description; `name` is the label where there is none. */
function methodOf({ streams, num_beams: beams, quantize }: JsonObject, name: string): Method {
  const bits = typeof quantize === "string" ? quantize : undefined;
  const method = (kind: Method["kind"], scale: number, label: string): Method => ({
    kind,
    scale,
    quantize: bits,
    label: bits === undefined ? label : `${label}, ${bits}`,
  });
  if (typeof beams === "number" && beams > 1) return method("beam", beams, `${beams} beams`);
  if (typeof streams !== "number") return method("single", 1, name);
  return method(streams > 1 ? "parscale" : "single", streams, `P=${streams}`);
}

/** Layout of the documents that are read. */
const SCHEMA = "parscale.eval/1";

/** Reads all documents on stdin; a line without indentation begins one, unless it closes one. */
async function readDocuments(io: Io): Promise<Evaluation[]> {
  const parts = (await io.readText("-")).split(/^(?=[^\s}\]])/m);
  const texts = parts.map((text) => text.trim()).filter((text) => text !== "");
  return await Promise.all(texts.map((text, i) => evaluationOf(text, `document ${i + 1}`)));
}

async function evaluationOf(text: string, name: string): Promise<Evaluation> {
  const { schema, config, results } = parsed(text, name);
  if (schema !== SCHEMA || !isObject(results)) {
    throw new DataError(
      `${name} of stdin is not an evaluation: ${
        schema === undefined ? "it has no schema" : `its schema is ${JSON.stringify(schema)}`
      }, expected "${SCHEMA}"`,
      { hints: ["pipe in what `parscale eval --json` prints, once per evaluation"] },
    );
  }
  const out = isObject(config) && typeof config.out === "string" ? config.out : undefined;
  const summaries = summariesOf(results, `${name} of stdin`);
  const kept = out === undefined ? undefined : await readKept(out);
  // The folder may have been evaluated anew since.
  if (kept && JSON.stringify([...kept.summaries]) === JSON.stringify([...summaries])) return kept;
  return {
    method: methodOf(results, name),
    name: `${name} of stdin`,
    scores: undefined,
    summaries,
    timing: undefined,
  };
}

/** The evaluation in a folder, where there is a finished one. */
async function readKept(folder: string): Promise<Evaluation | undefined> {
  try {
    return await readEvaluation(folder);
  } catch (error) {
    if (error instanceof DataError) return undefined;
    throw error;
  }
}

function parsed(text: string, name: string): JsonObject {
  const value = jsonValue(text);
  if (isObject(value)) return value;
  throw new DataError(`${name} of stdin is not valid JSON: ${JSON.stringify(text.slice(0, 40))}`, {
    hints: ["pipe in what `parscale eval --json` prints, once per evaluation"],
  });
}
