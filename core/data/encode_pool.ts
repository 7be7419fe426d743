/**
 * Encodes batches on several threads.
 *
 * Workers start only when there is enough to do: a tokenizer takes up to a second to open, and each
 * worker opens its own.
 */
import type { Document } from "./document.ts";
import { batchEncoder, type EncodeSettings } from "./encode_batch.ts";
import type { EncodedBatch } from "./token_writer.ts";
import { Thread } from "../base/thread.ts";

/** Batches that wait or are worked on, per worker: while one is encoded the next is on its way. */
const BATCHES_PER_WORKER = 2;

/** Batch for a worker, whose settings are always the same. */
export interface EncodeRequest {
  readonly settings: EncodeSettings;
  readonly documents: readonly Document[];
}

/** Threads that encode batches; dispose of it to end them. */
export class EncodePool implements Disposable {
  readonly #settings: EncodeSettings;
  readonly #threads: number;
  readonly #inline: ReturnType<typeof batchEncoder>;
  #workers: Thread<EncodeRequest, EncodedBatch>[] = [];

  /** `threads` of 1 encode on the caller's own thread. */
  constructor(settings: EncodeSettings, threads: number) {
    this.#settings = settings;
    this.#threads = threads;
    this.#inline = batchEncoder(settings);
  }

  /** Workers running now; tests look at it. */
  get workers(): number {
    return this.#workers.length;
  }

  /** Batches the caller should have under way at once. */
  get capacity(): number {
    return Math.max(1, this.#workers.length * BATCHES_PER_WORKER);
  }

  /** Starts the workers, unless one thread is all there is. */
  start(): void {
    if (this.#workers.length > 0 || this.#threads < 2) return;
    const worker = new URL("./tokenize_worker.ts", import.meta.url);
    this.#workers = Array.from(
      { length: this.#threads },
      () => new Thread<EncodeRequest, EncodedBatch>(worker, "tokenize worker"),
    );
  }

  /** Encodes a batch on the least busy thread. */
  encode(documents: readonly Document[]): Promise<EncodedBatch> {
    if (this.#workers.length === 0) return this.#inline(documents);
    const [worker] = this.#workers.toSorted((a, b) => a.waiting - b.waiting);
    return worker!.ask({ settings: this.#settings, documents });
  }

  [Symbol.dispose](): void {
    for (const worker of this.#workers) worker.end();
  }
}
