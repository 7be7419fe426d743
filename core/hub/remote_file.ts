/**
 * Reads a file of a pinned commit without keeping it: any range of bytes, or all of it in order.
 *
 * Interrupted reads continue where they stopped. Content read in full is hashed; ranges can only be
 * checked against the size of the file.
 */
import { DataError, EnvironmentError } from "../base/errors.ts";
import { type HubClient, NetworkError } from "./client.ts";
import { explain } from "./errors.ts";
import { contentUrl } from "./listing.ts";
import { contentHash, type HubFile, type Repository } from "./repository.ts";

/** Bytes of one request when the whole file is read, and how many such requests are in flight. */
const PIECE_BYTES = 8 << 20, PIECES_AHEAD = 4;

/** A file of a commit. */
export class RemoteFile {
  constructor(
    readonly client: HubClient,
    readonly repository: Repository,
    readonly commit: string,
    readonly file: HubFile,
  ) {}

  /** Bytes `start` to `end`, which may lie beyond the file. */
  async read(start: number, end: number): Promise<Uint8Array<ArrayBuffer>> {
    const { size, path } = this.file;
    const { offline } = this.client.access;
    if (offline) {
      throw new EnvironmentError(
        `${offline} is set, and "${path}" of ${this.repository.name} is not tokenized in full`,
        { hints: [`unset ${offline}`] },
      );
    }
    const bytes = new Uint8Array(Math.max(0, Math.min(end, size) - start));
    let done = 0;
    try {
      await this.client.retry(async (arrived) => {
        for await (const chunk of this.#request(start + done, start + bytes.length)) {
          bytes.set(chunk, done);
          done += chunk.length;
          arrived();
        }
        if (done < bytes.length) {
          throw new NetworkError(`"${path}" ends after ${start + done} bytes`);
        }
      });
    } catch (error) {
      const { repository, commit } = this;
      throw explain(error, this.client, { repository, revision: commit });
    }
    return bytes;
  }

  /** Yields what one request returns of a range; less than all of it where the connection breaks. */
  async *#request(start: number, end: number): AsyncGenerator<Uint8Array> {
    const { size, path } = this.file;
    if (start >= end) return;
    const isWhole = start === 0 && end === size;
    const { response, chunks } = await this.client.get(
      contentUrl(this.client, this.repository, this.commit, path),
      isWhole ? {} : { range: `bytes=${start}-${end - 1}` },
    );
    const [, first, total] = /^bytes (\d+)-\d+\/(\d+)$/
      .exec(response.headers.get("content-range") ?? "") ?? [];
    if (total !== undefined && Number(total) !== size) {
      await response.body?.cancel();
      throw new DataError(
        `"${path}" of ${this.repository.name} has ${total} bytes, expected ${size}`,
        { hints: ["the commit was rewritten on the hub; start a new run"] },
      );
    }
    if (response.status === 206 && Number(first) !== start) {
      await response.body?.cancel();
      throw new NetworkError(`"${path}" arrives from byte ${first}, expected ${start}`);
    }
    // A server that ignores ranges sends the file from its start.
    let at = response.status === 206 ? start : 0;
    for await (const chunk of chunks()) {
      const from = Math.max(0, start - at), to = Math.min(chunk.length, end - at);
      if (to > from) yield chunk.subarray(from, to);
      at += chunk.length;
      if (at >= end && !isWhole) return;
    }
    if (at <= end) return;
    throw new DataError(`"${path}" of ${this.repository.name} is longer than ${size} bytes`);
  }

  /**
   * All bytes in order.
   * @throws {DataError} after the last, when their hash is another than the hub lists
   */
  async *chunks(pieceBytes = PIECE_BYTES): AsyncGenerator<Uint8Array> {
    const { size, path, check, oid } = this.file;
    const hash = contentHash(this.file);
    const pending: Promise<Uint8Array>[] = [];
    let next = 0;
    try {
      while (next < size || pending.length > 0) {
        for (; next < size && pending.length < PIECES_AHEAD; next += pieceBytes) {
          const piece = this.read(next, next + pieceBytes);
          piece.catch(() => {}); // thrown when its turn comes
          pending.push(piece);
        }
        const bytes = await pending.shift()!;
        hash.update(bytes);
        yield bytes;
      }
    } finally {
      await Promise.allSettled(pending);
    }
    const found = hash.digest("hex");
    if (check === "size" || found === oid) return;
    throw new DataError(
      `"${path}" of ${this.repository.name} has the hash ${found}, expected ${oid}`,
      { hints: ["run the command again to read the file anew"] },
    );
  }
}
