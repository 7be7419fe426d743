/**
 * Continues many prompts at once, by the scheduler that `serve` uses, too.
 *
 * Events come out as they happen: a token, or the end of a request. Requests may come slowly: those
 * under way continue meanwhile.
 */
import { NumericalError } from "../base/errors.ts";
import type { Engine } from "./engine.ts";
import type { GenerationEvent, GenerationRequest } from "./request.ts";
import { Scheduler } from "./scheduler.ts";

export type { FinishReason, GenerationEvent, GenerationRequest } from "./request.ts";

/** Options of running requests. */
export interface GenerateRunOptions {
  /** Sequences at a time. */
  readonly batch: number;
  /** Bytes to stay within: see `SchedulerOptions`. */
  readonly memoryLimit?: number | undefined;
  /** Most tokens drafted in a step: see `SchedulerOptions`. */
  readonly speculate?: number | undefined;
  /** Called after every round of prompts that are prefilled: tokens in the cache, and all of theirs. */
  readonly onPrefill?: (done: number, total: number) => void;
}

/**
 * Runs requests with at most `batch` at a time. A request that cannot be run gives a `failed` event;
 * errors of the engine, a NaN among them, are thrown.
 */
export async function* generate(
  engine: Engine,
  requests: Iterable<GenerationRequest> | AsyncIterable<GenerationRequest>,
  { onPrefill, ...options }: GenerateRunOptions,
): AsyncGenerator<GenerationEvent> {
  const queue = new Queue(requests);
  using stack = new DisposableStack();
  const schedulers = new Map<Engine, Scheduler>();
  const schedulerOf = (own: Engine) =>
    schedulers.getOrInsertComputed(own, () => stack.use(new Scheduler(own, options)));
  /** Lengths of prompts that are not in the cache yet. */
  const reading = new Map<number, number>();
  const isIdle = () => [...schedulers.values()].every((scheduler) => scheduler.isIdle);
  const hasRoom = () =>
    [...schedulers.values()].reduce((sum, one) => sum + one.running + one.waiting, 0) <
      options.batch;
  try {
    for (let index = 0;;) {
      while (!queue.exhausted && hasRoom()) {
        const request = await queue.next(isIdle());
        if (!request) break;
        reading.set(index, request.tokens.length);
        schedulerOf(request.engine ?? engine).add(index++, request);
      }
      if (isIdle() && queue.exhausted) return;
      for (const scheduler of schedulers.values()) {
        for await (const event of scheduler.round()) {
          if (event.kind === "failed" && event.error instanceof NumericalError) throw event.error;
          reading.delete(event.index);
          if (event.kind !== "prefilled") yield event;
        }
        if (onPrefill === undefined || reading.size === 0) continue;
        const done = reading.keys().reduce((sum, of) => sum + scheduler.progressOf(of), 0);
        if (done > 0) onPrefill(done, reading.values().reduce((sum, length) => sum + length, 0));
      }
    }
  } finally {
    await queue.close();
  }
}

/** Longest wait of decoding for a request that a slow source has not made yet. */
const PATIENCE_MS = 5;

/** Requests in order. A slow source does not keep those under way from continuing. */
class Queue {
  exhausted = false;
  readonly #source: Iterator<GenerationRequest> | AsyncIterator<GenerationRequest>;
  #pending: Promise<void> | undefined;
  #arrived: (() => IteratorResult<GenerationRequest>) | undefined;

  constructor(requests: Iterable<GenerationRequest> | AsyncIterable<GenerationRequest>) {
    this.#source = Symbol.asyncIterator in requests
      ? requests[Symbol.asyncIterator]()
      : requests[Symbol.iterator]();
  }

  /** The next request; undefined at the end, and while there is none unless told to wait for it. */
  async next(wait: boolean): Promise<GenerationRequest | undefined> {
    if (!this.#pending) {
      this.#pending = this.#ask();
      if (!wait) await Promise.race([this.#pending, delay(PATIENCE_MS, this.#pending)]);
    }
    if (wait) await this.#pending;
    if (!this.#arrived) return undefined;
    const { done, value } = this.#arrived();
    this.#pending = this.#arrived = undefined;
    if (!done) return value;
    this.exhausted = true;
  }

  /** Tells the source that no more is asked for. */
  async close(): Promise<void> {
    if (!this.exhausted && !this.#pending) await this.#source.return?.();
  }

  /** Never rejects, since the caller may not be waiting yet; the error is thrown to who takes the result. */
  async #ask(): Promise<void> {
    try {
      const result = await this.#source.next();
      this.#arrived = () => result;
    } catch (error) {
      this.#arrived = () => {
        throw error;
      };
    }
  }
}

/** Resolves after some time, or never once `unless` has settled. */
function delay(ms: number, unless: Promise<void>): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    unless.then(() => clearTimeout(timer));
  });
}
