/**
 * Undoes gzip and Zstandard on the way from a file to its reader.
 *
 * Damaged or cut data is a `DataError`. Several gzip members or Zstandard frames in a row are one text,
 * as `cat a.gz b.gz` makes.
 */
import { pipeline, Readable, type Transform } from "node:stream";
import { createGunzip, createZstdDecompress } from "node:zlib";
import { DataError, ParscaleError } from "../base/errors.ts";
import { type Compression, withoutArchives } from "./archives.ts";
import { zstdFrames } from "./zstd_frames.ts";

/** Recognises packed data by its first bytes. */
export function compressionOf(head: Uint8Array): Compression | undefined {
  const begins = (...magic: number[]) => magic.every((byte, i) => head[i] === byte);
  if (begins(0x1f, 0x8b)) return "gzip";
  return begins(0x28, 0xb5, 0x2f, 0xfd) ? "zstd" : undefined;
}

/** Unpacks chunks of text; `file` names them in messages. */
export async function* decompress(
  chunks: AsyncIterable<Uint8Array>,
  compression: Compression,
  file: string,
): AsyncGenerator<Uint8Array> {
  yield* withoutArchives(unpack(chunks, compression, file), `the content of "${file}"`);
}

async function* unpack(
  chunks: AsyncIterable<Uint8Array>,
  compression: Compression,
  file: string,
): AsyncGenerator<Uint8Array> {
  try {
    if (compression === "gzip") yield* through(chunks, createGunzip());
    else {for await (const frame of zstdFrames(chunks)) {
        yield* through(frame, createZstdDecompress());
      }}
  } catch (error) {
    // What the source throws is about the disk or the user's wish to stop, not about the packing.
    if (error instanceof ParscaleError || error instanceof DOMException) throw error;
    if (!(error instanceof Error)) throw error;
    throw new DataError(
      `"${file}" is not valid ${compression} data: ${error.message}`,
      { cause: error, hints: ["the file may be truncated or damaged; copy it again"] },
    );
  }
}

async function* through(
  chunks: AsyncIterable<Uint8Array>,
  transform: Transform,
): AsyncGenerator<Uint8Array> {
  // Failures reach the reader as well, which acts on them.
  pipeline(Readable.from(chunks, { objectMode: true }), transform, () => {});
  yield* transform as AsyncIterable<Uint8Array>;
}
