/**
 * Sandbox children for jobs that overlap: each child holds one interpreter and gets one job at a time.
 * A child that a program damaged ends with that job and is replaced when the next job needs it.
 */
import { EnvironmentError } from "../../base/errors.ts";
import type { Shell } from "./command.ts";
import type { End, Job, Results, Sandbox } from "./job.ts";
import { Child, LOST } from "./process.ts";
import type { Settings } from "./protocol.ts";

export class Pool implements Sandbox, AsyncDisposable {
  readonly #children = new Set<Child>();
  readonly #idle: Child[] = [];
  readonly #waiting: PromiseWithResolvers<Child>[] = [];
  #closed = false;

  /** A pool of at most `size` children, none started yet. */
  constructor(
    private readonly size: number,
    private readonly settings: Omit<Settings, "token">,
    private readonly shell: Shell,
  ) {}

  /**
   * Starts one child and returns the version of its Python.
   * @throws {EnvironmentError} when it does not come up
   */
  async open(): Promise<string> {
    const child = this.#start();
    try {
      return await child.ready;
    } finally {
      this.#release(child);
    }
  }

  async run(job: Job, onResults: (results: Results) => boolean): Promise<End> {
    let silent = true;
    const listen = (results: Results) => {
      silent = false;
      return onResults(results);
    };
    const end = await this.#try(job, listen).catch((error): End => {
      if (!(error instanceof EnvironmentError)) throw error;
      return { ending: "crashed", detail: LOST };
    });
    // The process may have died before it began, or of something outside: once more, in another.
    return end.ending === "crashed" && end.detail === LOST && silent && !this.#closed
      ? await this.#try(job, listen)
      : end;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#closed = true;
    await Promise.all([...this.#children].map((child) => child.close()));
  }

  async #try(job: Job, onResults: (results: Results) => boolean): Promise<End> {
    const child = await this.#acquire();
    try {
      await child.ready;
      return await child.run(job, onResults);
    } finally {
      this.#release(child);
    }
  }

  #start(): Child {
    const child = new Child(this.settings, this.shell);
    this.#children.add(child);
    return child;
  }

  #acquire(): Promise<Child> {
    const idle = this.#idle.pop();
    if (idle) return Promise.resolve(idle);
    if (!this.#closed && this.#children.size < this.size) return Promise.resolve(this.#start());
    const waiting = Promise.withResolvers<Child>();
    this.#waiting.push(waiting);
    return waiting.promise;
  }

  #release(child: Child): void {
    let free = child;
    if (child.dead) {
      this.#children.delete(child);
      child.close();
      if (this.#closed || this.#waiting.length === 0) return;
      free = this.#start();
    }
    const waiting = this.#waiting.shift();
    if (waiting) waiting.resolve(free);
    else this.#idle.push(free);
  }
}
