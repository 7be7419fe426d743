/**
 * Tokenizes a data file once and keeps the result in a cache.
 *
 * The name of a store is a hash of all that decides its tokens: the file's bytes and format, the
 * tokenizer's files and the end token. So a second run opens at once, and an edited file is never
 * mistaken for the old one.
 */
import { createHash } from "node:crypto";
import { join } from "node:path";
import { abortable } from "../base/abortable.ts";
import { readError, statIfExists } from "../base/files.ts";
import { DataError } from "../base/errors.ts";
import { refuseArchive } from "./archives.ts";
import type { Document } from "./document.ts";
import { EncodePool, type EncodeSettings } from "./encode_pool.ts";
import { hashFile, hashJson } from "./hash.ts";
import { type FileFormat, formatOf, nameOf, readDocuments, STDIN } from "./read.ts";
import { requireVocabulary, STORE_SCHEMA, TokenStore } from "./token_store.ts";
import { type EncodedBatch, type StoreOrigin, TokenWriter } from "./token_writer.ts";

/** Progress of tokenizing. */
export interface TokenizeProgress {
  readonly documents: number;
  readonly tokens: number;
  /** Bytes of the file, as stored. */
  readonly bytes: number;
  /** Unknown for standard input. */
  readonly totalBytes?: number;
}

/** Options of tokenizing. */
export interface OpenTokensOptions extends EncodeSettings {
  /** Workers to tokenize with (default 1, which is the caller's own thread). */
  readonly threads?: number;
  /** Threads that encode all files of a run; without it each file starts its own. */
  readonly pool?: EncodePool;
  /** Folder of the stores. */
  readonly cacheFolder: string;
  readonly signal?: AbortSignal;
  /** Called after every batch; never when the store was in the cache. */
  readonly onProgress?: (progress: TokenizeProgress) => void;
  /** Stream that `-` reads. */
  readonly stdin?: ReadableStream<Uint8Array>;
}

/** Below this many bytes workers take longer to start than the work does. */
const INLINE_BYTES = 1 << 20;

/** A batch is full with either of these. */
const BATCH_DOCUMENTS = 512, BATCH_CHARACTERS = 1 << 18;

/** Opens the tokens of a file, or of `options.stdin` for `-`, tokenizing it if no run has before. */
export async function openTokens(path: string, options: OpenTokensOptions): Promise<TokenStore> {
  using own = options.pool ? undefined : new EncodePool(options, options.threads ?? 1);
  try {
    return await openOrMake(path, options, (options.pool ?? own)!);
  } catch (error) {
    options.signal?.throwIfAborted(); // on its way here the reason may have been taken for bad data
    throw error;
  }
}

async function openOrMake(
  path: string,
  options: OpenTokensOptions,
  pool: EncodePool,
): Promise<TokenStore> {
  const { cacheFolder, endToken = null, vocabSize = Infinity, signal } = options;
  const origin = { tokenizer_sha256: await pool.tokenizerHash(), end_token: endToken };
  if (path === STDIN) return await tokenize(path, options, pool, origin);

  const { compression } = formatOf(path);
  refuseArchive(new Uint8Array(), `"${path}"`, { path, undone: compression }); // before gigabytes are hashed
  const before = await version(path);
  const whole = { ...origin, source_sha256: (await hashFile(path, signal)).sha256 };
  const key = keyOf(whole, formatOf(path));
  const cached = await openIfWhole(cacheFolder, key, path);
  if (cached) {
    requireVocabulary(cached, vocabSize);
    return cached;
  }
  return await tokenize(path, options, pool, whole, async () => {
    if (await version(path) === before) return;
    throw new DataError(`"${path}" changed while it was read`);
  });
}

/** Opens the tokens that an earlier run left in the cache, as for standard input, which is gone. */
export async function openCachedTokens(key: string, cacheFolder: string): Promise<TokenStore> {
  const store = /^[0-9a-f]{64}$/.test(key) ? await openIfWhole(cacheFolder, key) : undefined;
  if (store) return store;
  throw new DataError(
    `"${cacheFolder}" does not hold the tokens of the earlier run: ${key} is missing or incomplete`,
    { hints: ["give the same data again, or the cache folder of that run"] },
  );
}

