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

  /**
   * Starts a module that calls `answerQuestions`. It reads files, writes into `folder`, and uses nothing else of
   * the machine.
   */
  constructor(module: URL, name: string, folder?: string) {
    const write = folder === undefined ? false : [folder];
    this.#worker = new Worker(module, {
      type: "module",
      deno: { permissions: { ...NO_PERMISSIONS, read: "inherit", write } },
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

  /** Asks a question; memory in `handedOver` is moved, not copied. */
  ask(question: Question, handedOver: ArrayBuffer[] = []): Promise<Answer> {
    if (this.#ended) return Promise.reject(this.#ended.reason);
    this.#worker.postMessage(question, handedOver); // throws for values that cannot be cloned
    const open = Promise.withResolvers<Answer>();
    this.#open.push(open);
    return open.promise;
  }

  /** Ends the thread; what is open, and what is asked from now on, is rejected with the reason. */
  end(reason: unknown = new Error("the thread has ended")): void {
    this.#ended ??= { reason };
    this.#worker.terminate();
    for (const { reject } of this.#open.splice(0)) reject(reason);
  }
}

/** A worker started on demand and stopped when idle; a live worker keeps the process running. */
export class LazyThread<Question, Answer> {
  #thread: Thread<Question, Answer> | undefined;
  #idle: ReturnType<typeof setTimeout> | undefined;

  constructor(
    private readonly start: () => Thread<Question, Answer>,
    private readonly idleMs: number,
  ) {}

  get waiting(): number {
    return this.#thread?.waiting ?? 0;
  }

  /** Asks as `Thread.ask` does. */
  async ask(question: Question, handedOver?: ArrayBuffer[]): Promise<Answer> {
    clearTimeout(this.#idle);
    if (!this.#thread || this.#thread.hasEnded) this.#thread = this.start();
    const thread = this.#thread;
    try {
      return await thread.ask(question, handedOver);
    } finally {
      if (thread.waiting === 0) {
        clearTimeout(this.#idle);
        this.#idle = setTimeout(() => thread.end(), this.idleMs);
        Deno.unrefTimer(this.#idle as unknown as number);
      }
    }
  }

  /** Ends the thread; the next question starts another. */
  end(reason?: unknown): void {
    this.#thread?.end(reason);
  }
}
