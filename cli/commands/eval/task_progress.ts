/** Progress of answering: a line per task, whose time left follows from characters to read or tokens to write. */
import type { Request } from "../../../core/eval/harness/documents.ts";
import type {
  DecodingOptions,
  PlannedDocument,
  Unfinished,
} from "../../../core/eval/harness/predict.ts";
import { type Sample, sampleKey } from "../../../core/eval/harness/samples.ts";
import type { Task } from "../../../core/eval/harness/task.ts";
import type { Io } from "../../output/io.ts";
import { Progress } from "../../output/progress.ts";
import { AnswerWork, type Work } from "../../output/time_left.ts";

type Limits = Pick<DecodingOptions, "temperatures" | "maxTokens">;

const keyOf = ({ document }: PlannedDocument, sample: number) =>
  sampleKey({ task: document.task.name, doc_id: document.id, sample });

/** Characters of choices, which share their context, or of a text. */
function lengthOf(requests: readonly Request[]): number {
  const continuations = requests.map((one) => "continuation" in one ? one.continuation : "");
  return requests[0]!.context.length + continuations.join("").length;
}

/** Samples of a task, and the work of those that are not done. */
class TaskWork {
  readonly total: number;
  done: number;
  readonly #answers: AnswerWork | undefined;
  /** Characters of texts and choices that are read, by the keys of their samples. */
  readonly #lengths = new Map<string, number>();
  readonly #characters: number;
  #read = 0;

  constructor(
    task: Task,
    planned: readonly PlannedDocument[],
    { temperatures, maxTokens }: Limits,
    done: ReadonlySet<string>,
  ) {
    const open = planned.flatMap((one) =>
      temperatures(task).map((_, sample) => ({ key: keyOf(one, sample), ...one }))
    ).filter(({ key }) => !done.has(key));
    this.total = planned.length * temperatures(task).length;
    this.done = this.total - open.length;
    const [first] = planned[0]!.requests;
    if (first!.kind === "generate_until") {
      this.#answers = new AnswerWork(open.length, maxTokens ?? first!.maxTokens);
    } else open.forEach(({ key, requests }) => this.#lengths.set(key, lengthOf(requests)));
    this.#characters = this.#lengths.values().reduce((sum, length) => sum + length, 0);
  }

  grow(answer: NonNullable<Unfinished["answer"]>): Work | undefined {
    this.#answers?.grow(answer.key, answer.tokens);
    return this.#answers?.work;
  }

  /** Returns the work once a share of the sample that is read now is done. */
  reading(share: number): Work {
    const part = share * this.#characters / this.#lengths.size;
    return { done: this.#read + part, total: this.#characters };
  }

  end(sample: Sample): Work | undefined {
    const key = sampleKey(sample);
    this.done++;
    this.#answers?.end(key, sample.tokens ?? 0);
    this.#read += this.#lengths.get(key) ?? 0;
    return this.#answers ? this.#answers.work : this.reading(0);
  }
}

/** One progress line per task. */
export class TaskProgress implements Disposable {
  readonly #tasks = new Map<string, TaskWork>();
  #task: string | undefined;
  #line: Progress | undefined;

  /** `done` are keys of samples of earlier runs. */
  constructor(
    readonly io: Io,
    plan: readonly PlannedDocument[],
    limits: Limits,
    done: ReadonlySet<string>,
  ) {
    for (const [task, planned] of Map.groupBy(plan, ({ document }) => document.task)) {
      this.#tasks.set(task.name, new TaskWork(task, planned, limits, done));
    }
  }

  /** Takes a sample that is done. */
  add(sample: Sample): void {
    const work = this.#tasks.get(sample.task)!, line = this.#lineOf(sample.task, work);
    const now = work.end(sample);
    line.update(work.done, "", now);
  }

  /** Takes part of a sample. */
  show({ task, windows, answer }: Unfinished): void {
    const work = this.#tasks.get(task)!;
    if (answer) {
      const now = work.grow(answer);
      // Answers in free words are of several tasks at once.
      if (task === this.#task && now) this.#line!.update(work.done, "", now);
    } else if (windows) {
      const [read, all] = windows;
      const detail = `window ${read} of ${all}`;
      this.#lineOf(task, work).update(work.done, detail, work.reading(read / all));
    }
  }

  #lineOf(task: string, { total, done }: TaskWork): Progress {
    if (task === this.#task) return this.#line!;
    this.#line?.[Symbol.dispose]();
    const options = { label: `Evaluating ${task}`, unit: "samples", total, from: done };
    [this.#task, this.#line] = [task, new Progress(this.io, options)];
    return this.#line;
  }

  [Symbol.dispose](): void {
    this.#line?.[Symbol.dispose]();
  }
}