/** Reads, encodes and writes. */
async function tokenize(
  path: string,
  options: OpenTokensOptions,
  pool: EncodePool,
  origin: Omit<StoreOrigin, "source_sha256"> & { readonly source_sha256?: string },
  check?: () => Promise<void>,
): Promise<TokenStore> {
  const { cacheFolder, signal, onProgress } = options;
  // A stream that says nothing for long must not keep a run from being stopped.
  const stdin = options.stdin?.pipeThrough(new TransformStream(), { signal });
  const totalBytes = path === STDIN ? undefined : (await Deno.stat(path)).size;
  const hash = createHash("sha256");
  let bytes = 0, format: FileFormat = formatOf(path);
  const onChunk = (chunk: Uint8Array) => {
    signal?.throwIfAborted();
    bytes += chunk.length;
    if (path === STDIN) hash.update(chunk);
  };
  const onFormat = (found: FileFormat) => format = found;

  await using writer = await TokenWriter.begin(cacheFolder);
  const documents = readDocuments(path, { stdin, onChunk, onFormat });
  const kind = await writeDocuments(documents, writer, pool, {
    file: nameOf(path),
    signal,
    size: () => totalBytes ?? bytes,
    onWritten: () =>
      onProgress?.({ documents: writer.documents, tokens: writer.tokens, bytes, totalBytes }),
  });
  await check?.();
  const whole = { ...origin, source_sha256: origin.source_sha256 ?? hash.digest("hex") };
  return await writer.finish(keyOf(whole, format), kind, whole, nameOf(path));
}

/** Encodes documents of one kind, which it returns, with a bounded number of batches in flight. */
export async function writeDocuments(
  documents: AsyncIterable<Document>,
  writer: TokenWriter,
  pool: EncodePool,
  { file, signal, size, onWritten }: {
    /** Its name in messages. */
    readonly file: string;
    readonly signal?: AbortSignal | undefined;
    /** Bytes of the file, as far as they are known. */
    readonly size: () => number;
    readonly onWritten: () => void;
  },
): Promise<Document["kind"]> {
  let kind: Document["kind"] = "text";
  const pending: Promise<EncodedBatch>[] = [];
  const writeFirst = async () => {
    await writer.append(await abortable(pending.shift()!, signal));
    onWritten();
  };
  for await (const batch of batchesOf(documents)) {
    kind = batch[0]!.kind;
    if (kind !== "tokens" && size() >= INLINE_BYTES) pool.start();
    const encoded = pool.encode(batch, file);
    encoded.catch(() => {}); // thrown when its turn comes
    pending.push(encoded);
    while (pending.length >= pool.capacity) await writeFirst();
  }
  while (pending.length > 0) await writeFirst();
  return kind;
}

/** Documents in batches of a size that is worth a message between threads. */
async function* batchesOf(documents: AsyncIterable<Document>): AsyncGenerator<Document[]> {
  let batch: Document[] = [], characters = 0;
  for await (const document of documents) {
    batch.push(document);
    characters += sizeOf(document);
    if (batch.length < BATCH_DOCUMENTS && characters < BATCH_CHARACTERS) continue;
    yield batch;
    batch = [];
    characters = 0;
  }
  if (batch.length > 0) yield batch;
}

function sizeOf(document: Document): number {
  switch (document.kind) {
    case "text":
      return document.text.length;
    case "tokens":
      return document.tokens.length;
    case "completion":
      return document.prompt.length + document.completion.length;
    case "messages":
      return document.messages.reduce((sum, { content }) => sum + (content?.length ?? 0), 0);
  }
}

function keyOf(origin: StoreOrigin, { format, compression }: FileFormat): string {
  const { source_sha256, tokenizer_sha256, end_token } = origin;
  const packed = compression ?? null;
  return hashJson([STORE_SCHEMA, source_sha256, format, packed, tokenizer_sha256, end_token]);
}

/** Returns a version of a file that changes when it is written. */
async function version(path: string): Promise<string> {
  try {
    const { size, mtime, isFile } = await Deno.stat(path);
    if (!isFile) {
      throw new DataError(`"${path}" is a pipe or a folder, not a file`, {
        hints: ["pass `-` as the path and send the data to standard input"],
      });
    }
    return `${size} ${mtime?.getTime()}`;
  } catch (error) {
    throw readError(path, error);
  }
}

/** A store of the cache; one that is damaged counts as none and is made anew. */
export async function openIfWhole(
  cacheFolder: string,
  key: string,
  file?: string,
): Promise<TokenStore | undefined> {
  const folder = join(cacheFolder, key);
  if (!await statIfExists(folder)) return undefined;
  return await TokenStore.open(folder, key, file).catch(() => undefined);
}
