/**
 * Result files in the layout of lm-evaluation-harness 0.4.13, for tools that read these.
 *
 *     results_2026-11-26T10-28-00.123000.json         means, and how they were obtained
 *     samples_gsm8k_2026-11-26T10-28-00.123000.jsonl  one line per row and filter
 *
 * Tasks, metrics and filters have the harness's names; subjects of MMLU and MATH are tasks of their own.
 * `doc_id` counts the rows of the whole task even there, so that `--score` finds them. Fields about the
 * harness itself and its Python are absent.
 */
import { hash } from "node:crypto";
import type { JsonObject } from "../../base/files.ts";
import { jsonText } from "../../storage/write_file.ts";
import { flexibleExtract, strictMatch } from "../grading/math/gsm8k.ts";
import { MMLU_GROUPS } from "../tasks/mmlu.ts";
import { type ChatRenderer, type Document, type Request, requestsOf } from "./documents.ts";
import type { TextFile } from "./eval_folder.ts";
import type { PreparedTask } from "./prepare.ts";
import { type DocumentScore, summarize } from "./results.ts";
import type { Sample } from "./samples.ts";
import { answersByDocument } from "./score.ts";
import type { ChoiceQuestion, Metrics, OpenQuestion, Task } from "./task.ts";

/** Answers with their scores, and what is said of the run. */
export interface HarnessRun {
  readonly prepared: readonly PreparedTask[];
  readonly samples: readonly Sample[];
  /** Absent where prompts are plain texts. */
  readonly render: ChatRenderer | undefined;
  readonly scores: readonly DocumentScore[];
  readonly startedAt: Date;
  /** Undefined for answers made elsewhere. */
  readonly model: string | undefined;
  /** Entries of `config` besides the model. */
  readonly config: JsonObject;
}

/** A task or subject; with `children` a group of these. */
interface Part {
  readonly of: PreparedTask;
  readonly scores: DocumentScore[];
  readonly children: Set<string>;
}

/** The harness's metrics and filters, where they are not called as ours and "none". */
const METRICS: Readonly<Record<string, readonly [metric: string, filter: string]>> = {
  strict_match: ["exact_match", "strict-match"],
  flexible_extract: ["exact_match", "flexible-extract"],
  prompt_strict: ["prompt_level_strict_acc", "none"],
  instruction_strict: ["inst_level_strict_acc", "none"],
  prompt_loose: ["prompt_level_loose_acc", "none"],
  instruction_loose: ["inst_level_loose_acc", "none"],
};
const namesOf = (metric: string) => METRICS[metric] ?? [metric, "none"];
const filtersOf = ({ metrics }: Task) => [...new Set(metrics.map((name) => namesOf(name)[1]))];

/** Versions of lm-evaluation-harness tasks that differ from ours. */
const VERSIONS: Readonly<Record<string, number>> = {
  race: 3,
  gsm8k: 3,
  gsm8k_cot: 3,
  minerva_math: 3.1,
  ifeval: 4,
};

const OUTPUT_TYPES = {
  choice: "multiple_choice",
  generation: "generate_until",
  perplexity: "loglikelihood_rolling",
};

/** Subjects that the harness abbreviates. */
const SUBJECTS: Readonly<Record<string, string>> = {
  counting_and_probability: "counting_and_prob",
  number_theory: "num_theory",
  precalculus: "precalc",
};

/** Files of a run; the results are last. */
export function harnessFiles(run: HarnessRun): TextFile[] {
  const date = run.startedAt.toISOString().slice(0, -1).replaceAll(":", "-") + "000";
  const parts = partsOf(run);
  const samples = [...parts].filter(([, { children }]) => children.size === 0)
    .map(([name, part]) => ({
      name: `samples_${name}_${date}.jsonl`,
      lines: sampleLines(run, part),
    }));
  return [...samples, { name: `results_${date}.json`, lines: [jsonText(resultsOf(run, parts))] }];
}

