/**
 * Finds the files of `hf://datasets/OWNER/NAME[@REVISION]/GLOB` at one commit.
 */
import { Buffer } from "node:buffer";
import { DataError, EnvironmentError, UsageError } from "../base/errors.ts";
import { isObject } from "../base/files.ts";
import { type HubClient, StatusError } from "../hub/client.ts";
import { explain } from "../hub/errors.ts";
import { findCommit, listFiles } from "../hub/listing.ts";
import {
  checkCommit,
  checkPath,
  type HubFile,
  isCommit,
  parseName,
  type Repository,
} from "../hub/repository.ts";
import { formatOf } from "./read.ts";
import { globToRegExp } from "./sources.ts";

/** Files of one commit, as a run records them. */
export interface HubData {
  /** Spec as the user wrote it. */
  readonly spec: string;
  readonly repository: string;
  readonly commit: string;
  /** In byte order of their paths. */
  readonly files: readonly HubFile[];
}

/** The repository of data, in the terms of the hub. */
export function repositoryOf({ repository }: Pick<HubData, "repository">): Repository {
  return { kind: "dataset", name: repository };
}

/** Asks the hub for the commit and its files. */
export async function findHubData(client: HubClient, spec: string): Promise<HubData> {
  const { name, revision, glob } = parseSpec(spec);
  const { offline } = client.access;
  if (offline) {
    throw new EnvironmentError(`${offline} is set, and "${spec}" is on the hub`, {
      hints: [`unset ${offline}, or pass local files`],
    });
  }
  const repository = repositoryOf({ repository: name });
  try {
    const commit = isCommit(revision) ? revision : await findCommit(client, repository, revision);
    const folder = /^[^*?]*(?=\/)/.exec(glob)?.[0] ?? "";
    const pattern = globToRegExp(glob);
    const listed = await listFiles(client, repository, commit, folder).catch(noneIfMissing);
    const files = listed.filter(({ path }) => pattern.test(path)).sort(byPath);
    requireReadable(spec, files);
    return { spec, repository: name, commit, files };
  } catch (error) {
    const isCut = error instanceof StatusError && error.code === "RevisionNotFound" &&
      glob.includes("/");
    const hints = isCut ? ["write the slashes of a revision as %2F, such as @feature%2Fx"] : [];
    throw explain(error, client, { repository, revision, hints });
  }
}

/** A branch that the hub makes, whose slashes do not end the revision, as in its HfFileSystem. */
const HUB_BRANCH = /(?<=^[^@]*@)refs\/(convert\/[\w.-]+|pr\/\d+)/;

function parseSpec(spec: string): { name: string; revision: string; glob: string } {
  const written = spec.replace(HUB_BRANCH, encodeURIComponent);
  const [, named, glob] = /^hf:\/\/datasets\/([^/]+\/[^/]+)\/(.+)$/.exec(written) ?? [];
  const parsed = named === undefined ? undefined : parseName(named);
  if (parsed && glob !== undefined) return { ...parsed, glob };
  throw new UsageError(`"${spec}" does not name files of a dataset`, {
    hints: ["write hf://datasets/OWNER/NAME[@REVISION]/GLOB"],
  });
}

/** No files for a folder that the commit lacks. */
function noneIfMissing(error: unknown): HubFile[] {
  if (error instanceof StatusError && error.code === "EntryNotFound") return [];
  throw error;
}

function byPath(a: HubFile, b: HubFile): number {
  return Buffer.compare(Buffer.from(a.path), Buffer.from(b.path));
}

function requireReadable(spec: string, files: readonly HubFile[]): void {
  if (files.length === 0) {
    throw new DataError(`no file matches "${spec}"`, {
      hints: ["* and ? stay inside a name; ** stands for any number of folders"],
    });
  }
  const other = files.find(({ path }) => {
    const { format, compression } = formatOf(path);
    return format === "text" || format === "parquet" && compression !== undefined;
  });
  if (other === undefined) return;
  throw new DataError(`"${spec}" matches "${other.path}", which is not parquet or JSON lines`, {
    hints: ["narrow the glob, for instance to *.parquet"],
  });
}

/** Data that an earlier run recorded for `spec`; the record is checked, as any file is. */
export function recordedHubData(found: unknown, spec: string): HubData | undefined {
  if (!isObject(found) || found.spec !== spec || !Array.isArray(found.files)) return undefined;
  const { name } = parseSpec(spec);
  const repository = repositoryOf({ repository: name });
  const commit = checkCommit(repository, found.commit);
  const files = (found.files as HubFile[]).map((file) => ({
    ...file,
    path: checkPath(repository, file.path),
  }));
  return { spec, repository: name, commit, files };
}
