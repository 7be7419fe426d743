/** Everything `parscale eval` shows: its plan, the tasks, exact prompts, and results. */
import { createHash } from "node:crypto";
import { ParscaleError, UsageError } from "../../../core/base/errors.ts";
import { UNDEFINED_KEYS } from "../../../core/eval/grading/ifeval/mod.ts";
import { readTaskData } from "../../../core/eval/harness/data_folder.ts";
import {
  type ChatRenderer,
  type Document,
  type Request,
  requestsOf,
} from "../../../core/eval/harness/documents.ts";
import { type EvalFolder, requireUsable } from "../../../core/eval/harness/eval_folder.ts";
import { harnessFiles, type HarnessRun } from "../../../core/eval/harness/harness_files.ts";
import type { LeftOut, PreparedTask } from "../../../core/eval/harness/prepare.ts";
import {
  type DocumentScore,
  type Mean,
  summarize,
  type TaskFacts,
  type TaskResult,
} from "../../../core/eval/harness/results.ts";
import { isCode, type Task } from "../../../core/eval/harness/task.ts";
import { MMLU_GROUPS } from "../../../core/eval/tasks/mmlu.ts";
import { SUITES, TASKS } from "../../../core/eval/tasks/mod.ts";
import { paperTables } from "../../../core/eval/tasks/paper_tables.ts";
import { PUBLISHED } from "../../../core/eval/tasks/published.ts";
import { renderPrompt } from "../../../core/tokenizer/chat.ts";
import { openTokenizer } from "../../../core/tokenizer/tokenizer.ts";
import type { PlanText } from "../../output/plan.ts";
import { findModel, type ModelPlan, openModel, tryModel } from "../../input/open_model.ts";
import { visibleLines } from "../../output/clean.ts";
import { buildDocument, type Invocation } from "../../output/document.ts";
import { exitCode } from "../../output/exit_codes.ts";
import type { Io } from "../../output/io.ts";
import { Report } from "../../output/report.ts";
import { type Row } from "../../output/table.ts";
import type { AnsweringStats } from "./answer.ts";
import {
  describeFetch,
  planFetch,
  prepareAvailable,
  prepareRows,
} from "../../input/published_rows.ts";
import { type Bound, type EvalPlan, requireTasksAllowed, temperaturesOf } from "./plan.ts";

/** Samples that are scored were decoded somewhere else. */
const GREEDY_SAMPLE = { nSamples: 1, temperature: undefined, maxTokens: undefined };

/** Text of `--dry-run`: one line per task or source, after that of the model where one is given. */
export async function describe(plan: EvalPlan, io: Io): Promise<PlanText> {
  const { kind, values } = plan;
  if (kind === "list") return { lines: [] };
  if (kind === "fetch") return { lines: await describeFetch(plan.rows, io) };
  if (kind !== "show" && values.out !== undefined) await requireUsable(values.out, values);
  if (kind === "score") await io.requireFile(values.score!);
  const model = kind === "evaluate" ? await describeAnswering(plan, io) : { lines: [] };
  const sampling = kind === "evaluate" ? values : GREEDY_SAMPLE;
  const temperatures = temperaturesOf(sampling);
  // Nothing is fetched for a plan, so prompts cannot be counted before the data is there.
  const published = plan.rows.tasks.filter(({ task }) => PUBLISHED[task.name]);
  const missing = plan.rows.data === undefined ? await planFetch(published, io) : [];
  if (missing.length > 0) return { ...model, lines: [...model.lines, ...missing] };
  const { prepared, leftOut } = kind === "show"
    ? { prepared: await prepareRows(plan.rows, io), leftOut: [] }
    : await prepareAvailable(plan.rows, io);
  if (kind === "evaluate") requireTasksAllowed(plan, prepared);
  const lines = prepared.map((one) =>
    lineOf(one, temperatures(one.task).length, sampling.maxTokens)
  );
  const tasks = prepared.map(({ task, shots, promptFormat, documents, rows }) => ({
    task: task.name,
    shots,
    prompt_format: promptFormat,
    rows_total: rows,
    rows: documents.length,
    samples_per_row: temperatures(task).length,
  }));
  const results = { ...model.results, tasks, left_out: leftOut };
  return { lines: [...model.lines, ...lines], results };
}

/** The model of a plan; without one it is shown all the same. */
async function describeAnswering(plan: EvalPlan, io: Io): Promise<PlanText> {
  const { model } = plan;
  if (model === undefined) return { lines: [] };
  const { prepareModel } = await import("./answer.ts");
  const { text, opened } = await tryModel(model, async (model) => ({
    session: await openModel(model, io),
  }));
  using session = opened?.session;
  if (session) await prepareModel(session, plan);
  return text;
}

