/**
 * Encodes batches of all files of a run on several threads.
 *
 * Workers start only when there is enough to do: a tokenizer takes up to a second to open, and each
 * worker opens its own. What is known of the tokenizer is found out once.
 */
import { createHash } from "node:crypto";
import { exactJsonText, parseExactJson } from "../base/exact_json.ts";
import { Thread } from "../base/thread.ts";
import { TOOL_TEMPLATE_FILE } from "../base/companions.ts";
import { openModelFiles } from "../checkpoint/model_files.ts";
import { openTokenizer, type Tokenizer } from "../tokenizer/tokenizer.ts";
import { type Document, rowOf } from "./document.ts";
import { countTargets, encodeDocument, type EncodeDocumentOptions } from "./encode.ts";
import type { EncodedBatch } from "./token_writer.ts";

/** Batches that wait or are worked on, per worker: while one is encoded the next is on its way. */
const BATCHES_PER_WORKER = 2;

/** The tokenizer's files that decide which tokens a text becomes. */
const TOKENIZER_FILES = [
  "tokenizer.json",
  "vocab.json",
  "merges.txt",
  "tokenizer_config.json",
  "chat_template.jinja",
  TOOL_TEMPLATE_FILE,
];

/** Settings that all documents of a run share. */
export interface EncodeSettings extends Omit<EncodeDocumentOptions, "at"> {
  /** Folder of the tokenizer; rows of tokens need none. */
  readonly tokenizerFolder?: string;
  /** Variables of its chat template as a JSON object, in which numbers keep their form. */
  readonly templateVariables?: string;
}

/** Batch for a worker, whose settings are always the same. */
export interface EncodeRequest {
  readonly settings: EncodeSettings;
  /** The file's name in messages. */
  readonly file: string;
  readonly documents: readonly Document[] | PostedMessages;
}

/** Conversations on their way to a thread: as JSON, in which numbers keep their form. */
export interface PostedMessages {
  readonly json: string;
}

/** Threads that encode batches; dispose of it to end them. */
export class EncodePool implements Disposable {
  readonly #settings: EncodeSettings;
  #inline: ReturnType<typeof batchEncoder>;
  #hash: Promise<string> | undefined;
  #workers: Thread<EncodeRequest, EncodedBatch>[] = [];

  /** `threads` of 1 encode on the caller's own thread. */
  constructor(settings: EncodeSettings, private readonly threads: number) {
    const { tokenizerFolder, templateVariables, endToken, vocabSize } = settings;
    // Whatever else is given may be a function, which a worker cannot be sent.
    this.#settings = { tokenizerFolder, templateVariables, endToken, vocabSize };
    this.#inline = batchEncoder(this.#settings);
  }

  /** Names all that decides which tokens a text becomes; null without a tokenizer. */
  async tokenizerHash(): Promise<string | null> {
    const { tokenizerFolder, templateVariables } = this.#settings;
    return tokenizerFolder === undefined
      ? null
      : await (this.#hash ??= hashTokenizer(tokenizerFolder, templateVariables));
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
    this.#inline = batchEncoder(this.#settings); // lets go of the tokenizer that small files opened
  }

  /** Encodes a batch of a file on the least busy thread. */
  encode(documents: readonly Document[], file: string): Promise<EncodedBatch> {
    const request = { settings: this.#settings, file, documents };
    if (this.#workers.length === 0) return this.#inline(request);
    const [worker] = this.#workers.toSorted((a, b) => a.waiting - b.waiting);
    const isMessages = documents.every(({ kind }) => kind === "messages");
    const posted = isMessages ? { json: exactJsonText(documents) } : documents;
    return worker!.ask({ ...request, documents: posted });
  }

  [Symbol.dispose](): void {
    for (const worker of this.#workers) worker.end();
  }
}

/** Encodes batches with one tokenizer, which is opened when the first text needs it. */
export function batchEncoder(
  settings: EncodeSettings,
): (request: Omit<EncodeRequest, "settings">) => Promise<EncodedBatch> {
  const { tokenizerFolder } = settings;
  let opened: Promise<Tokenizer> | undefined;
  return async ({ file, documents: posted }) => {
    const documents = "json" in posted
      ? parseExactJson(posted.json) as readonly Document[]
      : posted;
    const needed = tokenizerFolder !== undefined && documents[0]?.kind !== "tokens";
    const tokenizer = needed ? await (opened ??= openWith(settings)) : undefined;
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

async function openWith(
  { tokenizerFolder, templateVariables }: EncodeSettings,
): Promise<Tokenizer> {
  const read = templateVariables === undefined ? undefined : parseExactJson(templateVariables);
  return await openTokenizer(tokenizerFolder!, {
    templateVariables: read as Readonly<Record<string, unknown>> | undefined,
  });
}

/** Version of rendering: other tokens of a conversation are not those of an older one. */
const RENDERING = "2";

async function hashTokenizer(folder: string, templateVariables = "{}"): Promise<string> {
  const hash = createHash("sha256");
  const files = await openModelFiles(folder);
  for (const name of TOKENIZER_FILES) {
    if (!await files.has(name)) continue;
    const sha256 = createHash("sha256").update(await files.read(name)).digest("hex");
    hash.update(`${name} ${sha256}\n`);
  }
  hash.update(`rendering ${RENDERING} ${templateVariables}\n`);
  return hash.digest("hex");
}
