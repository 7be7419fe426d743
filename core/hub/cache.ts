/**
 * The hub's cache on disk, as Python's huggingface_hub lays it out: `blobs/OID` with the contents,
 * `snapshots/COMMIT/PATH` with relative links to them, `refs/REVISION` with a commit each, and locks
 * under `.locks`, which exclude Python's processes too.
 */
import { statfs } from "node:fs/promises";
import { dirname, relative } from "node:path";
import { EnvironmentError } from "../base/errors.ts";
import { ioError, statIfExists } from "../base/files.ts";
import { PLATFORM } from "../base/platform/mod.ts";
import { writeFile } from "../storage/write_file.ts";
import { type HubFile, isCommit, type Repository } from "./repository.ts";

/** Time between two looks at a lock that another process has. */
const LOCK_POLL_MS = 200;

/** The part of the cache that belongs to one repository. */
export class RepositoryCache {
  readonly #folder: string;

  constructor(
    /** The whole cache. */
    readonly cache: string,
    repository: Repository,
  ) {
    this.#folder = `${repository.kind}s--${repository.name.replace("/", "--")}`;
  }

  /** Returns the path of a content under its hash. */
  blob(oid: string): string {
    return `${this.cache}/${this.#folder}/blobs/${oid}`;
  }

  /** The folder of a commit's files. */
  snapshot(commit: string): string {
    return `${this.cache}/${this.#folder}/snapshots/${commit}`;
  }

  /** The commit that a revision stood for when it was last downloaded. */
  async commitOf(revision: string): Promise<string | undefined> {
    if (isCommit(revision)) return revision;
    const text = await Deno.readTextFile(this.#ref(revision)).catch(() => "");
    return isCommit(text.trim()) ? text.trim() : undefined;
  }

  /** Records what a revision stands for; readers see the old or the new commit. */
  async setCommit(revision: string, commit: string): Promise<void> {
    if (await this.commitOf(revision) === commit) return;
    const path = this.#ref(revision);
    await this.write(async () => {
      await Deno.mkdir(dirname(path), { recursive: true });
      writeFile(path, commit);
    });
  }

  #ref(revision: string): string {
    return `${this.cache}/${this.#folder}/refs/${revision}`;
  }

  /** Returns whether a file of a commit is there, whole. */
  async has(commit: string, { path, size }: HubFile): Promise<boolean> {
    return (await statIfExists(`${this.snapshot(commit)}/${path}`))?.size === size;
  }

  /**
   * Puts a content into a snapshot by a symbolic link. Windows makes those only with a right of their
   * own, so there it is a hard link, and a copy on file systems without either.
   */
  async link(commit: string, { path, oid }: HubFile): Promise<void> {
    const pointer = `${this.snapshot(commit)}/${path}`, blob = this.blob(oid);
    if (await Deno.readLink(pointer).catch(() => undefined) === linkTarget(pointer, blob)) return;
    await this.write(async () => {
      await Deno.mkdir(dirname(pointer), { recursive: true });
      await Deno.remove(pointer).catch(() => {});
      await point(pointer, blob);
    });
  }

  /** Takes the lock of a content; `onWait` is called when another process has it, `wait` between two looks. */
  async lock(
    oid: string,
    onWait: () => void,
    wait: (ms: number) => Promise<void>,
  ): Promise<Deno.FsFile> {
    const path = `${this.cache}/.locks/${this.#folder}/${oid}.lock`;
    return await this.write(async () => {
      await Deno.mkdir(dirname(path), { recursive: true });
      const file = await Deno.open(path, { create: true, write: true });
      try {
        if (await file.tryLock(true)) return file;
        onWait();
        while (!await file.tryLock(true)) await wait(LOCK_POLL_MS);
        return file;
      } catch (error) {
        file.close();
        throw error;
      }
    });
  }

  /** Errors of the file system name the cache, not the files in it. */
  async write<T>(work: () => T | Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (error) {
      throw ioError("write", this.cache, error);
    }
  }

  /** Throws unless the disk has room for `bytes` bytes. */
  async requireSpace(bytes: number): Promise<void> {
    const free = await freeBytes(this.cache);
    if (bytes === 0 || free === undefined || bytes <= free) return;
    throw new EnvironmentError(
      `the download takes ${gigabytes(bytes)}, and "${this.cache}" has ${gigabytes(free)} free`,
      { hints: ["free some space, or name a folder on another disk in HF_HUB_CACHE"] },
    );
  }
}

function linkTarget(pointer: string, blob: string): string {
  return relative(dirname(pointer), blob);
}

/** Makes a content appear at a path where there is nothing; another process may do the same. */
async function point(pointer: string, blob: string): Promise<void> {
  const ways = [
    () => Deno.symlink(linkTarget(pointer, blob), pointer, { type: "file" }),
    () => Deno.link(blob, pointer),
    () => Deno.copyFile(blob, pointer),
  ];
  let failure: unknown;
  for (const way of ways) {
    try {
      await way();
      // Wine reports symbolic links that it has not made.
      if (PLATFORM.name !== "windows" || await statIfExists(pointer)) return;
    } catch (error) {
      if (error instanceof Deno.errors.AlreadyExists) return;
      failure = error;
    }
  }
  throw failure;
}

function gigabytes(bytes: number): string {
  return `${(bytes / 1e9).toFixed(1)} GB`;
}

/** Free bytes where a folder is or will be; undefined where the system does not tell. */
async function freeBytes(folder: string): Promise<number | undefined> {
  for (let at = folder;; at = dirname(at)) {
    try {
      const { bavail, bsize } = await statfs(at);
      return bavail * bsize;
    } catch {
      if (at === dirname(at)) return undefined;
    }
  }
}
