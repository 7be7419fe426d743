/**
 * Receives one content: by parts, continued after a kill, checked, and renamed last.
 *
 * A partial file is as long as the content, beside it a record of how much each part has. The caller
 * holds the lock of the content.
 */
import type { Hash } from "node:crypto";
import { DataError } from "../base/errors.ts";
import { rename, renameSync } from "../base/platform/rename.ts";
import { writeAllSync } from "../base/write_all.ts";
import { type HubClient, NetworkError, StatusError } from "./client.ts";
import type { RepositoryCache } from "./cache.ts";
import { contentHash, type HubFile, type Repository } from "./repository.ts";

/** Progress events of a download. */
export interface DownloadEvents {
  /** Bytes that are to come, before the first of them. */
  readonly onTotal?: (bytes: number) => void;
  /** Bytes that are there; the count falls when a part has to be fetched anew. */
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
  readonly parts: number;
  readonly events: DownloadEvents;
  /** Counts bytes that arrived, or that were lost where negative. */
  readonly add: (bytes: number) => void;
}

/** Bytes of a part between two records of the progress. */
const RECORD_BYTES = 8 << 20;

const READ_BYTES = 1 << 20;

/** A contiguous part: `done` of its bytes are in the file. */
interface Part {
  readonly start: number;
  readonly end: number;
  done: number;
}

/** The server sent the whole in place of a range. */
class NoRangesError extends Error {}

