/**
 * Receives one content: continued after a kill, checked, and renamed last. A partial file holds the bytes from
 * the start that have arrived. The caller holds the lock of the content.
 */
import type { Hash } from "node:crypto";
import { DataError } from "../base/errors.ts";
import { rename } from "../storage/rename.ts";
import { writeAllSync } from "../base/write_all.ts";
import { type HubClient, NetworkError, StatusError } from "./client.ts";
import type { RepositoryCache } from "./cache.ts";
import { contentHash, type HubFile, type Repository } from "./repository.ts";

/** Progress events of a download. */
export interface DownloadEvents {
  /** Bytes that are to come, before the first of them. */
  readonly onTotal?: (bytes: number) => void;
  /** Bytes received; falls when a file is fetched anew. */
  readonly onBytes?: (bytes: number) => void;
  /** Something to know, such as another process being waited for. */
  readonly onNotice?: (text: string) => void;
  /** Something that may be wrong. */
  readonly onWarning?: (text: string) => void;
}

/** One content to fetch. */
export interface Fetching {
  readonly client: HubClient;
  readonly cache: RepositoryCache;
  readonly repository: Repository;
  readonly file: HubFile;
  readonly url: string;
  readonly events: DownloadEvents;
  /** Counts bytes that arrived, or that were lost where negative. */
  readonly add: (bytes: number) => void;
}

const READ_BYTES = 1 << 20;

/** The server sent the whole in place of a range. */
class NoRangesError extends Error {}

/** Fetches the content to `blob`; a second try from the start where a continued one is wrong. */
export async function receiveBlob(fetching: Fetching, blob: string): Promise<void> {
  for (let isLast = false;; isLast = true) {
    using partial = await PartialFile.open(fetching, blob);
    const wasContinued = partial.length > 0;
    await partial.receive();
    const found = await partial.digest();
    if (found === undefined || found === fetching.file.oid) return await partial.finish();
    await partial.remove();
    if (wasContinued && !isLast) continue;
    const { repository: { name }, file: { path, oid } } = fetching;
    throw new DataError(
      `cannot download "${name}": "${path}" has the hash ${found}, expected ${oid}`,
      { hints: ["run the command again to download the file anew"] },
    );
  }
}

class PartialFile implements Disposable {
  #hash: Hash;
  /** Bytes from the start that are in the hash. */
  #hashed = 0;

  private constructor(
    readonly fetching: Fetching,
    readonly blob: string,
    readonly path: string,
    readonly file: Deno.FsFile,
    /** Bytes that have arrived. */
    public length: number,
  ) {
    this.#hash = contentHash(fetching.file);
    fetching.add(length);
  }

  static async open(fetching: Fetching, blob: string): Promise<PartialFile> {
    const path = `${blob}.parscale-partial`;
    const file = await fetching.cache.write(() =>
      Deno.open(path, { create: true, read: true, write: true })
    );
    const { size } = await file.stat();
    if (size <= fetching.file.size) return new PartialFile(fetching, blob, path, file, size);
    await file.truncate(0);
    return new PartialFile(fetching, blob, path, file, 0);
  }

  [Symbol.dispose](): void {
    this.file.close();
  }

  /** Fetches what is missing; all of it from a server without ranges. */
  async receive(): Promise<void> {
    let furthest = this.length;
    await this.fetching.client.retry(async (arrived) => {
      const onBytes = () => {
        if (this.length > furthest) arrived();
        furthest = Math.max(furthest, this.length);
      };
      await this.#receiveRest(onBytes).catch(async (error) => {
        if (!(error instanceof NoRangesError)) throw error;
        await this.#startOver();
        await this.#receiveRest(onBytes);
      });
    });
  }

  async #receiveRest(onBytes: () => void): Promise<void> {
    const { client, url, file: { size, path }, repository } = this.fetching;
    const start = this.length;
    if (start === size && size > 0) return;
    const headers: Record<string, string> = start === 0
      ? {}
      : { range: `bytes=${start}-${size - 1}` };
    const { response, chunks } = await client.get(url, headers).catch((error) => {
      throw error instanceof StatusError && error.status === 416 ? new NoRangesError() : error;
    });
    if (start > 0 && !startsAt(response, start)) {
      await response.body?.cancel();
      throw new NoRangesError();
    }
    for await (const bytes of chunks()) {
      if (this.length + bytes.length > size) {
        throw new DataError(
          `cannot download "${repository.name}": more than ${size} bytes of "${path}" arrive, ` +
            `expected ${size}`,
          { hints: ["run the command again to download the file anew"] },
        );
      }
      await this.#write(bytes);
      onBytes();
    }
    if (this.length < size) {
      throw new NetworkError(`"${path}" ends after ${this.length} of ${size} bytes`);
    }
  }

  async #write(bytes: Uint8Array): Promise<void> {
    await this.fetching.cache.write(() => {
      this.file.seekSync(this.length, Deno.SeekMode.Start);
      writeAllSync(this.file, bytes);
    });
    if (this.length === this.#hashed) {
      this.#hash.update(bytes);
      this.#hashed += bytes.length;
    }
    this.length += bytes.length;
    this.fetching.add(bytes.length);
  }

  async #startOver(): Promise<void> {
    this.fetching.add(-this.length);
    this.length = this.#hashed = 0;
    this.#hash = contentHash(this.fetching.file);
    await this.file.truncate(0);
  }

  /** The hash of all bytes; undefined where there is none to compare with. */
  async digest(): Promise<string | undefined> {
    const { check, size } = this.fetching.file;
    if (check === "size") return undefined;
    const buffer = new Uint8Array(READ_BYTES);
    this.file.seekSync(this.#hashed, Deno.SeekMode.Start);
    while (this.#hashed < size) {
      const count = await this.file.read(buffer);
      if (count === null) break;
      this.#hash.update(buffer.subarray(0, count));
      this.#hashed += count;
    }
    return this.#hash.digest("hex");
  }

  /** Gives the content its name. */
  async finish(): Promise<void> {
    await this.fetching.cache.write(async () => {
      await this.file.sync();
      rename(this.path, this.blob);
    });
  }

  async remove(): Promise<void> {
    this.fetching.add(-this.length);
    await Deno.remove(this.path).catch(() => {});
  }
}

function startsAt({ status, headers }: Response, start: number): boolean {
  return status === 206 && headers.get("content-range")?.startsWith(`bytes ${start}-`) === true;
}
