/**
 * Turns what the user calls a model into a local folder: a path, or a repository on the Hugging Face
 * hub, which is downloaded into the standard cache.
 *
 * An existing path always wins over a repository of the same name. `HF_HOME`, `HF_ENDPOINT`,
 * `HF_TOKEN` and `HF_HUB_OFFLINE` mean what they mean everywhere; when the hub cannot be reached, an
 * earlier download serves.
 */
import { DataError, EnvironmentError, ParscaleError } from "../base/errors.ts";
import { ioError, statIfExists } from "../base/files.ts";
import { checkCommit, checkOid, checkPath, fetchFile, type HubFile } from "./hub_files.ts";
import { CONFIG_FILE } from "./open.ts";

/** `organisation/name`, as the hub allows it. */
const REPOSITORY = /^[A-Za-z0-9][\w.-]*\/[A-Za-z0-9][\w.-]*$/;

/** What a checkpoint consists of; other weight formats in a repository stay where they are. */
const WANTED = /^(.*\.safetensors|.*\.json|merges\.txt|chat_template\.jinja)$/s;

/** Downloads a repository and returns the folder of its snapshot. */
export type Download = (repository: string) => Promise<string>;

/** Statuses below 500 that speak of the moment and not of the repository. */
const PASSING = [408, 429];

/** The folder of a model given as a path or as `organisation/name` on the hub. */
export async function resolveModel(
  model: string,
  download: Download = downloadSnapshot,
): Promise<string> {
  if (await statIfExists(model)) return model;
  if (!REPOSITORY.test(model)) {
    throw new DataError(`Cannot open model "${model}": found nothing there, expected a folder`, {
      hints: ["check the path; a hub model is named as organisation/name"],
    });
  }
  if (isOffline()) return await cachedSnapshot(model) ?? await absent(model);
  try {
    return await download(model);
  } catch (error) {
    if (error instanceof ParscaleError) throw error;
    const status = (error as { statusCode?: number }).statusCode;
    if (status !== undefined && status < 500 && !PASSING.includes(status)) {
      throw refusal(model, status, error);
    }
    return await cachedSnapshot(model) ?? await unreachable(model, error);
  }
}

/** The values that other programs take for true. */
function isOffline(): boolean {
  return /^(1|on|yes|true)$/i.test(Deno.env.get("HF_HUB_OFFLINE") ?? "");
}

function refusal(model: string, status: number, cause: unknown): DataError {
  return new DataError(
    `Cannot open model "${model}": found neither a folder nor a readable repository (status ${status} from the hub), expected one of them`,
    {
      cause,
      hints: ["check the name", "for gated or private models put a token into HF_TOKEN"],
    },
  );
}

async function absent(model: string): Promise<never> {
  throw new EnvironmentError(
    `Cannot download model "${model}": found HF_HUB_OFFLINE set and no earlier download, expected one in "${await cacheFolder()}"`,
    { hints: ["unset HF_HUB_OFFLINE, or pass a local folder"] },
  );
}

async function unreachable(model: string, error: unknown): Promise<never> {
  // Of all that fails here only calls of the file system name a path.
  if ((error as { path?: unknown }).path) throw ioError("write", await cacheFolder(), error);
  throw new EnvironmentError(
    `Cannot download model "${model}": found neither a working connection to the hub nor an earlier download, expected one of them`,
    {
      cause: error instanceof Error ? error : new Error(String(error)),
      hints: ["check the network and HF_ENDPOINT, or pass a local folder"],
    },
  );
}

/** Where the hub is and who asks; a value pasted with a line break or a slash at its end is fine. */
function hubAccess(): { hubUrl?: string; accessToken?: string } {
  const hubUrl = Deno.env.get("HF_ENDPOINT")?.trim().replace(/\/+$/, "");
  const accessToken = Deno.env.get("HF_TOKEN")?.trim();
  if (accessToken && !accessToken.startsWith("hf_")) {
    throw new EnvironmentError('Cannot use HF_TOKEN: found another beginning, expected "hf_"', {
      hints: ["copy the token again, or unset HF_TOKEN for public models"],
    });
  }
  return { ...(hubUrl && { hubUrl }), ...(accessToken && { accessToken }) };
}

async function downloadSnapshot(repository: string): Promise<string> {
  const access = hubAccess();
  const hub = await import("@huggingface/hub");
  const repo = { type: "model", name: repository } as const;
  const info = await hub.modelInfo({ ...access, name: repository, additionalFields: ["sha"] });
  const commit = checkCommit(repository, info.sha);
  const wanted: HubFile[] = [];
  for await (const entry of hub.listFiles({ ...access, repo, revision: commit })) {
    if (entry.type !== "file" || !WANTED.test(entry.path)) continue;
    // All of them are checked before anything is written.
    checkPath(repository, entry.path);
    checkOid(repository, entry);
    wanted.push(entry);
  }
  if (!wanted.some(({ path }) => path.endsWith(".safetensors"))) {
    throw new DataError(
      `Cannot open model "${repository}": found no weights in the repository, expected *.safetensors`,
    );
  }
  const root = await repositoryFolder(repository);
  const url = `${access.hubUrl ?? hub.HUB_URL}/${repository}/resolve/${commit}`;
  const source = { repository, url, accessToken: access.accessToken, root, commit };
  for (const file of wanted) await fetchFile(source, file);
  await Deno.mkdir(`${root}/refs`, { recursive: true });
  await Deno.writeTextFile(`${root}/refs/main`, commit);
  return `${root}/snapshots/${commit}`;
}

async function cacheFolder(): Promise<string> {
  const { getHFHubCachePath } = await import("@huggingface/hub");
  return getHFHubCachePath();
}

async function repositoryFolder(repository: string): Promise<string> {
  return `${await cacheFolder()}/models--${repository.replace("/", "--")}`;
}

/** The snapshot an earlier download left in the cache. */
async function cachedSnapshot(repository: string): Promise<string | undefined> {
  const root = await repositoryFolder(repository);
  if (!await statIfExists(`${root}/refs/main`)) return undefined;
  const revision = (await Deno.readTextFile(`${root}/refs/main`)).trim();
  if (!/^[0-9a-f]{40}$/.test(revision)) return undefined;
  const folder = `${root}/snapshots/${revision}`;
  return await statIfExists(`${folder}/${CONFIG_FILE}`) ? folder : undefined;
}