/** Fetches the content to `blob`; a second try from the start where a continued one is wrong. */
export async function receiveBlob(fetching: Fetching, blob: string): Promise<void> {
  for (let isLast = false;; isLast = true) {
    using partial = await PartialFile.open(fetching, blob);
    const wasContinued = partial.parts.some(({ done }) => done > 0);
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
  /** Parts with the handles they are written by. */
  parts: Part[];
  #hash: Hash;
  /** Bytes from the start that are in the hash. */
  #hashed = 0;
  #recorded = 0;

  private constructor(
    readonly fetching: Fetching,
    readonly blob: string,
    readonly path: string,
    readonly file: Deno.FsFile,
  ) {
    const { file: { size }, parts } = fetching;
    this.parts = readRecord(`${path}.json`, size) ?? split(size, parts);
    this.#hash = contentHash(fetching.file);
    fetching.add(this.#done());
  }

  static async open(fetching: Fetching, blob: string): Promise<PartialFile> {
    const path = `${blob}.parscale-partial`;
    const file = await fetching.cache.write(() =>
      Deno.open(path, { create: true, read: true, write: true })
    );
    return new PartialFile(fetching, blob, path, file);
  }

  [Symbol.dispose](): void {
    this.file.close();
  }

  /** Fetches what is missing of all parts. */
  async receive(): Promise<void> {
    try {
      await this.#receiveParts();
    } catch (error) {
      if (!(error instanceof NoRangesError)) {
        this.#record();
        throw error;
      }
      this.#startOver();
      await this.#receiveParts();
    }
  }

  async #receiveParts(): Promise<void> {
    const failures: unknown[] = [];
    await Promise.all(this.parts.map(async (part) => {
      let furthest = part.done;
      await this.fetching.client.retry(async (arrived) => {
        await this.#receivePart(part, () => {
          if (part.done > furthest) arrived();
          furthest = Math.max(furthest, part.done);
        });
      }).catch((error) => void failures.push(error));
    }));
    if (failures.length === 0) return;
    throw failures.find((error) => error instanceof NoRangesError) ?? failures[0];
  }

  async #receivePart(part: Part, arrived: () => void): Promise<void> {
    const { client, url, file: { size, path } } = this.fetching;
    const start = part.start + part.done;
    if (start === part.end && size > 0) return;
    const isWhole = start === 0 && part.end === size;
    const headers: Record<string, string> = isWhole
      ? {}
      : { range: `bytes=${start}-${part.end - 1}` };
    const { response, chunks } = await client.get(url, headers).catch((error) => {
      throw error instanceof StatusError && error.status === 416 ? new NoRangesError() : error;
    });
    if (!isWhole && !startsAt(response, start)) {
      await response.body?.cancel();
      throw new NoRangesError();
    }
    for await (const bytes of chunks()) {
      if (part.start + part.done + bytes.length > part.end) {
        throw new DataError(
          `cannot download "${this.fetching.repository.name}": more than ${size} bytes of ` +
            `"${path}" arrive, expected ${size}`,
          { hints: ["run the command again to download the file anew"] },
        );
      }
      await this.#write(part, bytes);
      arrived();
    }
    if (part.start + part.done < part.end) {
      throw new NetworkError(`"${path}" ends after ${part.start + part.done} of ${size} bytes`);
    }
  }

  async #write(part: Part, bytes: Uint8Array): Promise<void> {
    const at = part.start + part.done;
    await this.fetching.cache.write(() => {
      // Parts share the handle: nothing may come between the seek and the write.
      this.file.seekSync(at, Deno.SeekMode.Start);
      writeAllSync(this.file, bytes);
    });
    if (at === this.#hashed) {
      this.#hash.update(bytes);
      this.#hashed += bytes.length;
    }
    part.done += bytes.length;
    this.fetching.add(bytes.length);
    if (this.#done() - this.#recorded >= RECORD_BYTES) this.#record();
  }

  #done(): number {
    return this.parts.reduce((sum, { done }) => sum + done, 0);
  }

  /** Writes down how far the parts are; a lost record costs time and nothing else. */
  #record(): void {
    this.#recorded = this.#done();
    if (this.#recorded === 0) return;
    const path = `${this.path}.json`;
    try {
      Deno.writeTextFileSync(`${path}.new`, JSON.stringify(this.parts));
      renameSync(`${path}.new`, path);
    } catch {
      // The next record may succeed, and a full disk is reported by the content.
    }
  }

  /** One part from the start, for servers without ranges. */
  #startOver(): void {
    this.fetching.add(-this.#done());
    this.parts = split(this.fetching.file.size, 1);
    this.#hash = contentHash(this.fetching.file);
    this.#hashed = this.#recorded = 0;
    removeIfExists(`${this.path}.json`);
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
      const bytes = buffer.subarray(0, Math.min(count, size - this.#hashed));
      this.#hash.update(bytes);
      this.#hashed += bytes.length;
    }
    return this.#hash.digest("hex");
  }

  /** Gives the content its name. */
  async finish(): Promise<void> {
    await this.fetching.cache.write(async () => {
      await this.file.truncate(this.fetching.file.size); // what an earlier partial had too much
      await this.file.sync();
      await rename(this.path, this.blob);
    });
    removeIfExists(`${this.path}.json`);
  }

  async remove(): Promise<void> {
    this.fetching.add(-this.#done());
    await Deno.remove(this.path).catch(() => {});
    removeIfExists(`${this.path}.json`);
  }
}

function startsAt({ status, headers }: Response, start: number): boolean {
  return status === 206 && headers.get("content-range")?.startsWith(`bytes ${start}-`) === true;
}

function split(size: number, count: number): Part[] {
  const length = Math.ceil(size / count);
  return Array.from({ length: count }, (_, i) => ({
    start: Math.min(size, i * length),
    end: Math.min(size, (i + 1) * length),
    done: 0,
  }));
}

/** Parts of an earlier process; undefined unless they cover the content. */
function readRecord(path: string, size: number): Part[] | undefined {
  try {
    const parts: Part[] = JSON.parse(Deno.readTextFileSync(path));
    let at = 0;
    for (const { start, end, done } of parts) {
      if (start !== at || !(end >= start) || !(done >= 0) || done > end - start) return undefined;
      at = end;
    }
    return at === size ? parts : undefined;
  } catch {
    return undefined;
  }
}

function removeIfExists(path: string): void {
  try {
    Deno.removeSync(path);
  } catch {
    // It was not there.
  }
}
