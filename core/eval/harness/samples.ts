/**
 * Answers of a model: one record per row and sample, and files of them.
 *
 *     {"task": "gsm8k", "doc_id": 0, "sample": 0, "request": "0f3c…", "temperature": 0,
 *      "text": " Janet sells …", "tokens": 57, "finish_reason": "stop"}
 *     {"task": "piqa", "doc_id": 4, "sample": 0, "request": "77ab…",
 *      "loglikelihood": [-41.2, -39.9], "is_greedy": [false, false]}
 *
 * `request` is a hash of what the model was asked, so that answers to other prompts are noticed. Other
 * tools' layouts are read as well; what they do not say stays undefined.
 */
import { isObject, parseJson, show } from "../../base/files.ts";
import { wrong } from "../../data/document.ts";

/** One answer, as it stands in a file. */
export interface Sample {
  readonly task: string;
  /** Row number from 0; or a name of its own that only the task can resolve, as EvalPlus has. */
  readonly doc_id: number | string;
  /** Number among several answers: greedy ones are 0. */
  readonly sample: number;
  readonly request?: string | undefined;
  /** Of choices, in their order; of a whole text, one value. */
  readonly loglikelihood?: readonly number[] | undefined;
  readonly is_greedy?: readonly boolean[] | undefined;
  /** Text of the answer: cut at stop strings, except code, which is cut when it is scored. */
  readonly text?: string | undefined;
  /** A whole program from another tool. */
  readonly solution?: string | undefined;
  readonly temperature?: number | undefined;
  /** Number of tokens: new ones of an answer, scored ones of a text. */
  readonly tokens?: number | undefined;
  readonly finish_reason?: string | undefined;
}

const isCount = (value: unknown) => Number.isSafeInteger(value) && Number(value) >= 0;
const isNumbers = (value: unknown) => Array.isArray(value) && value.every(Number.isFinite);

/** Checks of fields, by the words for them in messages. */
const TYPES = {
  "text": (value) => typeof value === "string",
  "a number": Number.isFinite,
  "a number or null": (value) => value === null || Number.isFinite(value),
  "an integer of at least 0": isCount,
  "I/N or null": (value) => /^(\d+\/\d+|null)$/.test(String(value ?? null)),
  "a list": Array.isArray,
  "a list of numbers": isNumbers,
  "an object": isObject,
  "an object of counts": (value) => isObject(value) && Object.values(value).every(isCount),
  "an object of numbers and lists of numbers": (value) =>
    isObject(value) && Object.values(value).every((one) => Number.isFinite(one) || isNumbers(one)),
} satisfies Record<string, (value: unknown) => boolean>;

/** Types of the fields that a record must have. */
export type Fields = Readonly<Record<string, keyof typeof TYPES>>;

/**
 * Returns a value of a file as the record that it must be; `place` says where it stands.
 * @throws {DataError} for anything but an object, and for a field of another type
 */
export function requireFields<T>(value: unknown, fields: Fields, place: string): T {
  if (!isObject(value)) throw wrong(place, `is not a JSON object: ${show(value)}`);
  for (const [name, type] of Object.entries(fields)) {
    if (TYPES[type](value[name])) continue;
    throw wrong(place, `has ${name} ${show(value[name])}, expected ${type}`);
  }
  return value as T;
}

/** Fields that a sample may have. */
const SAMPLE_FIELDS: Fields = {
  request: "text",
  loglikelihood: "a list of numbers",
  text: "text",
  solution: "text",
  temperature: "a number",
  tokens: "an integer of at least 0",
};

/** By what a sample is found again. */
export function sampleKey({ task, doc_id, sample }: Sample): string {
  return `${task}/${doc_id}/${sample}`;
}

/**
 * A parsed line as a sample. `task` is what a line without a task belongs to; `known` are the tasks
 * that were asked for.
 * @throws {DataError} naming the place, for lines that cannot be scored
 */
export class SampleReader {
  /** Answers so far to a row, for layouts that number none. */
  readonly #counts = new Map<string, number>();
  readonly #seen = new Set<string>();

  constructor(readonly tasks: readonly string[]) {}

