/** A queue of work that is done one at a time. */

/** Gives the cheapest work the next turn, but the oldest every fourth, so that none waits for ever. */
export class TurnQueue {
  /** Oldest first. */
  readonly #waiting: { readonly cost: () => number; readonly start: () => void }[] = [];
  #isBusy = false;
  #turns = 0;

  /** Does `work` in its turn; if `signal` aborts before, it leaves the queue. */
  async take<T>(cost: () => number, work: () => Promise<T>, signal?: AbortSignal): Promise<T> {
    signal?.throwIfAborted();
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const entry = { cost, start: resolve };
    const leave = () => {
      const at = this.#waiting.indexOf(entry);
      if (at < 0) return;
      this.#waiting.splice(at, 1);
      reject(signal!.reason);
    };
    signal?.addEventListener("abort", leave);
    this.#waiting.push(entry);
    this.#startNext();
    await promise.finally(() => signal?.removeEventListener("abort", leave));
    try {
      return await work();
    } finally {
      this.#isBusy = false;
      this.#startNext();
    }
  }

  #startNext(): void {
    if (this.#isBusy || this.#waiting.length === 0) return;
    this.#isBusy = true;
    const costs = this.#waiting.map(({ cost }) => cost());
    const next = ++this.#turns % 4 === 0 ? 0 : costs.indexOf(Math.min(...costs));
    this.#waiting.splice(next, 1)[0]!.start();
  }
}
