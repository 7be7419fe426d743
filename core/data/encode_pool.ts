/**
 * Encodes batches on several threads.
 *
 * Workers start only when there is enough to do: a tokenizer takes up to a second to open, and each
 * worker opens its own.
 */
import { Thread } from "../base/thread.ts";
import { openTokenizer, type Tokenizer } from "../tokenizer/tokenizer.ts";
import { type Document, rowOf } from "./document.ts";
import { countTargets, encodeDocument, type EncodeDocumentOptions } from "./encode.ts";
import type { EncodedBatch } from "./token_writer.ts";

/** Batches that wait or are worked on, per worker: while one is encoded the next is on its way. */
const BATCHES_PER_WORKER = 2;

/** Settings that all documents of a file share. */
export interface EncodeSettings extends Omit<EncodeDocumentOptions, "at"> {
  /** The file's name in messages. */
  readonly file: string;
  /** Folder of the tokenizer; rows of tokens need none. */
  readonly tokenizerFolder?: string;
}

/** Batch for a worker, whose settings are always the same. */
export interface EncodeRequest {
  readonly settings: EncodeSettings;
  readonly documents: readonly Document[];
}

/** Threads that encode batches; dispose of it to end them. */
export class EncodePool implements Disposable {
  readonly #settings: EncodeSettings;
  readonly #inline: ReturnType<typeof batchEncoder>;
  #workers: Thread<EncodeRequest, EncodedBatch>[] = [];

  /** `threads` of 1 encode on the caller's own thread. */
  constructor(settings: EncodeSettings, private readonly threads: number) {
    const { file, tokenizerFolder, endToken, vocabSize } = settings;
    // Whatever else is given may be a function, which a worker cannot be sent.
    this.#settings = { file, tokenizerFolder, endToken, vocabSize };
    this.#inline = batchEncoder(this.#settings);
  }

  /** Batches the caller should have under way at once. */
  get capacity(): number {
    return Math.max(1, this.#workers.length * BATCHES_PER_WORKER);
  }

  /** Starts the workers, unless one thread is all there is. */
  start(): void {
    if (this.#workers.length > 0 || this.threads < 2) return;
    const worker = new URL("./tokenize_worker.ts", import.meta.url);
    this.#workers = Array.from(
      { length: this.threads },
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

/** Encodes batches of one file; the tokenizer is opened when the first text needs it. */
export function batchEncoder(
  settings: EncodeSettings,
): (documents: readonly Document[]) => Promise<EncodedBatch> {
  const { file, tokenizerFolder } = settings;
  let opened: Promise<Tokenizer> | undefined;
  return async (documents) => {
    const needed = tokenizerFolder !== undefined && documents[0]?.kind !== "tokens";
    const tokenizer = needed ? await (opened ??= openTokenizer(tokenizerFolder)) : undefined;
    const parts = await Array.fromAsync(
      documents,
      (one) => encodeDocument(tokenizer, one, { ...settings, at: rowOf(file, one.row) }),
    );
    const lengths = Uint32Array.from(parts, ({ length }) => length);
    const ids = new Int32Array(lengths.reduce((sum, length) => sum + length, 0));
    let start = 0;
    for (const part of parts) {
      ids.set(part, start);
      start += part.length;
    }
    return { ids, lengths, targets: Uint32Array.from(parts, countTargets) };
  };
}
