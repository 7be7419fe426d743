/**
 * Reads documents from a file or from standard input, whatever the format.
 *
 * All documents of a file are of one kind. The format of a file follows from its name, that of standard
 * input from its first bytes.
 */
import { joinBytes, openRegularFile, readError } from "../base/files.ts";
import { DataError } from "../base/errors.ts";
import { type Compression, HEAD_BYTES, refuseArchive, withoutArchives } from "./archives.ts";
import { compressionOf, decompress } from "./decompress.ts";
import { type Document, requireKind } from "./document.ts";
import { decodeText, joinChunks, MAX_LINE_BYTES, MAX_TEXT_BYTES, readJsonLines } from "./jsonl.ts";
import { readParquet } from "./parquet.ts";

/** Stands for standard input where a path is expected. */
export const STDIN = "-";

/** Format of a file; anything unknown is plain text, one document per file. */
export type Format = "jsonl" | "parquet" | "text";

/** A format and how it is packed. */
export interface FileFormat {
  readonly format: Format;
  readonly compression?: Compression;
}

/** Options of reading. */
export interface ReadOptions {
  /** Stream that `-` reads. */
  readonly stdin?: ReadableStream<Uint8Array>;
  /** Gets every piece of the file as it is stored. */
  readonly onChunk?: (chunk: Uint8Array) => void;
  /** Called with the format found on standard input. */
  readonly onFormat?: (format: FileFormat) => void;
}

/** A file without a document. */
export class NoRowsError extends DataError {}

const CHUNK_BYTES = 1 << 18;

/** The name of a file in messages. */
export function nameOf(path: string): string {
  return path === STDIN ? "standard input" : path;
}

/** The format of a file by its name. */
export function formatOf(path: string): FileFormat {
  const packed = /\.(gz|zst|zstd)$/i.exec(path);
  const name = packed ? path.slice(0, packed.index) : path;
  const ending = /\.([^./]+)$/.exec(name)?.[1]?.toLowerCase() ?? "";
  const format = ["jsonl", "ndjson", "json"].includes(ending)
    ? "jsonl"
    : ending === "parquet"
    ? "parquet"
    : "text";
  if (!packed) return { format };
  return { format, compression: packed[1]!.toLowerCase() === "gz" ? "gzip" : "zstd" };
}

/** Reads the documents of a file, or of `options.stdin` for `-`. */
export async function* readDocuments(
  path: string,
  options: ReadOptions = {},
): AsyncGenerator<Document> {
  const file = nameOf(path);
  let first: Document | undefined;
  const documents = path === STDIN ? readStdin(options) : readFile(path, options);
  for await (const document of documents) {
    requireKind((first ??= document).kind, document, file);
    yield document;
  }
  if (!first) throw new NoRowsError(`"${file}" has no rows`);
}

async function* readFile(path: string, options: ReadOptions): AsyncGenerator<Document> {
  const { format, compression } = formatOf(path);
  options.onFormat?.({ format, compression });
  if (format === "parquet") {
    if (!compression) return yield* readParquet(path, options.onChunk);
    throw new DataError(`"${path}" is a compressed Parquet table`, {
      hints: ["decompress it first; Parquet compresses its own columns"],
    });
  }
  const raw = packedText(path, compression, options.onChunk);
  const plain = compression ? decompress(raw, compression, path) : raw;
  yield* parse(plain, format, compression, path);
}

async function* readStdin(options: ReadOptions): AsyncGenerator<Document> {
  const { stdin, onChunk, onFormat } = options;
  if (!stdin) throw new Error("standard input was not given");
  const file = nameOf(STDIN);
  const raw = await peek(observe(stdin, onChunk), HEAD_BYTES);
  const compression = compressionOf(raw.head);
  refuseArchive(raw.head, `"${file}"`, { undone: compression });
  const plain = await peek(compression ? decompress(raw.all, compression, file) : raw.all, 4);
  const head = new TextDecoder("latin1").decode(plain.head);
  if (head.startsWith("PAR1")) {
    throw new DataError(`"${file}" is a Parquet table, which cannot be read as a stream`, {
      hints: ["pass the path of the table"],
    });
  }
  const format = /^(\xef\xbb\xbf)?\s*\{/.test(head) ? "jsonl" : "text";
  onFormat?.({ format, compression });
  yield* parse(plain.all, format, compression, file);
}

async function* parse(
  chunks: AsyncIterable<Uint8Array>,
  format: "jsonl" | "text",
  compression: Compression | undefined,
  file: string,
): AsyncGenerator<Document> {
  if (format === "jsonl") return yield* readJsonLines(chunks, file);
  const limit = compression === undefined ? MAX_TEXT_BYTES : MAX_LINE_BYTES;
  const text = decodeText(await joinChunks(chunks, limit, `"${file}"`), `"${file}"`);
  if (text !== "") yield { row: 1, kind: "text", text };
}

/** The bytes of a text that is compressed in the given way or not at all. */
export function packedText(
  path: string,
  undone: Compression | undefined,
  onChunk?: (chunk: Uint8Array) => void,
): AsyncGenerator<Uint8Array> {
  return withoutArchives(chunksOf(path, onChunk), `"${path}"`, { path, undone });
}

/** The bytes of a file in chunks. */
export async function* chunksOf(
  path: string,
  onChunk?: (chunk: Uint8Array) => void,
): AsyncGenerator<Uint8Array> {
  try {
    using file = openRegularFile(path);
    for (;;) {
      const chunk = new Uint8Array(CHUNK_BYTES);
      const count = await file.read(chunk);
      if (count === null) return;
      onChunk?.(chunk.subarray(0, count));
      yield chunk.subarray(0, count);
    }
  } catch (error) {
    throw readError(path, error);
  }
}

async function* observe(
  stream: ReadableStream<Uint8Array>,
  onChunk?: (chunk: Uint8Array) => void,
): AsyncGenerator<Uint8Array> {
  for await (const chunk of stream) {
    onChunk?.(chunk);
    yield chunk;
  }
}

/** The first bytes, at least `count` if there are as many, and all bytes including them. */
async function peek(
  chunks: AsyncGenerator<Uint8Array>,
  count: number,
): Promise<{ head: Uint8Array; all: AsyncGenerator<Uint8Array> }> {
  let head = new Uint8Array(0) as Uint8Array;
  while (head.length < count) {
    const { done, value } = await chunks.next();
    if (done) break;
    head = joinBytes([head, value]);
  }
  async function* all() {
    yield head;
    yield* chunks;
  }
  return { head, all: all() };
}
