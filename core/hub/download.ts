/**
 * Downloads files of one commit into the cache.
 *
 * Four files at once, one stream a file. A partial file survives a kill and is continued by a range request;
 * a content gets its name only when its hash is that of the listing.
 */
import { dirname } from "node:path";
import { statIfExists } from "../base/files.ts";
import { type DownloadEvents, type Fetching, receiveBlob } from "./blob.ts";
import { RepositoryCache } from "./cache.ts";
import type { HubClient } from "./client.ts";
import { contentUrl } from "./listing.ts";
import type { HubFile, Repository } from "./repository.ts";

/** Files fetched at once. */
const PARALLEL = 4;

/** Source and target of files that are not in a repository of the hub. */
export interface Place {
  readonly cache: RepositoryCache;
  readonly urlOf: (path: string) => string;
}

/** Downloads what is not in the cache and links all of it into the snapshot, whose folder it returns. */
export async function downloadFiles(
  client: HubClient,
  repository: Repository,
  commit: string,
  files: readonly HubFile[],
  events: DownloadEvents = {},
  place: Place = placeOnHub(client, repository, commit),
): Promise<string> {
  const { cache, urlOf } = place;
  const missing: HubFile[] = [];
  for (const file of files) {
    if (!await cache.has(commit, file)) missing.push(file);
  }
  const contents = [...new Map(missing.map((file) => [file.oid, file])).values()];
  await prepare(cache, contents, events);
  let done = 0;
  const add = (bytes: number) => events.onBytes?.(done += bytes);
  await inParallel(contents, async (file) => {
    const url = urlOf(file.path);
    await fetchContent({ client, cache, repository, file, url, events, add });
  });
  for (const file of missing) await cache.link(commit, file);
  return cache.snapshot(commit);
}

function placeOnHub(client: HubClient, repository: Repository, commit: string): Place {
  return {
    cache: new RepositoryCache(client.access.cache, repository),
    urlOf: (path) => contentUrl(client, repository, commit, path),
  };
}

/** Checks the disk and says how much is to come. */
async function prepare(
  cache: RepositoryCache,
  files: readonly HubFile[],
  events: DownloadEvents,
): Promise<void> {
  let total = 0;
  for (const { oid, size } of files) {
    if ((await statIfExists(cache.blob(oid)))?.size !== size) total += size;
  }
  await cache.requireSpace(total);
  if (total > 0) events.onTotal?.(total);
}

async function inParallel(
  files: readonly HubFile[],
  work: (file: HubFile) => Promise<void>,
): Promise<void> {
  const queue = [...files];
  const failures: unknown[] = [];
  const worker = async () => {
    // After a failure what has begun is finished, so that it need not be fetched again.
    for (let file; failures.length === 0 && (file = queue.shift());) {
      await work(file).catch((error) => void failures.push(error));
    }
  };
  await Promise.all(Array.from({ length: PARALLEL }, worker));
  if (failures.length > 0) throw failures[0];
}

async function fetchContent(fetching: Fetching): Promise<void> {
  const { cache, file, events, add } = fetching;
  const blob = cache.blob(file.oid);
  const isThere = async () => (await statIfExists(blob))?.size === file.size;
  if (await isThere()) return;
  await cache.write(() => Deno.mkdir(dirname(blob), { recursive: true }));
  using _lock = await cache.lock(
    file.oid,
    () => events.onNotice?.(`waiting for another process that downloads "${file.path}"`),
    (ms) => fetching.client.wait(ms),
  );
  if (await isThere()) return add(file.size);
  if (file.check === "size") {
    events.onWarning?.(`the hub names no hash of "${file.path}": only its size is checked`);
  }
  await receiveBlob(fetching, blob);
}
