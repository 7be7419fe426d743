/**
 * A worker thread that answers questions in the order in which they come.
 *
 * Errors that are the user's to mend travel as plain data and leave the thread at work. Any other is a
 * defect: it ends the thread and fails all questions that are open.
 */
import { errorFrom, type PlainError } from "./errors.ts";
import { NO_PERMISSIONS } from "./worker_permissions.ts";

/** Message of the thread; see `thread_worker.ts`. */
export type Reply<A> = { readonly answer: A } | { readonly error: PlainError };

export class Thread<Question, Answer> {
  readonly #worker: Worker;
  readonly #open: PromiseWithResolvers<Answer>[] = [];
  #ended: { readonly reason: unknown } | undefined;

  /** Starts a module that calls `answerQuestions`. It reads files and nothing else of the machine. */
  constructor(module: URL, name: string) {
    this.#worker = new Worker(module, {
      type: "module",
      deno: { permissions: { ...NO_PERMISSIONS, read: "inherit" } },
    });
    this.#worker.onmessage = ({ data }: MessageEvent<Reply<Answer>>) => {
      const { resolve, reject } = this.#open.shift()!;
      if ("answer" in data) resolve(data.answer);
      else reject(errorFrom(data.error));
    };
    this.#worker.onerror = (event) => {
      event.preventDefault(); // else the runtime ends the program
      this.end(new Error(`${name}: ${event.message}`));
    };
  }

  /** Questions without an answer. */
  get waiting(): number {
    return this.#open.length;
  }

  get hasEnded(): boolean {
    return this.#ended !== undefined;
  }

  ask(question: Question): Promise<Answer> {
    if (this.#ended) return Promise.reject(this.#ended.reason);
    const open = Promise.withResolvers<Answer>();
    this.#open.push(open);
    this.#worker.postMessage(question);
    return open.promise;
  }

  /** Ends the thread; what is open, and what is asked from now on, is rejected with the reason. */
  end(reason: unknown = new Error("the thread has ended")): void {
    this.#ended ??= { reason };
    this.#worker.terminate();
    for (const { reject } of this.#open.splice(0)) reject(reason);
  }
}
