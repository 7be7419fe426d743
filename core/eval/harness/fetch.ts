/**
 * Fetches the published files of tasks into the hub's cache, and finds those that are there.
 *
 * Every file is hashed before it is used. Where the table has a hash, the hub's own and that of the
 * content have to be equal to it; where it has none, the content has to have the hub's.
 */
import { basename, dirname } from "node:path";
import { cacheFolder } from "../../base/cache_folder.ts";
import { DataError, EnvironmentError } from "../../base/errors.ts";
import { statIfExists } from "../../base/files.ts";
import { hashFile } from "../../data/hash.ts";
import { repositoryOf } from "../../data/hub_data.ts";
import { RepositoryCache } from "../../hub/cache.ts";
import { type HubClient, StatusError } from "../../hub/client.ts";
import type { DownloadEvents } from "../../hub/blob.ts";
import { downloadFiles } from "../../hub/download.ts";
import { explain } from "../../hub/errors.ts";
import { listFiles } from "../../hub/listing.ts";
import type { HubFile } from "../../hub/repository.ts";
import type { PublishedData, PublishedFile, PublishedSource } from "../tasks/published.ts";

/** A published file on this machine. */
export interface FetchedFile {
  /** Path of the file. */
  readonly local: string;
  readonly repository: string;
  readonly revision: string;
  /** Path in the repository. */
  readonly path: string;
  readonly bytes: number;
  readonly sha256: string;
  /** True if the table has its hash. */
  readonly isPinned: boolean;
}

/** The files of one task. */
export interface FetchedData {
  readonly rows: readonly FetchedFile[];
  readonly pool: readonly FetchedFile[];
}

/** Files of one source that are not in the cache. */
export interface MissingFiles {
  readonly source: PublishedSource;
  readonly licence: string;
  readonly files: readonly PublishedFile[];
}

/** Sources as they are read and filled. */
export class PublishedFiles {
  constructor(
    readonly client: HubClient,
    readonly events: DownloadEvents = {},
    /** Folder of releases, laid out as the hub's cache. */
    readonly releases = `${cacheFolder((name) => Deno.env.get(name))}/releases`,
  ) {}

