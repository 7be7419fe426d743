/** Limits how many sandbox jobs run at a time, and lets one run while no other does. */
import type { Sandbox } from "../../sandbox/job.ts";

export class Slots {
  #used = 0;
  /** Work that waits, in order; `all` needs every slot. */
  readonly #queue: { readonly all: boolean; readonly begin: () => void }[] = [];

  constructor(private readonly count: number) {}

  /** A sandbox whose jobs take one slot each. */
  limit(sandbox: Sandbox): Sandbox {
    return { run: (job, onResults) => this.#hold(false, () => sandbox.run(job, onResults)) };
  }

  /** Runs `work` while no job has a slot. */
  async alone<T>(work: () => Promise<T>): Promise<T> {
    return await this.#hold(true, work);
  }

  async #hold<T>(all: boolean, work: () => Promise<T>): Promise<T> {
    await new Promise<void>((begin) => {
      this.#queue.push({ all, begin });
      this.#advance();
    });
    try {
      return await work();
    } finally {
      this.#used -= all ? this.count : 1;
      this.#advance();
    }
  }

  /** Begins what waits, in order: later jobs do not overtake one that waits for all slots. */
  #advance(): void {
    for (let next = this.#queue[0]; next; next = this.#queue[0]) {
      const needed = next.all ? this.count : 1;
      if (this.#used + needed > this.count) return;
      this.#used += needed;
      this.#queue.shift();
      next.begin();
    }
  }
}
