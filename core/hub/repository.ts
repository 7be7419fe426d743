/**
 * Names of repositories and of what they hold.
 *
 * The hub is not trusted: commits, paths and hashes become paths of files, so each is checked before
 * anything is written.
 */
import { createHash, type Hash } from "node:crypto";
import { DataError } from "../base/errors.ts";
import { show } from "../base/files.ts";

/** A repository of the hub. */
export interface Repository {
  readonly kind: "model" | "dataset";
  /** `organisation/name`. */
  readonly name: string;
}

/** A file as the hub lists it, checked. */
export interface HubFile {
  readonly path: string;
  readonly size: number;
  /** Name of the content in the cache: SHA-256 of a large file, else the hash of git. */
  readonly oid: string;
  /** Check of the content; of some files only the size is known. */
  readonly check: "sha256" | "git" | "size";
}

const NAME = /^[A-Za-z0-9][\w.-]*\/[A-Za-z0-9][\w.-]*$/;
const SHA1 = /^[0-9a-f]{40}$/, SHA256 = /^[0-9a-f]{64}$/;

// deno-lint-ignore no-control-regex -- they are what is refused
const UNSAFE = /[\x00-\x1f\x7f-\x9f\\]|^[A-Za-z]:/;

/** A repository and a revision of it. */
export interface NamedRevision {
  readonly name: string;
  /** Branch, tag or commit. */
  readonly revision: string;
}

/** Reads `organisation/name[@revision]`; undefined for anything else. */
export function parseName(text: string): NamedRevision | undefined {
  const at = text.indexOf("@");
  const name = at < 0 ? text : text.slice(0, at);
  const revision = at < 0 ? "main" : decode(text.slice(at + 1));
  if (!NAME.test(name) || revision === undefined || !isSafePath(revision)) return undefined;
  return { name, revision };
}

/** `refs%2Fconvert%2Fparquet` is how a branch with slashes is written. */
function decode(text: string): string | undefined {
  try {
    return decodeURIComponent(text);
  } catch {
    return undefined;
  }
}

/** Returns whether a revision names a commit, which never changes. */
export function isCommit(revision: string): boolean {
  return SHA1.test(revision);
}

function isSafePath(path: string): boolean {
  return !UNSAFE.test(path) &&
    path.split("/").every((part) => part !== "" && part !== "." && part !== "..");
}

/** The commit that the hub names. */
export function checkCommit({ name }: Repository, commit: unknown): string {
  if (typeof commit === "string" && SHA1.test(commit)) return commit;
  throw refused(name, "commit", commit, "40 hexadecimal digits");
}

/** A path that the hub names: relative, with a name between any two slashes. */
export function checkPath({ name }: Repository, path: unknown): string {
  if (typeof path === "string" && isSafePath(path)) return path;
  throw refused(name, "path", path, "a path inside the repository");
}

/** An entry of a listing; undefined for folders. */
export function checkEntry(repository: Repository, entry: unknown): HubFile | undefined {
  const { type, path, size, oid, lfs, xetHash } = (entry ?? {}) as Record<string, unknown>;
  if (type !== "file") return undefined;
  const checked = checkPath(repository, path);
  const { name } = repository;
  if (!Number.isSafeInteger(size) || (size as number) < 0) {
    throw refused(name, "size", size, "a number of bytes");
  }
  const large = lfs as { readonly oid?: unknown } | null | undefined;
  const found = large ? large.oid : oid;
  if (typeof found !== "string" || !(large ? SHA256 : SHA1).test(found)) {
    throw refused(name, "hash", found, `${large ? 64 : 40} hexadecimal digits`);
  }
  const check = large ? "sha256" : xetHash ? "size" : "git";
  return { path: checked, size: size as number, oid: found, check };
}

/** The hash that checks a file's content, before any of its bytes. */
export function contentHash({ check, size }: HubFile): Hash {
  return check === "git" ? createHash("sha1").update(`blob ${size}\0`) : createHash("sha256");
}

function refused(name: string, what: string, found: unknown, expected: string): DataError {
  return new DataError(
    `cannot download "${name}": the hub gives the ${what} ${show(found)}, expected ${expected}`,
    { hints: ["check HF_ENDPOINT: the Hugging Face Hub does not answer so"] },
  );
}
