/** Content of a file on the hub that is on its way before it is read. */
import type { AsyncBuffer } from "hyparquet";
import type { RemoteFile } from "../hub/remote_file.ts";

/** Bytes `start` to `end`. */
export interface Range {
  readonly start: number;
  readonly end: number;
}

/** Most bytes between two ranges that are fetched as one, as the reader of tables reads them. */
const MAX_GAP = 8 << 10;

/** Joins ranges that lie close together: a table of thousands of small row groups is few requests. */
export function joinRanges(ranges: readonly Range[]): Range[] {
  const joined: Range[] = [];
  for (const { start, end } of ranges.toSorted((a, b) => a.start - b.start)) {
    const last = joined.at(-1);
    if (last === undefined || start > last.end + MAX_GAP) joined.push({ start, end });
    else joined[joined.length - 1] = { start: last.start, end: Math.max(last.end, end) };
  }
  return joined;
}

/** A remote table, whose next columns are fetched while the ones before are tokenized. */
export class AheadBuffer implements AsyncBuffer {
  readonly byteLength: number;
  readonly #held = new Map<number, Range & { readonly bytes: Promise<Uint8Array<ArrayBuffer>> }>();

  constructor(readonly remote: RemoteFile) {
    this.byteLength = remote.file.size;
  }

  /** Begins to fetch ranges, which are kept until they are released. */
  hold(ranges: readonly Range[]): void {
    for (const { start, end } of ranges) {
      if (this.#held.has(start)) continue;
      const bytes = this.remote.read(start, end);
      bytes.catch(() => {}); // thrown when they are read
      this.#held.set(start, { start, end, bytes });
    }
  }

  release(ranges: readonly Range[]): void {
    for (const { start } of ranges) this.#held.delete(start);
  }

  /** Waits for prefetched chunks that were never read. */
  async settle(): Promise<void> {
    await Promise.allSettled([...this.#held.values()].map(({ bytes }) => bytes));
    this.#held.clear();
  }

  async slice(start: number, end = this.byteLength): Promise<ArrayBuffer> {
    for (const held of this.#held.values()) {
      if (held.start > start || held.end < end) continue;
      return (await held.bytes).slice(start - held.start, end - held.start).buffer;
    }
    return (await this.remote.read(start, end)).buffer;
  }
}

/** All bytes of a remote file in order, of which the first can be fetched before they are read. */
export class AheadChunks {
  readonly #chunks: AsyncGenerator<Uint8Array>;
  #first: Promise<IteratorResult<Uint8Array>> | undefined;

  constructor(remote: RemoteFile) {
    this.#chunks = remote.chunks();
  }

  start(): void {
    this.#first ??= this.#chunks.next();
    this.#first.catch(() => {}); // thrown when they are read
  }

  async *read(): AsyncGenerator<Uint8Array> {
    this.start();
    for (let next = await this.#first!; !next.done; next = await this.#chunks.next()) {
      yield next.value;
    }
  }

  /** Waits for prefetched chunks that were never read. */
  async settle(): Promise<void> {
    await this.#first?.catch(() => {});
    await this.#chunks.return(undefined);
  }
}
