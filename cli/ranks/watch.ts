/**
 * Watches the waits of this rank from another thread, `watch_worker.ts`, and what both threads share to
 * report a rank that is lost.
 */
import { EnvironmentError } from "../../core/base/errors.ts";
import type { WaitWatch } from "../../core/collective/data_parallel.ts";
import type { LostRanks, PeerWatchOptions } from "../../core/collective/peers.ts";

/** Time for which other ranks let the primary one report first what may be an error of all. */
export const PRECEDENCE_MS = 2000;

/** Time of a launcher to pass on what a rank wrote, before it ends the job. */
export const FORWARD_MS = 300;

/** Resolves after a time. */
export const delay = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

/** An error as a rank writes it: the primary one as a single process does, others with their number. */
export function rankText(rank: number, text: string): string {
  return rank === 0 ? text : `[rank ${rank}] ${text}`;
}

/** Words of the memory that the threads of a rank share. */
export const SHARED = {
  /** 0 while this rank computes, 1 in a wait with a limit, 2 in one without. */
  kind: 0,
  /** Number of the wait. */
  wait: 1,
  /** Number of the wait that this thread gives up by itself, since it does not hang in a call. */
  taken: 2,
} as const;

/** First message to the thread that watches. */
export interface WatchSettings extends PeerWatchOptions {
  readonly shared: SharedArrayBuffer;
  readonly hints: readonly string[];
  readonly colored: boolean;
  readonly json: boolean;
}

/** Answer of that thread, with the number of the wait. */
export interface WatchAnswer extends LostRanks {
  readonly wait: number;
}

/** A rank that this one waited for has stopped answering. */
export class RankLostError extends EnvironmentError {
  readonly reportsFirst: boolean;

  constructor({ message, reportsFirst }: LostRanks, hints: readonly string[]) {
    super(message, { hints });
    this.reportsFirst = reportsFirst;
  }
}

/** Watches the waits of this rank from another thread; see `watch_worker.ts`. */
export class RankWatch implements WaitWatch {
  readonly #worker: Worker;
  readonly #words: Int32Array;
  #giveUp: ((error: Error) => void) | undefined;

  constructor(settings: Omit<WatchSettings, "shared">) {
    const shared = new SharedArrayBuffer(4 * Object.keys(SHARED).length);
    this.#words = new Int32Array(shared);
    this.#worker = new Worker(new URL("./watch_worker.ts", import.meta.url), {
      type: "module",
      name: "rank watch",
    });
    this.#worker.onerror = (event) => event.preventDefault(); // training continues unwatched
    this.#worker.onmessage = ({ data }: MessageEvent<WatchAnswer>) => {
      const wait = Atomics.load(this.#words, SHARED.wait);
      if (data.wait !== wait || this.#giveUp === undefined) return;
      Atomics.store(this.#words, SHARED.taken, wait);
      this.#giveUp(new RankLostError(data, settings.hints));
    };
    this.#worker.postMessage({ ...settings, shared } satisfies WatchSettings);
  }

  enter(isLimited: boolean, giveUp: (error: Error) => void): void {
    this.#giveUp = giveUp;
    Atomics.add(this.#words, SHARED.wait, 1);
    Atomics.store(this.#words, SHARED.kind, isLimited ? 1 : 2);
  }

  leave(): void {
    Atomics.store(this.#words, SHARED.kind, 0);
    this.#giveUp = undefined;
  }

  stop(): void {
    this.leave();
    this.#worker.terminate();
  }
}
