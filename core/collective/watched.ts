/** A collective whose waits are watched, so that one for a rank that is gone ends. */
import type { DeviceTensor } from "../runtime/device.ts";
import type { Collective, Transport } from "./collective.ts";

/** What watches waits from another thread, since large exchanges block this one. */
export interface WaitWatch {
  /** A wait begins; one without a limit may take any time. `giveUp` is called when it need not go on. */
  enter(isLimited: boolean, giveUp: (error: Error) => void): void;
  /** The wait has ended. */
  leave(): void;
  /** No more waits come. */
  stop(): void;
}

export class WatchedCollective implements Collective {
  readonly transport: Transport;
  readonly rank: number;
  readonly world: number;
  readonly localRank: number;
  readonly #inner: Collective;
  readonly #watch: WaitWatch;

  constructor(inner: Collective, watch: WaitWatch) {
    this.transport = inner.transport;
    [this.rank, this.world, this.localRank] = [inner.rank, inner.world, inner.localRank];
    [this.#inner, this.#watch] = [inner, watch];
  }

  allReduce(tensor: DeviceTensor): Promise<void> {
    return this.#during(() => this.#inner.allReduce(tensor));
  }

  reduceScatter(tensor: DeviceTensor): Promise<void> {
    return this.#during(() => this.#inner.reduceScatter(tensor));
  }

  allGather(tensor: DeviceTensor): Promise<void> {
    return this.#during(() => this.#inner.allGather(tensor));
  }

  broadcast(tensor: DeviceTensor, root: number): Promise<void> {
    return this.#during(() => this.#inner.broadcast(tensor, root));
  }

  sum(values: readonly number[]): Promise<number[]> {
    return this.#during(() => this.#inner.sum(values));
  }

  barrier(): Promise<void> {
    return this.#during(() => this.#inner.barrier(), false);
  }

  abort(code: number): void {
    this.#watch.stop();
    this.#inner.abort(code);
  }

  close(): void {
    this.#watch.stop();
    this.#inner.close();
  }

  #during<T>(exchange: () => Promise<T>, isLimited = true): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      this.#watch.enter(isLimited, reject);
      exchange().finally(() => this.#watch.leave()).then(resolve, reject);
    });
  }
}