function partsOf({ prepared, scores }: HarnessRun): Map<string, Part> {
  const byTask = Map.groupBy(scores, ({ task }) => task);
  const parts = new Map<string, Part>();
  for (const of of prepared) {
    for (const score of byTask.get(of.task.name) ?? []) {
      let parent: Part | undefined;
      for (const name of pathOf(of.task.name, score.group)) {
        parent?.children.add(name);
        parent = parts.getOrInsertComputed(name, () => ({ of, scores: [], children: new Set() }));
        parent.scores.push(score);
      }
    }
  }
  return parts;
}

/** Names from the whole task to a subject, which may be any text in the data. */
function pathOf(task: string, subject: string): string[] {
  if (subject === "") return [task];
  const area = task === "mmlu" ? MMLU_GROUPS.get(subject) : undefined;
  const names = [area, SUBJECTS[subject] ?? subject].filter((name) => name !== undefined);
  return [task, ...names.map((name) => `${task}_${name.replace(/\W/g, "_")}`)];
}

function resultsOf(run: HarnessRun, parts: ReadonlyMap<string, Part>): JsonObject {
  const { model, render, startedAt, config } = run;
  const groups = [...parts].filter(([, { children }]) => children.size > 0);
  const tasks = [...parts].filter(([, { children }]) => children.size === 0);
  const by = (value: (part: Part, name: string) => unknown, among = [...parts]) =>
    Object.fromEntries(among.map(([name, part]) => [name, value(part, name)]));
  return {
    results: by(meansOf),
    ...(groups.length > 0 && { groups: by(meansOf, groups) }),
    group_subtasks: by(({ children }) => [...children], groups),
    configs: by(configOf, tasks),
    versions: by(({ of }) => versionOf(of.task), tasks),
    "n-shot": by(({ of }) => of.shots),
    higher_is_better: by(({ of: { task } }) =>
      Object.fromEntries(task.metrics.map((name) => [namesOf(name)[0], task.kind !== "perplexity"]))
    ),
    // Rows of a subject are known only as far as they are evaluated.
    "n-samples": by(({ of, scores }, name) => ({
      original: name === of.task.name ? of.rows : undefined,
      effective: scores.length,
    }), tasks),
    config: {
      model: "parscale",
      model_args: model === undefined ? "" : `pretrained=${model}`,
      ...config,
    },
    date: startedAt.getTime() / 1000,
    model_source: "parscale",
    model_name: model,
    fewshot_as_multiturn: render !== undefined,
  };
}

const versionOf = ({ name, version }: Task) => VERSIONS[name] ?? version;

function meansOf({ of: { task }, scores }: Part, name: string): JsonObject {
  const means = summarize(task, scores).means.flatMap(({ metric, value, stderr }) => {
    const [own, filter] = namesOf(metric);
    return [[`${own},${filter}`, value], [`${own}_stderr,${filter}`, stderr ?? "N/A"]];
  });
  return { name, alias: name, sample_len: scores.length, ...Object.fromEntries(means) };
}

function configOf({ of: { task, shots }, scores: [first] }: Part, name: string): JsonObject {
  const filters = filtersOf(task);
  const values = filters.map((filter) => valuesOf(task, filter, first!.metrics));
  return {
    task: name,
    output_type: OUTPUT_TYPES[task.kind],
    num_fewshot: shots,
    // Lists are added up or pooled before a mean is taken.
    metric_list: Object.entries(Object.assign({}, ...values)).map(([metric, value]) => ({
      metric,
      aggregation: Array.isArray(value) ? undefined : "mean",
      higher_is_better: task.kind !== "perplexity",
    })),
    filter_list: filters.length > 1 ? filters.map((name) => ({ name })) : undefined,
    generation_kwargs: task.kind === "generation" ? { until: task.stops } : undefined,
    metadata: { version: versionOf(task) },
  };
}

