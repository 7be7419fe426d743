/**
 * Finds where the frames of Zstandard data begin and end (RFC 8878, section 3.1).
 *
 * The runtime's decompressor stops in silence after the first frame and at a missing end: several
 * frames in a row are what parallel compressors write, and a download cut short must not train.
 */
import { joinBytes } from "../base/files.ts";

/** The first four bytes of a frame, little-endian; the second range holds frames to skip. */
const FRAME_MAGIC = 0xfd2fb528, SKIPPABLE_MAGIC = 0x184d2a50;

/** Bytes of the optional header fields, by their flags. */
const DICTIONARY_BYTES = [0, 1, 2, 4], SIZE_BYTES = [0, 2, 4, 8];

/** The data are not Zstandard frames, or end inside one. */
class ZstdFormatError extends Error {}

/** Splits compressed bytes into frames. Each frame must be read to its end before the next. */
export async function* zstdFrames(
  chunks: AsyncIterable<Uint8Array>,
): AsyncGenerator<AsyncGenerator<Uint8Array>> {
  const bytes = new ByteReader(chunks);
  while (!await bytes.atEnd()) {
    const magic = toInteger(await bytes.take(4));
    if ((magic & 0xfffffff0) >>> 0 === SKIPPABLE_MAGIC) {
      const size = toInteger(await bytes.take(4));
      for await (const _ of bytes.pass(size));
    } else if (magic === FRAME_MAGIC) {
      yield frame(bytes);
    } else {
      throw new ZstdFormatError(`bytes that begin no frame after byte ${bytes.position - 4}`);
    }
  }
}

/** The bytes of one frame, whose magic number has been taken. */
async function* frame(bytes: ByteReader): AsyncGenerator<Uint8Array> {
  const descriptor = await bytes.take(1), flags = descriptor[0]!;
  const singleSegment = (flags & 0x20) !== 0;
  const sizeBytes = flags >>> 6 === 0 && singleSegment ? 1 : SIZE_BYTES[flags >>> 6]!;
  const rest = (singleSegment ? 0 : 1) + DICTIONARY_BYTES[flags & 3]! + sizeBytes;
  yield Uint8Array.of(0x28, 0xb5, 0x2f, 0xfd, flags);
  yield await bytes.take(rest);
  for (let last = false; !last;) {
    const block = await bytes.take(3), header = toInteger(block);
    last = (header & 1) === 1;
    const repeated = (header >>> 1 & 3) === 1; // one byte stands for the whole block
    yield block;
    yield* bytes.pass(repeated ? 1 : header >>> 3);
  }
  if ((flags & 4) !== 0) yield await bytes.take(4); // checksum
}

function toInteger(bytes: Uint8Array): number {
  return bytes.reduceRight((value, byte) => value * 256 + byte, 0);
}

/** Takes exact numbers of bytes from chunks of any size. */
class ByteReader {
  /** Bytes taken so far. */
  position = 0;
  readonly #chunks: AsyncIterator<Uint8Array>;
  #chunk = new Uint8Array(0) as Uint8Array;

  constructor(chunks: AsyncIterable<Uint8Array>) {
    this.#chunks = chunks[Symbol.asyncIterator]();
  }

  async atEnd(): Promise<boolean> {
    while (this.#chunk.length === 0) {
      const { done, value } = await this.#chunks.next();
      if (done) return true;
      this.#chunk = value;
    }
    return false;
  }

  /** The next `count` bytes in the pieces they came in. */
  async *pass(count: number): AsyncGenerator<Uint8Array> {
    while (count > 0) {
      if (await this.atEnd()) {
        throw new ZstdFormatError(`the end of the data at byte ${this.position}, inside a frame`);
      }
      const piece = this.#chunk.subarray(0, count);
      this.#chunk = this.#chunk.subarray(piece.length);
      this.position += piece.length;
      count -= piece.length;
      yield piece;
    }
  }

  async take(count: number): Promise<Uint8Array> {
    return joinBytes(await Array.fromAsync(this.pass(count)));
  }
}
