/**
 * The result of an evaluation: rows for the table, the document for results.json, the paper's tables
 * and what falls short.
 */
import { createHash } from "node:crypto";
import type { DocumentScore, TaskResult } from "../../../core/eval/harness/results.ts";
import type { Task } from "../../../core/eval/harness/task.ts";
import { UsageError } from "../../../core/base/errors.ts";
import type { Column, Row } from "../../output/table.ts";
import { PAPER_TABLES } from "./presets.ts";

/** What is known of a task besides its scores; a line of results.json. */
export interface TaskFacts {
  readonly task: string;
  readonly shots: number;
  readonly files: readonly { readonly path: string; readonly sha256: string }[];
  readonly sandbox?: string | null;
  readonly python?: string | null;
}

/** A task's result with its facts. */
export interface FullResult extends TaskResult {
  readonly facts: TaskFacts;
  readonly scores: readonly DocumentScore[];
}

/** Columns of the table. */
export const COLUMNS: readonly Column[] = [
  { key: "task" },
  { key: "version" },
  { key: "shots" },
  { key: "rows" },
  { key: "metric" },
  { key: "value", digits: 4, error: "stderr" },
];

/** Results of all tasks that have scores. */
export async function summarizeAll(
  facts: readonly TaskFacts[],
  scores: readonly DocumentScore[],
): Promise<FullResult[]> {
  const { summarize } = await import("../../../core/eval/harness/results.ts");
  const { taskOf } = await import("../../../core/eval/tasks/mod.ts");
  const byTask = Map.groupBy(scores, ({ task }) => task);
  return facts.flatMap((fact) => {
    const own = byTask.get(fact.task);
    const task = taskOf(fact.task);
    return own && task ? [{ ...summarize(task, own), facts: fact, scores: own }] : [];
  });
}

/** One row per metric. */
export function tableRows(results: readonly FullResult[]): Row[] {
  return results.flatMap(({ task, facts, documents, means }) =>
    means.map(({ metric, value, stderr, n }) => ({
      task: task.name,
      version: task.version,
      shots: facts.shots,
      rows: documents,
      metric,
      value,
      stderr: stderr ?? null,
      n,
    }))
  );
}

/** The `results` of the document: one object per task, and the tables of a preset. */
export async function resultsObject(
  results: readonly FullResult[],
  preset: string | undefined,
): Promise<Record<string, unknown>> {
  return {
    tasks: await Promise.all(results.map(taskObject)),
    tables: paperTables(results, preset),
  };
}

async function taskObject(
  { task, facts, documents, means, groups, scores }: FullResult,
): Promise<Record<string, unknown>> {
  const prompts = scores.map(({ doc_id, request }) => `${doc_id} ${request}`).join("\n");
  return {
    task: task.name,
    title: task.title,
    version: task.version,
    shots: facts.shots,
    rows: documents,
    metrics: means.map(({ stderr, ...mean }) => ({ ...mean, stderr: stderr ?? null })),
    groups: groups.map(({ stderr, ...mean }) => ({ ...mean, stderr: stderr ?? null })),
    supergroups: await supergroups(task, scores),
    undefined_rows: await undefinedRows(task),
    prompts_sha256: createHash("sha256").update(prompts).digest("hex"),
    files: facts.files,
    sandbox: facts.sandbox ?? null,
    python: facts.python ?? null,
  };
}

/** MMLU's four groups, each subject by its size. */
async function supergroups(task: Task, scores: readonly DocumentScore[]): Promise<Row[]> {
  if (task.name !== "mmlu") return [];
  const { MMLU_GROUPS } = await import("../../../core/eval/tasks/mmlu.ts");
  const { summarize } = await import("../../../core/eval/harness/results.ts");
  const regrouped = scores.map((s) => ({ ...s, group: MMLU_GROUPS.get(s.group) ?? "unknown" }));
  return summarize(task, regrouped).groups.map((mean) => ({
    ...mean,
    stderr: mean.stderr ?? null,
  }));
}

/** Keys of IFEval whose rule the reference leaves to chance. */
async function undefinedRows({ name }: Task): Promise<readonly unknown[]> {
  if (name !== "ifeval") return [];
  const { UNDEFINED_KEYS } = await import("../../../core/eval/grading/ifeval/mod.ts");
  return [...UNDEFINED_KEYS];
}

/** A table as the paper prints it, in percent; a column without its tasks is null. */
export interface PaperTable {
  readonly name: string;
  readonly columns: Readonly<Record<string, number | null>>;
}

/** The tables of a preset; none without one. */
export function paperTables(
  results: readonly FullResult[],
  preset: string | undefined,
): PaperTable[] {
  const values = new Map<string, number>(
    results.flatMap(({ task, means }) =>
      means.map(({ metric, value }) => [`${task.name}.${metric}`, value] as const)
    ),
  );
  return (PAPER_TABLES[preset ?? ""] ?? []).map(({ name, columns }) => {
    const cells = columns.map(({ title, of }) => [title, meanOf(of.map((id) => values.get(id)))]);
    const average = meanOf(cells.map(([, value]) => value as number | null ?? undefined));
    const entries = [...cells, ["Average", average]] as [string, number | null][];
    const scaled = entries.map(([title, value]) => [title, value === null ? null : 100 * value]);
    return { name, columns: Object.fromEntries(scaled) };
  });
}

function meanOf(values: readonly (number | undefined)[]): number | null {
  if (values.some((value) => value === undefined)) return null;
  return values.reduce<number>((sum, value) => sum + value!, 0) / values.length;
}

/** A bound a score must reach. */
export interface Bound {
  readonly task: string;
  /** The headline where absent. */
  readonly metric: string | undefined;
  readonly least: number;
}

/** Reads --fail-under; every bound must belong to a task that is run. */
export function parseBounds(texts: readonly string[], tasks: readonly Task[]): Bound[] {
  return texts.map((text) => {
    const [, task, metric, value] = /^([^.=]+)(?:\.([^=]+))?=([-+\d.eE]+)$/.exec(text) ?? [];
    const least = Number(value);
    const found = tasks.find(({ name }) => name === task);
    if (task === undefined || !Number.isFinite(least)) {
      throw new UsageError(
        `invalid value "${text}" for \`--fail-under\`: must be TASK=VALUE or TASK.METRIC=VALUE`,
        { hints: ["for instance --fail-under gsm8k=0.3"] },
      );
    }
    if (!found) {
      const names = tasks.map(({ name }) => name).join(", ");
      throw new UsageError(
        `\`--fail-under ${text}\` names a task that is not among --tasks: ${names}`,
      );
    }
    if (metric !== undefined && !found.metrics.includes(metric)) {
      throw new UsageError(
        `\`--fail-under ${text}\` names an unknown metric of ${task}`,
        { hints: [`known: ${found.metrics.join(", ")}`] },
      );
    }
    return { task, metric, least };
  });
}

/** One line per score below its bound. */
export function shortfalls(bounds: readonly Bound[], results: readonly FullResult[]): string[] {
  return bounds.flatMap(({ task, metric, least }) => {
    const means = results.find((result) => result.task.name === task)?.means ?? [];
    const mean = metric === undefined ? means[0] : means.find((one) => one.metric === metric);
    if (mean && mean.value >= least) return [];
    const score = mean ? `${mean.metric} is ${mean.value.toFixed(4)}` : "there is no score";
    return [`${task}: ${score}, below the required ${least}`];
  });
}
