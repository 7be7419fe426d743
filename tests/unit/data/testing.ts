/** Shared by the data tests: files from text, packed bytes, tokens without files. */
import { zstdCompressSync } from "node:zlib";
import { type Document, type DocumentKind } from "../../../core/data/document.ts";
import { readDocuments } from "../../../core/data/read.ts";
import type { TokenSource, TokenStore } from "../../../core/data/token_store.ts";
import { FIXTURES } from "../../fixtures.ts";

/** Folder with tables. */
export const DATA = `${FIXTURES}data`;

/** A tokenizer with a chat template. */
export const TOKENIZER = `${FIXTURES}models/tiny-qwen2`;

/** Text as bytes. */
export const bytesOf = (text: string) => new TextEncoder().encode(text);

/** Text as a file of gzip has it. */
export async function gzip(text: string): Promise<Uint8Array> {
  const stream = new Blob([text]).stream().pipeThrough(new CompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** Text as a file of Zstandard has it. */
export const zstd = (text: string) => new Uint8Array(zstdCompressSync(bytesOf(text)));

/** Bytes as standard input, in pieces of a size. */
export function streamOf(bytes: Uint8Array, pieceBytes = bytes.length): ReadableStream<Uint8Array> {
  let start = 0;
  return new ReadableStream({
    pull(controller) {
      if (start >= bytes.length) return controller.close();
      controller.enqueue(bytes.slice(start, start += pieceBytes));
    },
  });
}

/** All documents of a file. */
export async function readAll(
  path: string,
  stdin?: ReadableStream<Uint8Array>,
): Promise<Document[]> {
  return await Array.fromAsync(readDocuments(path, { stdin }));
}

/** All tokens of a store, document by document. */
export const contentOf = (store: TokenStore) =>
  Array.from(store.lengths, (length, document) => [...store.read(document, 0, length)]);

/** Rows as JSON lines. */
export const jsonLines = (rows: readonly unknown[]) =>
  rows.map((row) => `${JSON.stringify(row)}\n`).join("");

/** Tokens that lie in memory instead of a folder. */
export function tokensInMemory(
  documents: readonly (readonly number[])[],
  kind: DocumentKind = "text",
  key = "memory",
): TokenSource {
  return {
    key,
    kind,
    documents: documents.length,
    lengths: Uint32Array.from(documents, (ids) => ids.length),
    targets: Uint32Array.from(documents, (ids) => ids.slice(1).filter((id) => id >= 0).length),
    read: (document, start, end) => Int32Array.from(documents[document]!.slice(start, end)),
  };
}