function lineOf(
  { task, shots, promptFormat, documents, rows }: PreparedTask,
  samples: number,
  maxTokens: number | undefined,
): string {
  const format = promptFormat === "chat" ? ", chat prompts" : "";
  const asked = `${task.name}: ${documents.length} of ${rows} rows, ${shots} shots${format}`;
  if (task.kind !== "generation") {
    const what = task.kind === "choice" ? "log-likelihoods of choices" : "the whole text";
    return `${asked}, ${what}`;
  }
  const answers = samples === 1 ? "one answer" : `${samples} answers`;
  return `${asked}, ${answers} of at most ${maxTokens ?? task.maxTokens} tokens`;
}

const COLUMNS = ["task", "kind", "shots", "rows", "metrics", "files", "source"];

/** Lists all tasks; with --data also how many rows were found, or what is missing. */
export async function listTasks(
  { rows: { data } }: EvalPlan,
  io: Io,
  invocation: Invocation,
): Promise<void> {
  using report = new Report(io, invocation, {
    schema: "parscale.eval-tasks/1",
    columns: data === undefined ? COLUMNS : COLUMNS.toSpliced(5, 0, "found"),
  });
  for (const task of TASKS) {
    report.row({
      task: task.name,
      kind: isCode(task) ? "code" : task.kind,
      shots: task.shots.count,
      rows: task.size?.rows ?? null,
      metrics: task.metrics.slice(0, 2).join(", "),
      ...(data === undefined ? {} : { found: await foundRows(task, data) }),
      files: filesOf(task),
      source: task.source,
    });
  }
  await report.finish();
  if (invocation.format !== "table") return;
  const suites = Object.entries(SUITES).map(([name, tasks]) => `${name} = ${tasks.join(", ")}`);
  io.say(`\nSuites: ${suites.join("; ")}\n`);
}

function filesOf({ folder, rows, shots }: Task): string {
  const below = (name: string) => folder === "." ? name : `${folder}/${name}`;
  const pool = "pool" in shots && typeof shots.pool !== "string" ? [below(shots.pool[0]!)] : [];
  return [below(rows[0]!), ...pool].join(", ");
}

async function foundRows(task: Task, data: string): Promise<string> {
  try {
    const { rows, pool } = await readTaskData(task, data, task.shots.count);
    return pool.length > 0 && pool !== rows
      ? `${rows.length} rows, ${pool.length} to draw from`
      : `${rows.length} rows`;
  } catch (error) {
    if (error instanceof ParscaleError) return "missing";
    throw error;
  }
}

/** Shows prompts, one row per request; a conversation needs a model's template. */
export async function showPrompts(
  { rows, model }: EvalPlan,
  io: Io,
  invocation: Invocation,
): Promise<void> {
  const prepared = await prepareRows(rows, io);
  const render = rows.chat ? await openRenderer(model, io) : undefined;
  const isTable = invocation.format === "table";
  using report = new Report(io, invocation, {
    schema: "parscale.eval-requests/1",
    columns: ["doc_id", "kind", "context", "continuation", "stop", "max_tokens"],
  });
  for (const { task, documents } of prepared) {
    for (const { document, requests: plain } of documents) {
      const requests = render ? await requestsOf(document, render) : plain;
      if (isTable) {
        const text = readable(task.name, document, requests);
        io.say(io.isTerminal("stdout") ? visibleLines(text) : text);
      } else for (const request of requests) report.row(rowOf(document, request));
    }
  }
  if (!isTable) await report.finish();
}

function rowOf({ id }: Document, request: Request): Record<string, unknown> {
  const { kind, context } = request;
  if (kind === "generate_until") {
    return { doc_id: id, kind, context, stop: request.stop, max_tokens: request.maxTokens };
  }
  return { doc_id: id, kind, context, continuation: request.continuation };
}

/** The requests of a row as text: each prompt once, then its continuations. */
function readable(name: string, { id }: Document, requests: readonly Request[]): string {
  const lines: string[] = [];
  let last: string | undefined;
  for (const request of requests) {
    if (request.context !== last) lines.push(`--- ${name} ${id}: prompt`, request.context);
    last = request.context;
    if (request.kind === "generate_until") {
      const stops = request.stop.map((stop) => JSON.stringify(stop)).join(" ");
      lines.push(`--- at most ${request.maxTokens} tokens, until ${stops || "the end token"}`);
    } else lines.push(`--- continuation ${JSON.stringify(request.continuation)}`);
  }
  return lines.join("\n") + "\n";
}

/** Only the chat template of the model. */
async function openRenderer(plan: ModelPlan | undefined, io: Io): Promise<ChatRenderer> {
  if (plan === undefined) {
    throw new UsageError("`--chat` needs `--model`, for its chat template");
  }
  const tokenizer = await openTokenizer((await findModel(plan, io)).model, plan);
  return (messages) => renderPrompt(tokenizer, messages);
}

/** A task's result with its facts. */
interface FullResult extends TaskResult {
  readonly facts: TaskFacts;
  readonly scores: readonly DocumentScore[];
}

