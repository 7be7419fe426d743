/**
 * Scores of all methods side by side, in the shape of the paper's table: one row per number of streams
 * or beams, and for every task streams beside beams.
 */
import type { DocumentScore } from "../../../core/eval/harness/results.ts";
import {
  type Difference,
  differenceOfMeans,
  type Mean,
  meanWithError,
  pairedDifference,
} from "../../../core/eval/harness/paired.ts";
import { DataError } from "../../../core/base/errors.ts";
import type { Row } from "../../output/table.ts";
import { counted } from "../../output/units.ts";
import type { Evaluation, Method, Summary, Timing } from "./evaluations.ts";

/** One method on one task. */
export interface Comparison {
  readonly method: Method;
  readonly task: string;
  readonly metric: string;
  readonly mean: Mean;
  /** Difference from the first evaluation on the same rows; undefined for itself. */
  readonly against: Difference | undefined;
  /** True if the difference was taken row by row; else it is one of means. */
  readonly isPaired: boolean;
  readonly timing: Timing | undefined;
}

/** Compares every evaluation with the first, task by task, on the rows both have. */
export function compareScores(evaluations: readonly Evaluation[]): Comparison[] {
  const [first] = evaluations as [Evaluation, ...Evaluation[]];
  for (const { name, summaries } of evaluations) {
    const other = [...summaries.keys()].find((task) => !first.summaries.has(task));
    if (other !== undefined) throw lacking(first.name, name, other);
  }
  return [...first.summaries].flatMap(([task, base]) => {
    // A derived metric, such as perplexity, has no value per row.
    const reference = valuesOf(first, task, base.metric);
    return evaluations.map((evaluation): Comparison => {
      const { method, timing, scores } = evaluation;
      const isPaired = scores !== undefined && reference.size > 0;
      const { mean, difference } = isPaired
        ? compareRows(first, evaluation, task, reference, valuesOf(evaluation, task, base.metric))
        : compareMeans(first, evaluation, task, base);
      const against = evaluation === first ? undefined : difference;
      return { method, task, metric: base.metric, mean, against, isPaired, timing };
    });
  });
}

interface Compared {
  readonly mean: Comparison["mean"];
  readonly difference: Difference | undefined;
}

type RowValues = ReadonlyMap<number, { readonly value: number; readonly request: string }>;

/** Row by row, which must be of the same prompts. */
function compareRows(
  first: Evaluation,
  other: Evaluation,
  task: string,
  base: RowValues,
  own: RowValues,
): Compared {
  const missing = [...base.keys()].find((id) => !own.has(id)) ??
    [...own.keys()].find((id) => !base.has(id));
  const both = `${other.name} and ${first.name}`;
  if (missing !== undefined) {
    throw new DataError(`only one of ${both} has row ${missing} of ${task}`, {
      hints: ["evaluate both with the same --tasks, --limit and --ids"],
    });
  }
  const changed = [...base].find(([id, { request }]) => own.get(id)!.request !== request);
  if (changed !== undefined) {
    throw new DataError(`${both} have different prompts for row ${changed[0]} of ${task}`, {
      hints: ["evaluate both with the same --data, --shots and --chat"],
    });
  }
  const values = Array.from(base.keys(), (id) => own.get(id)!.value);
  const references = Array.from(base.values(), ({ value }) => value);
  return { mean: meanWithError(values), difference: pairedDifference(values, references) };
}

const SAME_FLAGS =
  "evaluate both with the same --tasks, --data, --limit, --ids, --shots and --chat";

const lacking = (name: string, other: string, task: string) =>
  new DataError(`${name} has no ${task}, ${other} has`, { hints: [SAME_FLAGS] });

/** By the means alone, which must be of the same prompts. */
function compareMeans(first: Evaluation, other: Evaluation, task: string, base: Summary): Compared {
  const own = other.summaries.get(task);
  if (own?.metric !== base.metric || own.prompts !== base.prompts) {
    if (own === undefined) throw lacking(other.name, first.name, task);
    throw new DataError(`${other.name} and ${first.name} have different prompts for ${task}`, {
      hints: [SAME_FLAGS],
    });
  }
  const [mean, reference] = [own, base].map(({ value, stderr, n }) => ({
    value,
    stderr: stderr ?? undefined,
    n,
  }));
  return { mean: mean!, difference: differenceOfMeans(mean!, reference!) };
}

