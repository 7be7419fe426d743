/**
 * Puts files of a hub repository into the standard cache.
 *
 * The hub is not trusted: what it names is checked before it becomes a path, and a file gets its name
 * in the cache only when its content has the hash that the listing states. A file is written under one
 * partial name, which is locked, so that a second process waits and a later one begins it anew.
 */
import { createHash, type Hash } from "node:crypto";
import { dirname, relative } from "node:path";
import { DataError, EnvironmentError } from "../base/errors.ts";
import { ioError, show, statIfExists } from "../base/files.ts";

/** A file as the hub lists it. */
export interface HubFile {
  readonly path: string;
  readonly size: number;
  /** Hash by git: SHA-1 over a small header and the content, or over the pointer of a large file. */
  readonly oid?: string | undefined;
  /** Where the content is stored apart from git; its oid is the SHA-256 of the content. */
  readonly lfs?: { readonly oid: string } | undefined;
}

/** Where files come from and go to. */
export interface HubSource {
  readonly repository: string;
  /** Address of the repository's files at a commit, without a slash at its end. */
  readonly url: string;
  readonly accessToken?: string | undefined;
  /** Folder of the repository in the cache. */
  readonly root: string;
  readonly commit: string;
}

const SHA1 = /^[0-9a-f]{40}$/, SHA256 = /^[0-9a-f]{64}$/;

// deno-lint-ignore no-control-regex -- they are what is refused
const UNSAFE = /[\x00-\x1f\x7f-\x9f\\]|^[A-Za-z]:/;

/** The commit that the hub names. */
export function checkCommit(repository: string, commit: unknown): string {
  if (typeof commit === "string" && SHA1.test(commit)) return commit;
  throw refused(repository, "commit", commit, "40 hexadecimal digits");
}

/** A path that the hub names: relative, with a name between any two slashes. */
export function checkPath(repository: string, path: unknown): string {
  const isSafe = typeof path === "string" && !UNSAFE.test(path) &&
    path.split("/").every((part) => part !== "" && part !== "." && part !== "..");
  if (isSafe) return path;
  throw refused(repository, "path", path, "a path inside the repository");
}

/** Name of a file's content in the cache. */
export function checkOid(repository: string, { oid, lfs }: HubFile): string {
  const found: unknown = lfs ? lfs.oid : oid;
  if (typeof found === "string" && (lfs ? SHA256 : SHA1).test(found)) return found;
  throw refused(repository, "hash", found, `${lfs ? 64 : 40} hexadecimal digits`);
}

function refused(repository: string, what: string, found: unknown, expected: string): DataError {
  return new DataError(
    `Cannot download model "${repository}": the hub names the ${what} ${show(found)}, expected ` +
      expected,
    { hints: ["check HF_ENDPOINT: an honest hub never answers so"] },
  );
}

/** Fetches a file unless it is in the cache, and links it into the snapshot. */
export async function fetchFile(source: HubSource, file: HubFile): Promise<void> {
  const path = checkPath(source.repository, file.path);
  const oid = checkOid(source.repository, file);
  const blob = `${source.root}/blobs/${oid}`;
  const pointer = `${source.root}/snapshots/${source.commit}/${path}`;
  await onDisk(source, async () => {
    await Deno.mkdir(dirname(blob), { recursive: true });
    await Deno.mkdir(dirname(pointer), { recursive: true });
  });
  if ((await statIfExists(blob))?.size !== file.size) await fetchBlob(source, file, blob);
  await onDisk(source, () => link(blob, pointer));
}

/** Errors of the file system name the cache, not the files in it. */
async function onDisk<T>({ root }: HubSource, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw ioError("write", dirname(root), error);
  }
}

async function fetchBlob(source: HubSource, file: HubFile, blob: string): Promise<void> {
  const partial = `${blob}.parscale-partial`;
  using handle = await onDisk(source, () => Deno.open(partial, { create: true, write: true }));
  await onDisk(source, () => handle.lock(true));
  // Another process may have finished it meanwhile.
  if ((await statIfExists(blob))?.size === file.size) return;
  try {
    await onDisk(source, () => handle.truncate());
    await receive(source, file, handle);
    await onDisk(source, async () => {
      await handle.sync();
      await Deno.rename(partial, blob);
    });
  } catch (error) {
    await Deno.remove(partial).catch(() => {});
    throw error;
  }
}

/** Streams the content to `handle` and compares size and hash. */
async function receive(source: HubSource, file: HubFile, handle: Deno.FsFile): Promise<void> {
  const { repository, url, accessToken } = source;
  const address = `${url}/${file.path.split("/").map(encodeURIComponent).join("/")}`;
  const headers: HeadersInit = accessToken ? { authorization: `Bearer ${accessToken}` } : {};
  const response = await fetch(address, { headers });
  if (!response.ok || response.body === null) {
    await response.body?.cancel();
    const message = `status ${response.status} for "${file.path}"`;
    throw Object.assign(new Error(message), { statusCode: response.status });
  }
  const hash = hashOf(file);
  let size = 0;
  for await (const bytes of response.body) {
    size += bytes.length;
    if (size > file.size) break; // an answer without end
    hash.update(bytes);
    await onDisk(source, async () => {
      for (let done = 0; done < bytes.length;) done += await handle.write(bytes.subarray(done));
    });
  }
  const expected = checkOid(repository, file), found = hash.digest("hex");
  const hints = ["run the command again, which fetches the file anew"];
  if (size !== file.size) {
    const amount = size > file.size ? `more than ${file.size}` : `${size}`;
    throw new EnvironmentError(
      `Cannot download model "${repository}": found ${amount} bytes of "${file.path}", ` +
        `expected ${file.size}`,
      { hints },
    );
  }
  if (found === expected) return;
  throw new DataError(
    `Cannot download model "${repository}": "${file.path}" has the hash ${found}, expected ${expected}`,
    { hints },
  );
}

/** SHA-256 of the content, or what git names a small file by. */
function hashOf({ lfs, size }: HubFile): Hash {
  return lfs ? createHash("sha256") : createHash("sha1").update(`blob ${size}\0`);
}

/** A link beside others in the snapshot; a copy where there are no links. */
async function link(blob: string, pointer: string): Promise<void> {
  const target = relative(dirname(pointer), blob);
  if (await Deno.readLink(pointer).catch(() => undefined) === target) return;
  await Deno.remove(pointer).catch(() => {});
  await Deno.symlink(target, pointer).catch(() => Deno.copyFile(blob, pointer));
}
