/**
 * Continues many prompts at once: continuous batching over a fixed number of slots.
 *
 * Requests are prefilled one by one (what a prompt shares with the one before is computed once) into
 * free slots and then decoded together, one token per step for every occupied slot; a slot that
 * finishes takes the next request at once. Events come out as they happen: a token, or the end of a
 * request. Requests may come slowly: those under way go on meanwhile.
 * Every request draws from its own random stream, so its result does not depend on what it shares the
 * batch with.
 */
import { Batch } from "./batch.ts";
import type { Engine } from "./engine.ts";
import type { GenerationEvent, GenerationRequest } from "./request.ts";

export type { FinishReason, GenerationEvent, GenerationRequest } from "./request.ts";

/**
 * Runs requests with at most `batch` at a time. A request that cannot be run gives a `failed` event;
 * errors of the engine are thrown.
 */
export async function* generate(
  engine: Engine,
  requests: Iterable<GenerationRequest> | AsyncIterable<GenerationRequest>,
  { batch }: { batch: number },
): AsyncGenerator<GenerationEvent> {
  const queue = new Queue(requests);
  using run = new Batch(engine, batch);
  try {
    for (let index = 0;;) {
      while (!queue.exhausted && run.hasFreeSlot) {
        const request = await queue.next(run.isEmpty);
        if (!request) break;
        yield* run.admit(index++, request);
      }
      if (!run.isEmpty) yield* run.step();
      else if (queue.exhausted) return;
    }
  } finally {
    await queue.close();
  }
}

/** How long decoding waits for a request that a slow source has not made yet. */
const PATIENCE_MS = 5;

/** Requests in order. A slow source does not keep those under way from going on. */
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