  /** Returns the files of these data that are not in the cache, by source. */
  async missing(data: readonly PublishedData[]): Promise<MissingFiles[]> {
    const bySource = new Map<string, MissingFiles>();
    for (const { source, licence, rows, pool } of data) {
      const key = `${source.repository}@${source.revision}`;
      const files = new Map(bySource.get(key)?.files.map((file) => [file.path, file]));
      for (const file of [...rows, ...pool]) {
        if (!await statIfExists(this.#local(source, file))) files.set(file.path, file);
      }
      if (files.size > 0) bySource.set(key, { source, licence, files: [...files.values()] });
    }
    return [...bySource.values()];
  }

  /** @throws {EnvironmentError} where the cache of an offline machine lacks files */
  async requireReachable(data: PublishedData): Promise<void> {
    const [missing] = this.client.access.offline ? await this.missing([data]) : [];
    if (missing) throw this.#offline(missing.source, missing.files);
  }

  /** Sizes and hashes of files as the hub or the table names them, checked against each other. */
  async describe({ source, files }: MissingFiles): Promise<HubFile[]> {
    if (this.client.access.offline) throw this.#offline(source, files);
    if (source.release !== undefined) return files.map(releaseFile);
    try {
      const listed = await this.#list(source, files);
      return files.map((file) => requireListed(source, file, listed.get(file.path)));
    } catch (error) {
      throw this.#explained(error, source);
    }
  }

  /** Downloads files that `describe` described. */
  async download({ source }: MissingFiles, files: readonly HubFile[]): Promise<void> {
    const { client, events } = this;
    const repository = repositoryOf(source);
    const { release } = source;
    const place = release === undefined
      ? undefined
      : { cache: this.#cache(source), urlOf: (path: string) => `${release}/${path}` };
    try {
      await downloadFiles(client, repository, source.revision, files, events, place);
    } catch (error) {
      throw this.#explained(error, source);
    }
  }

  /** The files of a task, hashed. All of them are in the cache. */
  async open({ source, rows, pool }: PublishedData): Promise<FetchedData> {
    const openAll = (files: readonly PublishedFile[]) =>
      Array.fromAsync(files, (file) => this.#open(source, file));
    return { rows: await openAll(rows), pool: await openAll(pool) };
  }

  async #open(source: PublishedSource, file: PublishedFile): Promise<FetchedFile> {
    const local = this.#local(source, file);
    const { bytes, sha256 } = await hashFile(local);
    // A content of the cache is named by its hash, also where another program stored it.
    const name = basename(await Deno.readLink(local).catch(() => ""));
    const expected = file.sha256 ?? (/^[0-9a-f]{64}$/.test(name) ? name : sha256);
    if (sha256 !== expected) {
      throw new DataError(
        `"${file.path}" of ${source.repository} has the SHA-256 ${sha256}, expected ${expected}`,
        { hints: [`remove "${local}" and what it links to, and run the command again`] },
      );
    }
    const { repository, revision } = source;
    const isPinned = file.sha256 !== undefined;
    return { local, repository, revision, path: file.path, bytes, sha256, isPinned };
  }

  async #list(
    source: PublishedSource,
    files: readonly PublishedFile[],
  ): Promise<Map<string, HubFile>> {
    const folders = new Set(files.map(({ path }) => path.includes("/") ? dirname(path) : ""));
    const listed = await Array.fromAsync(
      folders,
      (folder) => listFiles(this.client, repositoryOf(source), source.revision, folder),
    );
    return new Map(listed.flat().map((file) => [file.path, file]));
  }

  #cache(source: PublishedSource): RepositoryCache {
    const root = source.release === undefined ? this.client.access.cache : this.releases;
    return new RepositoryCache(root, repositoryOf(source));
  }

  #local(source: PublishedSource, { path }: PublishedFile): string {
    return `${this.#cache(source).snapshot(source.revision)}/${path}`;
  }

  #offline({ repository }: PublishedSource, files: readonly PublishedFile[]): EnvironmentError {
    const names = files.map(({ path }) => `"${path}"`).join(", ");
    const { offline } = this.client.access;
    return new EnvironmentError(
      `${offline} is set, and the cache lacks ${names} of ${repository}`,
      { hints: [`unset ${offline}, or pass the files with \`--data DIR\``] },
    );
  }

  #explained(error: unknown, source: PublishedSource): unknown {
    const hints = ["pass files of your own with `--data DIR`; `parscale eval ls` names them"];
    const { repository, revision, release } = source;
    if (release !== undefined && error instanceof StatusError) {
      const message =
        `the release ${revision} of ${repository} cannot be fetched: ${error.message}`;
      return new DataError(message, { cause: error, hints });
    }
    return explain(error, this.client, { repository: repositoryOf(source), revision, hints });
  }
}

/** A file of a release, which is known by the table alone. */
function releaseFile({ path, bytes, sha256 }: PublishedFile): HubFile {
  return { path, size: bytes!, oid: sha256!, check: "sha256" };
}

function requireListed(
  { repository, revision }: PublishedSource,
  { path, bytes, sha256 }: PublishedFile,
  listed: HubFile | undefined,
): HubFile {
  const hints = ["pass files of your own with `--data DIR`"];
  if (!listed) {
    throw new DataError(`${repository} has no "${path}" at ${revision}`, { hints });
  }
  const isOther = listed.check === "sha256" && sha256 !== undefined && listed.oid !== sha256;
  if (isOther || bytes !== undefined && listed.size !== bytes) {
    const [found, expected] = isOther
      ? [`the SHA-256 ${listed.oid}`, sha256]
      : [`${listed.size} bytes`, bytes];
    throw new DataError(
      `"${path}" of ${repository} has ${found} on the hub, expected ${expected}`,
      { hints: ["the pinned file was replaced: do not use it", ...hints] },
    );
  }
  return listed;
}
