/**
 * Definition of a benchmark: where its rows lie, how a row becomes a question, and how answers are scored.
 *
 * One file per benchmark under `tasks/` fills in one of these tables; everything else (which shots,
 * which prompt, running, means) is shared. The contract of every rule is lm-evaluation-harness
 * 0.4.13 and EvalPlus (HumanEval+ v0.1.10, MBPP+ v0.2.0).
 */
import type { Grader } from "../grading/code/grade.ts";
import type { Row } from "./row.ts";

/** Text before an answer, and the answer as a solved example shows it. */
export interface Question {
  readonly text: string;
  readonly answer: string;
}

/** A question with given answers, of which the likeliest is taken. */
export interface ChoiceQuestion extends Question {
  /**
   * Candidate answers: one context with several endings (WinoGrande: several contexts, one ending).
   */
  readonly options: readonly { readonly text: string; readonly ending: string }[];
  readonly gold: number;
}

/** A question answered in the model's own words. */
export interface OpenQuestion extends Question {
  /** Value with which the answer is compared; its type is known to the task alone. */
  readonly target: unknown;
}

/** A question choices are made for. */
export function choiceQuestion(
  text: string,
  choices: readonly string[],
  gold: number,
): ChoiceQuestion {
  const options = choices.map((ending) => ({ text, ending }));
  return { text, answer: choices[gold]!, options, gold };
}

/** Means over rows, or the values that are to be pooled when a row has several. */
export type Metrics = Readonly<Record<string, number | readonly number[]>>;

/** One answer of the model. */
export interface Response {
  /** Cut at the first stop string. */
  readonly text: string;
  /** 0 for greedy decoding; undefined where it is not known. */
  readonly temperature?: number | undefined;
  /** A whole program, where another tool made it; `text` is then of no use. */
  readonly solution?: string | undefined;
}

/** Tools of scorers. */
export interface ScoringTools {
  /** Runs model-written code; throws `UsageError` unless the user allowed it. */
  grader(): Promise<Grader>;
  /** True if our own answers are reduced to what a solution needs before they run. */
  readonly sanitize: boolean;
}

/** Names of a split's files below the benchmark's folder, without their endings; first match wins. */
export type SplitNames = readonly string[];

interface TaskBase {
  /** As it is asked for: `gsm8k`. */
  readonly name: string;
  /** As it is printed: `GSM8K`. */
  readonly title: string;
  /** Raised when the same answers would score differently. */
  readonly version: number;
  /** Source of the rows, for `eval ls`. */
  readonly source: string;
  /** File of rows, of a task that is the user's own. */
  readonly file?: string | undefined;
  /** Folder of the benchmark below the data folder. */
  readonly folder: string;
  readonly rows: SplitNames;
  /** Rows of the official splits; absent where there is none. */
  readonly size?: { readonly rows: number; readonly pool?: number };
  /** Metrics in the order of the table; the first is the headline. */
  readonly metrics: readonly string[];
  /** Solved examples before the question. */
  readonly shots: Shots;
  /** Text before all shots, by group. */
  describe?(group: string): string;
  /** Names the part of the benchmark a row belongs to, such as its subject. */
  groupOf?(row: Row): string;
  /** Rows of a file's text, where its numbers would not survive the usual way. */
  parse?(text: string, path: string): Row[];
  /** Rows as the official files have them, where one file is not simply a list of rows. */
  arrange?(rows: Row[]): Row[];
  /** Column that must be different in every row. */
  readonly uniqueColumn?: string;
  /** Derived metrics, such as the macro average; they have no value per row. */
  derive?(means: Readonly<Record<string, number>>): Readonly<Record<string, number>>;
}

/** Solved examples before the question of a prompt. */
export type Shots =
  /** The task takes no shots. */
  | { readonly count: 0 }
  /** Drawn anew for every row, from a split or from the evaluated rows themselves. */
  | {
    readonly count: number;
    readonly pool: SplitNames | "evaluated rows";
    readonly order: "random";
    /** One more is drawn, and the evaluated row itself taken out. */
    readonly spare?: boolean;
  }
  /** The first of the row's group. */
  | { readonly count: number; readonly pool: SplitNames; readonly order: "first" }
  /** Written into the task's definition. */
  | { readonly count: number; readonly fixed: readonly Question[] };

/** A benchmark of choices. */
export interface ChoiceTask extends TaskBase {
  readonly kind: "choice";
  read(row: Row): ChoiceQuestion;
}

/** A benchmark of free answers, code included. */
export interface GenerationTask extends TaskBase {
  readonly kind: "generation";
  read(row: Row): OpenQuestion;
  /** Texts that end an answer. */
  readonly stops: readonly string[];
  readonly maxTokens: number;
  /** True if answers are programs. */
  readonly isCode?: boolean;
  /** Prefix of every answer in a conversation, which the model continues. */
  readonly answerStart?: string;
  /** The task as chat models are asked, where that is more than its prompts in a template. */
  readonly inChat?: GenerationTask;
  /** The row's own name, by which other tools' samples refer to it. */
  nameOf?(question: OpenQuestion): string;
  /** Opens the scorer, which turns the answers to one question into its metrics. */
  openScorer(tools: ScoringTools): Promise<Scorer>;
}

/** Metrics of one question by the answers to it. */
export type Scorer = (
  question: OpenQuestion,
  responses: readonly Response[],
) => Metrics | Promise<Metrics>;

/** A text whose tokens are all scored. */
export interface PerplexityTask extends TaskBase {
  readonly kind: "perplexity";
  read(row: Row): Question;
}

/** A benchmark. */
export type Task = ChoiceTask | GenerationTask | PerplexityTask;

/** Format of prompts: conversations in the chat template, or text that the model continues. */
export type PromptFormat = "chat" | "completion";

/** Returns the task as its rows are asked. */
export function taskAsAsked(task: Task, chat: boolean): Task {
  return chat && task.kind === "generation" ? task.inChat ?? task : task;
}

/** Returns whether the answers to a task are programs. */
export function isCode(task: Task): boolean {
  return task.kind === "generation" && task.isCode === true;
}

/** Scorer of tasks that grade each answer by itself: the mean over answers of every metric. */
export function eachResponse(
  grade: (question: OpenQuestion, text: string) => Readonly<Record<string, number>>,
): (tools: ScoringTools) => Promise<Scorer> {
  const scorer: Scorer = (question, responses) => {
    const all = responses.map(({ text }) => grade(question, text));
    const meanOf = (name: string) => all.reduce((sum, one) => sum + one[name]!, 0) / all.length;
    return Object.fromEntries(Object.keys(all[0] ?? {}).map((name) => [name, meanOf(name)]));
  };
  return () => Promise.resolve(scorer);
}
