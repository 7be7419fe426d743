/** Progress of answering: a line per task, whose rate and time left are those of tokens read or written. */
import type {
  DecodingOptions,
  PlannedDocument,
  Unfinished,
} from "../../../core/eval/harness/predict.ts";
import { type Sample, sampleKey } from "../../../core/eval/harness/samples.ts";
import type { Io } from "../../output/io.ts";
import { Progress } from "../../output/progress.ts";
import { AnswerWork } from "../../output/time_left.ts";

/** Samples of a task. */
interface TaskWork {
  readonly total: number;
  done: number;
  /** Of a task whose answers are written, not read. */
  readonly answers: AnswerWork | undefined;
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
    { temperatures, batch }: Pick<DecodingOptions, "temperatures" | "batch">,
    done: ReadonlySet<string>,
  ) {
    for (const [task, planned] of Map.groupBy(plan, ({ document }) => document.task)) {
      const { name } = task, samples = temperatures(task);
      const keys = planned.flatMap(({ document: { id } }) =>
        samples.map((_, sample) => sampleKey({ task: name, doc_id: id, sample }))
      );
      const open = keys.filter((key) => !done.has(key)).length;
      const answers = task.kind === "generation" ? new AnswerWork(open, batch) : undefined;
      this.#tasks.set(name, { total: keys.length, done: keys.length - open, answers });
    }
    // Before the first answer there is its reading; texts and choices are read first.
    const open = [...this.#tasks].filter(([, { total, done }]) => done < total);
    const first = open.find(([, { answers }]) => !answers) ?? open[0];
    if (first) this.#lineOf(first[0]);
  }

  /** Takes a sample that is done. */
  add(sample: Sample): void {
    const line = this.#lineOf(sample.task), task = this.#tasks.get(sample.task)!;
    task.answers?.end();
    line.update(++task.done, "", task.answers?.work);
  }

  /** Takes the tokens that are read of all texts or choices of a task. */
  read(name: string, done: number, total: number): void {
    const line = this.#lineOf(name);
    line.update(this.#tasks.get(name)!.done, `${done}/${total} tokens read`, { done, total });
  }

  /** Takes the tokens that are read of the prompts under way. */
  prefill(done: number, total: number): void {
    const task = this.#tasks.get(this.#task!)!;
    this.#line!.update(task.done, `reading ${done}/${total} tokens of prompts`, task.answers?.work);
  }

  /** Takes a token of an answer: those under way are of several tasks. */
  grow({ task: name }: Unfinished): void {
    const { done, answers } = this.#tasks.get(name)!;
    answers!.grow();
    if (name === this.#task) this.#line!.update(done, "", answers!.work);
  }

  #lineOf(name: string): Progress {
    if (name === this.#task) return this.#line!;
    this.#line?.[Symbol.dispose]();
    const { total, done: from } = this.#tasks.get(name)!;
    const count = { unit: "samples", total, from, workUnit: "tokens" };
    this.#task = name;
    return this.#line = new Progress(this.io, { label: `Evaluating ${name}`, ...count });
  }

  [Symbol.dispose](): void {
    this.#line?.[Symbol.dispose]();
  }
}
