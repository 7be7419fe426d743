/**
 * From samples to results: metrics of every document, and their means with standard errors.
 *
 * The same code serves a run, a file scored later and samples of another tool, so that none can differ.
 */
import { DataError } from "../../base/errors.ts";
import type { Document } from "./documents.ts";
import { meanWithError } from "./paired.ts";
import { BLANKS, codePointLength } from "../python/text.ts";
import type { Sample } from "./samples.ts";
import type {
  ChoiceQuestion,
  Metrics,
  OpenQuestion,
  PromptFormat,
  Scorer,
  ScoringTools,
  Task,
} from "./task.ts";

/** Metrics of one document. */
export interface DocumentScore {
  readonly task: string;
  readonly doc_id: number;
  readonly group: string;
  /** See `requestHash`. */
  readonly request: string;
  /** Hash of all that decides the score: the samples, the question and how they are scored. */
  readonly samples: string;
  readonly metrics: Metrics;
}

/** A mean over documents; derived numbers have no standard error. */
export type Mean = { readonly metric: string } & Readonly<ReturnType<typeof meanWithError>>;

/** Result of a task. */
export interface TaskResult {
  readonly task: Task;
  /** Documents scored. */
  readonly documents: number;
  /** In the order of the task's metrics; the first is the headline. */
  readonly means: readonly Mean[];
  /** Means of the headline by group, where the task has groups. */
  readonly groups: readonly (Mean & { readonly group: string })[];
}

/** Facts of a task besides its scores; part of a line of results.json. */
export interface TaskFacts {
  readonly task: Task;
  readonly shots: number;
  readonly prompt_format: PromptFormat;
  readonly files: readonly { readonly path: string; readonly sha256: string }[];
  readonly sandbox?: string | null;
  readonly python?: string | null;
}

/** Opens what turns the samples of a document into its metrics. */
export async function openDocumentScorer(
  task: Task,
  tools: ScoringTools,
): Promise<(document: Document, samples: readonly Sample[]) => Metrics | Promise<Metrics>> {
  if (task.kind === "choice") {
    return ({ question }, [sample]) => choiceMetrics(question as ChoiceQuestion, sample!);
  }
  if (task.kind === "perplexity") return ({ question }, [one]) => textMetrics(question.text, one!);
  const score: Scorer = await task.openScorer(tools);
  return ({ question }, samples) => {
    const wrong = samples.find(({ text, solution }) => (text ?? solution) === undefined);
    if (wrong) throw mismatch(wrong, "no text");
    const responses = samples.map((sample) => ({ ...sample, text: sample.text ?? "" }));
    return score(question as OpenQuestion, responses);
  };
}

/** Accuracy by the likeliest choice, and by the likeliest per character; ties go to the first. */
export function choiceMetrics({ options, gold }: ChoiceQuestion, sample: Sample): Metrics {
  const values = sample.loglikelihood ?? [];
  if (values.length !== options.length) {
    throw mismatch(
      sample,
      `${values.length} log-likelihoods, expected ${options.length}, one per choice`,
    );
  }
  const perCharacter = values.map((value, i) => value / codePointLength(options[i]!.ending));
  return { acc: Number(argmax(values) === gold), acc_norm: Number(argmax(perCharacter) === gold) };
}

/** Totals of a text, from which perplexities are derived. */
export function textMetrics(text: string, sample: Sample): Metrics {
  const [loglikelihood] = sample.loglikelihood ?? [];
  if (loglikelihood === undefined || sample.tokens === undefined) {
    throw mismatch(sample, "no log-likelihood with its number of tokens");
  }
  return {
    nats: -loglikelihood,
    tokens: sample.tokens,
    words: text.split(BLANKS).length,
    bytes: new TextEncoder().encode(text).length,
  };
}

/** An error about a sample; `content` completes "has …". */
function mismatch({ task, doc_id }: Sample, content: string): DataError {
  return new DataError(`the sample for row ${doc_id} of ${task} has ${content}`, {
    hints: ["the samples may belong to another task or another version of the data"],
  });
}

function argmax(values: readonly number[]): number {
  return values.reduce((best, value, i) => value > values[best]! ? i : best, 0);
}

/** Means of a task over its documents. */
export function summarize(task: Task, scores: readonly DocumentScore[]): TaskResult {
  const names = new Set(scores.flatMap(({ metrics }) => Object.keys(metrics)));
  const means = [...names].map((name) => meanOf(name, scores));
  const derived = task.derive?.(Object.fromEntries(means.map((m) => [m.metric, m.value]))) ?? {};
  const n = scores.length;
  const all = [
    ...means,
    ...Object.entries(derived).map(([metric, value]) => ({ metric, value, stderr: undefined, n })),
  ];
  const shown = task.metrics.flatMap((name) => all.filter(({ metric }) => metric === name));
  const headline = shown[0]?.metric;
  const byGroup = Map.groupBy(scores, ({ group }) => group);
  const groups = headline === undefined || task.groupOf === undefined
    ? []
    : [...byGroup].map(([group, members]) => ({ group, ...meanOf(headline, members) }));
  return { task, documents: n, means: shown, groups };
}

function meanOf(metric: string, scores: readonly DocumentScore[]): Mean {
  return { metric, ...meanWithError(scores.flatMap(({ metrics }) => metrics[metric] ?? [])) };
}
