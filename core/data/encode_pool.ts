/**
 * Encodes batches on several threads.
 *
 * Takes batches of documents; returns a promise for each batch, so that the caller keeps their
 * order. Workers start only when there is enough to do: a tokenizer takes up to a second to open,
 * and each worker opens its own.
 */
import type { Document } from "./document.ts";
import {
  batchEncoder,
  type EncodeAnswer,
  type EncodeRequest,
  type EncodeSettings,
  fromAnswer,
} from "./encode_batch.ts";
import type { EncodedBatch } from "./token_writer.ts";
import { NO_PERMISSIONS } from "../base/worker_permissions.ts";

/** Batches that wait or are worked on, per worker: while one is encoded the next is on its way. */
const BATCHES_PER_WORKER = 2;

/** Threads that encode batches; dispose of it to end them. */
export class EncodePool implements Disposable {
  readonly #settings: EncodeSettings;
  readonly #threads: number;
  readonly #inline: ReturnType<typeof batchEncoder>;
  #workers: EncodeWorker[] = [];

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
    this.#workers = Array.from({ length: this.#threads }, () => new EncodeWorker(this.#settings));
  }

  /** Encodes a batch on the least busy thread. */
  encode(documents: readonly Document[]): Promise<EncodedBatch> {
    if (this.#workers.length === 0) return this.#inline(documents);
    const [worker] = this.#workers.toSorted((a, b) => a.waiting - b.waiting);
    return worker!.encode(documents);
  }

  [Symbol.dispose](): void {
    for (const worker of this.#workers) worker.terminate();
  }
}

/** One thread and the batches it has not answered yet, by number. */
class EncodeWorker {
  readonly #worker: Worker;
  readonly #pending = new Map<number, PromiseWithResolvers<EncodedBatch>>();
  #batches = 0;
  /** Why it can work no more. */
  #failure: Error | undefined;

  constructor(settings: EncodeSettings) {
    this.#worker = new Worker(new URL("./tokenize_worker.ts", import.meta.url), {
      type: "module",
      // It reads the tokenizer and nothing else of the machine.
      deno: { permissions: { ...NO_PERMISSIONS, read: "inherit" } },
    });
    this.#worker.onmessage = ({ data }: MessageEvent<EncodeAnswer>) => {
      const { resolve, reject } = this.#pending.get(data.batch)!;
      this.#pending.delete(data.batch);
      try {
        resolve(fromAnswer(data));
      } catch (error) {
        reject(error);
      }
    };
    this.#worker.onerror = (event) => {
      event.preventDefault(); // else the runtime ends the program
      const error = new Error(`tokenize worker: ${event.message}`);
      for (const { reject } of this.#pending.values()) reject(error);
      this.#failure = error;
    };
    this.#post({ settings });
  }

  get waiting(): number {
    return this.#pending.size;
  }

  encode(documents: readonly Document[]): Promise<EncodedBatch> {
    const pending = Promise.withResolvers<EncodedBatch>();
    if (this.#failure) return Promise.reject(this.#failure);
    const batch = this.#batches++;
    this.#pending.set(batch, pending);
    this.#post({ batch, documents });
    return pending.promise;
  }

  terminate(): void {
    this.#worker.terminate();
  }

  #post(request: EncodeRequest): void {
    this.#worker.postMessage(request);
  }
}