/** Metrics of a row that belong to a filter; of texts, log-likelihoods with what they are divided by. */
function valuesOf(task: Task, filter: string, metrics: Metrics): JsonObject {
  if (task.kind === "perplexity") {
    const { nats, words, bytes } = metrics, per = (count: unknown) => [-Number(nats), count];
    return { word_perplexity: per(words), byte_perplexity: per(bytes), bits_per_byte: per(bytes) };
  }
  const own = task.metrics.filter((name) => name in metrics && namesOf(name)[1] === filter);
  return Object.fromEntries(own.map((name) => {
    const value = metrics[name]!;
    // One answer follows its prompt or not; only its instructions are several.
    const isOne = Array.isArray(value) && value.length === 1 && name.startsWith("prompt");
    return [namesOf(name)[0], isOne ? value[0] : value];
  }));
}

async function* sampleLines(
  { samples, render }: HarnessRun,
  { of: { task, documents }, scores }: Part,
): AsyncGenerator<string> {
  const own = samples.filter((sample) => sample.task === task.name);
  const answers = answersByDocument(task, documents, own);
  const byId = new Map(documents.map((one) => [one.document.id, one]));
  for (const filter of filtersOf(task)) {
    for (const { doc_id, metrics } of scores) {
      const { document, requests } = byId.get(doc_id)!;
      const asked = render ? await requestsOf(document, render) : requests;
      const values = valuesOf(task, filter, metrics);
      const head = sampleHead(document, asked, answers.get(doc_id)!, filter);
      yield JSON.stringify({ ...head, metrics: Object.keys(values), ...values }) + "\n";
    }
  }
}

function sampleHead(
  document: Document,
  requests: readonly Request[],
  samples: readonly Sample[],
  filter: string,
): JsonObject {
  const { task, id, row, question } = document, [sample] = samples as [Sample];
  const args = requests.map((request) => argumentsOf(request, sample));
  const { loglikelihood, is_greedy = [] } = sample;
  const greedy = is_greedy.map((one) => one ? "True" : "False");
  const resps = loglikelihood === undefined
    ? [samples.map(({ text, solution }) => text ?? solution!)]
    : task.kind === "perplexity"
    ? [loglikelihood.map(String)]
    : loglikelihood.map((value, i) => [[String(value), ...greedy.slice(i, i + 1)]]);
  const filtered = (response: string | string[]) =>
    filter === "strict-match"
      ? strictMatch(response as string, task.name as "gsm8k" | "gsm8k_cot")
      : filter === "flexible-extract"
      ? flexibleExtract(response as string)
      : response;
  // Problems of code tasks hold all their tests, and are known by name.
  const name = "nameOf" in task ? task.nameOf?.(question as OpenQuestion) : undefined;
  const doc = name === undefined ? row.fields : { task_id: name }, target = targetOf(document);
  return {
    doc_id: id,
    doc,
    target,
    arguments: Object.fromEntries(args.map((arg, i) => [`gen_args_${i}`, arg])),
    resps,
    filtered_resps: resps.map(([first]) => filtered(first!)),
    filter,
    doc_hash: hash("sha256", JSON.stringify(doc, null, 2)),
    prompt_hash: hash("sha256", args[0]!.arg_0),
    target_hash: hash("sha256", target),
  };
}

/** Arguments of the harness's model for a request. */
function argumentsOf(request: Request, { temperature }: Sample) {
  const { context: arg_0 } = request;
  if (request.kind === "generate_until") {
    const sampling = temperature === undefined ? {} : { do_sample: temperature > 0, temperature };
    return { arg_0, arg_1: { until: request.stop, ...sampling } };
  }
  const { continuation } = request;
  if (request.kind === "loglikelihood_rolling") return { arg_0: continuation };
  return { arg_0, arg_1: continuation };
}

/** The number of the right choice, or the text that an answer is compared with. */
function targetOf({ task, question }: Document): string {
  if (task.kind === "perplexity") return question.text;
  if (task.kind === "generation") {
    const { target, answer } = question as OpenQuestion;
    return typeof target === "string" ? target : answer;
  }
  const { options, gold, answer } = question as ChoiceQuestion;
  return options.every(({ text }) => text === options[0]!.text) ? String(gold) : answer;
}