/** Results of all tasks that have scores. */
export function summarizeAll(
  facts: readonly TaskFacts[],
  scores: readonly DocumentScore[],
): FullResult[] {
  const byTask = Map.groupBy(scores, ({ task }) => task);
  return facts.flatMap((fact) => {
    const own = byTask.get(fact.task.name);
    return own ? [{ ...summarize(fact.task, own), facts: fact, scores: own }] : [];
  });
}

/** One row per metric. */
function tableRows(results: readonly FullResult[]): Row[] {
  return results.flatMap(({ task, facts, documents, means }) =>
    means.map((mean) => ({
      task: task.name,
      version: task.version,
      shots: facts.shots,
      rows: documents,
      ...meanRow(mean),
    }))
  );
}

/** The `results` of the document for a task. */
function taskObject(
  { task, facts, documents, means, groups, scores }: FullResult,
): Record<string, unknown> {
  const prompts = scores.map(({ doc_id, request }) => `${doc_id} ${request}`).join("\n");
  return {
    task: task.name,
    title: task.title,
    version: task.version,
    shots: facts.shots,
    prompt_format: facts.prompt_format,
    rows: documents,
    metrics: means.map(meanRow),
    groups: groups.map(meanRow),
    supergroups: supergroups(task, scores),
    // Keys of IFEval whose rule the reference leaves to chance.
    undefined_rows: task.name === "ifeval" ? [...UNDEFINED_KEYS] : [],
    prompts_sha256: createHash("sha256").update(prompts).digest("hex"),
    files: facts.files,
    sandbox: facts.sandbox ?? null,
    python: facts.python ?? null,
  };
}

/** MMLU's four groups, each subject by its size. */
function supergroups(task: Task, scores: readonly DocumentScore[]): Row[] {
  if (task.name !== "mmlu") return [];
  const regrouped = scores.map((s) => ({ ...s, group: MMLU_GROUPS.get(s.group) ?? "unknown" }));
  return summarize(task, regrouped).groups.map(meanRow);
}

/** The perplexity per word of a text without blanks is more than a number can hold: null. */
function meanRow(mean: Mean): Row {
  const value = Number.isFinite(mean.value) ? mean.value : null;
  return { ...mean, value, stderr: mean.stderr ?? null };
}

/** The model that was asked, and how. */
export interface Asked {
  readonly fingerprint: string;
  readonly device: string;
  readonly streams: number | null;
  readonly beams: number | null;
  /** Bits of weights; null where they are exact. */
  readonly quantize: string | null;
}

const SCHEMA = "parscale.eval/1";

/** Samples of an evaluation, and all that a report of their scores says besides. */
export interface Answered extends Pick<HarnessRun, "prepared" | "samples" | "render"> {
  readonly plan: EvalPlan;
  readonly io: Io;
  readonly invocation: Invocation;
  readonly leftOut: readonly LeftOut[];
  readonly folder: EvalFolder | undefined;
  /** Absent where samples are scored that exist already. */
  readonly about?: Asked;
  readonly stats?: AnsweringStats;
}

/** Writes results to the folder and to stdout; the number is the exit code. */
export async function report(
  facts: readonly TaskFacts[],
  scores: readonly DocumentScore[],
  { plan, leftOut, io, invocation, folder, about: model, stats, ...run }: Answered,
): Promise<number> {
  const results = summarizeAll(facts, scores);
  const tables = paperTables(results, plan.values.preset);
  const object = {
    model: model?.fingerprint ?? null,
    streams: model?.streams ?? null,
    num_beams: model?.beams ?? null,
    quantize: model?.quantize ?? null,
    stats: stats ?? null,
    tasks: results.map(taskObject),
    tables,
    left_out: leftOut,
  };
  const head = { schema: SCHEMA, device: model?.device };
  const duration = io.system.now() - invocation.startedMs;
  if (plan.values.logFormat === "harness") {
    const { config: { batch, limit, model: name }, startedAt } = invocation;
    const config = { batch_size: batch, device: model?.device, limit };
    const about = { scores, startedAt, model: model && String(name), config };
    const render = plan.values.chat ? run.render : undefined;
    await folder?.writeHarnessFiles(harnessFiles({ ...run, ...about, render }));
  }
  await folder?.finish(scores, buildDocument(invocation, head, duration, object));
  const value = { key: "value", digits: 4, error: "stderr" };
  const columns = ["task", "version", "shots", "rows", "metric", value];
  using output = new Report(io, invocation, { ...head, columns });
  if (invocation.format === "json") await output.finish(object);
  else {
    for (const row of tableRows(results)) output.row(row);
    await output.finish();
  }
  for (const { name, columns } of invocation.format === "table" ? tables : []) {
    const shown = Object.keys(columns).map((key) => ({ key, digits: 1 }));
    io.write(`\n${name}, percent\n${await output.draw(shown, [columns])}`);
  }
  const missed = shortfalls(plan.bounds, results);
  for (const line of missed) io.writeError(`${io.palette("stderr").error("missed:")} ${line}\n`);
  return exitCode(missed.length > 0 || leftOut.length > 0 ? "negative" : "done");
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