  /** Reads one line; undefined for a sample of a task that was not asked for. */
  read(value: unknown, place: string): Sample | undefined {
    if (!isObject(value)) throw wrong(place, `is not a JSON object: ${show(value)}`);
    if (typeof value.error === "string") {
      throw wrong(place, `is a failed row without an answer: ${show(value.error)}`);
    }
    const sample = this.#ours(value, place) ?? this.#evalPlus(value) ??
      this.#harness(value, place) ??
      this.#generated(value, place);
    if (!sample) {
      const names = Object.keys(value).map((name) => `"${name}"`).join(", ");
      const problem = names === ""
        ? "is an empty object"
        : `is not a known kind of sample: ${names}`;
      throw wrong(place, problem, [
        'a sample has "task", "doc_id" and "text"',
        'other layouts: {"task_id", "solution"} of EvalPlus, {"doc_id", "resps"} of the harness, ' +
        '{"id", "text"} of `parscale generate`',
      ]);
    }
    if (!this.tasks.includes(sample.task)) return undefined;
    const key = sampleKey(sample);
    if (this.#seen.has(key)) throw wrong(place, `repeats the sample ${show(key)}`);
    this.#seen.add(key);
    return sample;
  }

  #ours(value: Record<string, unknown>, place: string): Sample | undefined {
    if (typeof value.task !== "string" || value.doc_id === undefined) return undefined;
    const { task, doc_id, sample = 0 } = value;
    const hasId = Number.isInteger(doc_id) && (doc_id as number) >= 0;
    if (!hasId) throw wrong(place, `has doc_id ${show(doc_id)}, expected a row number`);
    if (!Number.isInteger(sample)) {
      throw wrong(place, `has sample ${show(sample)}, expected a number`);
    }
    // Tables write null for a field that is absent.
    const present = Object.fromEntries(Object.entries(value).filter(([, field]) => field !== null));
    const fields = Object.entries(SAMPLE_FIELDS).filter(([name]) => name in present);
    requireFields(present, Object.fromEntries(fields), place);
    if (present.loglikelihood === undefined && present.text === undefined) {
      throw wrong(place, 'has neither "text" nor a list "loglikelihood"');
    }
    return { ...present, task, doc_id: doc_id as number, sample: sample as number };
  }

  #evalPlus(value: Record<string, unknown>): Sample | undefined {
    const { task_id, solution, completion } = value;
    if (typeof task_id !== "string") return undefined;
    const task = task_id.startsWith("HumanEval/")
      ? "humaneval"
      : task_id.startsWith("Mbpp/")
      ? "mbpp"
      : undefined;
    if (task === undefined) return undefined;
    const sample = this.#next(`${task}/${task_id}`);
    if (typeof solution === "string") return { task, doc_id: task_id, sample, solution };
    if (typeof completion === "string") return { task, doc_id: task_id, sample, text: completion };
  }

  /** Of `--log_samples`: answers in `resps`, log-likelihoods as pairs with whether they are greedy. */
  #harness(value: Record<string, unknown>, place: string): Sample | undefined {
    const { doc_id, resps } = value;
    if (!Number.isInteger(doc_id) || !Array.isArray(resps)) return undefined;
    const task = this.#only(place);
    const key = { task, doc_id: doc_id as number };
    const [first] = resps as unknown[][];
    if (typeof first?.[0] === "string") {
      // The harness writes a row once for every filter, with the same answers.
      if (this.#seen.has(sampleKey({ ...key, sample: 0 }))) return { ...key, task: "", sample: 0 };
      return { ...key, sample: 0, text: first[0] };
    }
    const pairs = resps.map((one) => (one as unknown[])?.[0]) as [unknown, unknown][];
    const numbers = pairs.map((pair) => Number(pair?.[0]));
    if (!numbers.every(Number.isFinite)) {
      throw wrong(place, `has ${show(resps)} in "resps", expected answers`);
    }
    const is_greedy = pairs.map(([, greedy]) => greedy === true || greedy === "True");
    return { ...key, sample: 0, loglikelihood: numbers, is_greedy };
  }

  /** Rows of `parscale generate`. */
  #generated(value: Record<string, unknown>, place: string): Sample | undefined {
    const { id, text, tokens, sequences, finish_reason } = value;
    if (!Number.isInteger(id) || (id as number) < 0) return undefined;
    const task = this.#only(place);
    const sample = this.#next(`${task}/${id}`);
    if (typeof text === "string") {
      const count = Array.isArray(tokens) ? tokens.length : undefined;
      const reason = typeof finish_reason === "string" ? finish_reason : undefined;
      return { task, doc_id: id as number, sample, text, tokens: count, finish_reason: reason };
    }
    if (Array.isArray(sequences)) {
      throw wrong(place, 'has several answers in "sequences"', [
        "write one row per answer: `parscale generate` without `--num-return`",
      ]);
    }
  }

  #next(row: string): number {
    const sample = this.#counts.get(row) ?? 0;
    this.#counts.set(row, sample + 1);
    return sample;
  }

  #only(place: string): string {
    if (this.tasks.length === 1) return this.tasks[0]!;
    throw wrong(place, "does not name its task", [
      "pass the one task these samples belong to with `--tasks`",
    ]);
  }
}

/** Parses a line; a file cut off in its last line is told apart from a bad one. */
export function parseSampleLine(line: string, place: string, isLast: boolean): unknown {
  const cut = "the last line of the file is incomplete: remove it, or resume the run that wrote it";
  return parseJson(line, place, isLast ? [cut] : []);
}