function valuesOf({ scores = [] }: Evaluation, task: string, metric: string): RowValues {
  const own = scores.filter((score) => score.task === task && metric in score.metrics);
  return new Map(
    own.map((score) => [score.doc_id, { value: valueOf(score, metric), request: score.request }]),
  );
}

/** Several values of a row are its mean. */
function valueOf({ metrics }: DocumentScore, metric: string): number {
  const value = metrics[metric]!;
  return typeof value === "number" ? value : value.reduce((sum, x) => sum + x, 0) / value.length;
}

/** Rows of the table: streams or beams down, tasks and costs across; scores from 0 to 1. */
export function paperRows(comparisons: readonly Comparison[]): Row[] {
  const sorted = comparisons.map(({ method }) => method).sort((a, b) => a.scale - b.scale);
  const rows = new Set(sorted.map(rowName));
  const tasks = [...new Set(comparisons.map(({ task }) => task))];
  const kinds = [["ParScale", ["single", "parscale"]], ["beam", ["single", "beam"]]] as const;
  return [...rows].map((row) => {
    const of = (task: string, among: readonly string[]) =>
      comparisons.find(({ task: own, method }) =>
        own === task && rowName(method) === row && among.includes(method.kind)
      );
    const cells: [string, unknown][] = [["P or beams", Number(row) || row]];
    for (const task of tasks) {
      for (const [title, among] of kinds) cells.push([`${task} ${title}`, score(of(task, among))]);
    }
    for (const [title, among] of kinds) {
      const { timing } = of(tasks[0]!, among) ?? {};
      cells.push([`${title} s/answer`, timing ? timing.secondsPerAnswer.toPrecision(3) : null]);
      const { peakBytes = null } = timing ?? {};
      cells.push([`${title} MiB`, peakBytes === null ? null : Math.round(peakBytes / 2 ** 20)]);
    }
    return Object.fromEntries(cells);
  });
}

/** Methods of a name share a row: as many streams as beams, in the same bits. */
function rowName({ scale, quantize, name }: Method): string {
  return [scale, quantize, name].filter((part) => part !== undefined).join(", ");
}

/** `0.412 (+0.031 ± 0.020)`: the score, and its difference with the reach of the interval. */
function score(comparison: Comparison | undefined): string | null {
  if (!comparison) return null;
  const { mean, against } = comparison;
  const value = mean.value.toFixed(3);
  if (!against) return value;
  const sign = against.difference < 0 ? "−" : "+";
  const size = Math.abs(against.difference).toFixed(3);
  return `${value} (${sign}${size} ± ${((against.high - against.low) / 2).toFixed(3)})`;
}

/** One sentence per task. */
export function conclusions(comparisons: readonly Comparison[]): string[] {
  const byTask = Map.groupBy(comparisons, ({ task }) => task);
  return [...byTask].map(([task, all]) => {
    const { metric, mean } = all[0]!;
    const others = all.filter(({ against }) => against !== undefined);
    const clear = others.filter(({ against }) => against!.low > 0 || against!.high < 0);
    const unpaired = others.some(({ isPaired }) => !isPaired) ? ", means only" : "";
    const rows = `${task} (${metric}, ${counted(mean.n, "row")}${unpaired})`;
    if (others.length === 0 && all.length > 1) {
      return `${rows}: no paired rows, so no 95% interval of a difference`;
    }
    if (clear.length === 0) {
      return `${rows}: no method differs from the first beyond its 95% interval`;
    }
    const named = clear.map(({ method, against }) =>
      `${method.label} ${against!.difference > 0 ? "better" : "worse"}`
    );
    return `${rows}: beyond the 95% interval of the first: ${named.join(", ")}`;
  });
}

/** For programs: everything, one method and task a row. */
export function rowOf({ method, task, metric, mean, against, isPaired, timing }: Comparison) {
  return {
    method: method.kind,
    scale: method.scale,
    quantize: method.quantize ?? null,
    label: method.label,
    task,
    metric,
    value: mean.value,
    stderr: mean.stderr ?? null,
    rows: mean.n,
    difference: against?.difference ?? null,
    difference_low: against?.low ?? null,
    difference_high: against?.high ?? null,
    paired: against ? isPaired : null,
    latency_s: timing?.secondsPerAnswer ?? null,
    latency_s_per_token: timing?.secondsPerToken ?? null,
    peak_rss_bytes: timing?.peakBytes ?? null,
  };
}
