/**
 * Turns what the user calls a model into a local folder: a path, or a repository on the Hugging Face
 * hub, which is downloaded into the standard cache.
 *
 * An existing path always wins over a repository of the same name. `HF_HOME`, `HF_ENDPOINT`,
 * `HF_TOKEN` and `HF_HUB_OFFLINE` mean what they mean everywhere; when the hub cannot be reached, an
 * earlier download serves.
 */
import { DataError, EnvironmentError } from "../errors.ts";
import { statIfExists } from "./files.ts";
import { CONFIG_FILE } from "./open.ts";

/** `organisation/name`, as the hub allows it. */
const REPOSITORY = /^[A-Za-z0-9][\w.-]*\/[A-Za-z0-9][\w.-]*$/;

/** What a checkpoint consists of; other weight formats in a repository stay where they are. */
const WANTED = /^(.*\.safetensors|.*\.json|merges\.txt|chat_template\.jinja)$/;

/** Downloads a repository and returns the folder of its snapshot. */
export type Download = (repository: string) => Promise<string>;

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
  const offline = !["", "0", undefined].includes(Deno.env.get("HF_HUB_OFFLINE"));
  try {
    if (!offline) return await download(model);
  } catch (error) {
    const status = (error as { statusCode?: number }).statusCode;
    if (status !== undefined && status < 500) throw refusal(model, status, error);
    return await cachedSnapshot(model) ?? unreachable(model, error);
  }
  return await cachedSnapshot(model) ?? unreachable(model, undefined);
}

function refusal(model: string, status: number, cause: unknown): DataError {
  return new DataError(
    `Cannot open model "${model}": found neither a folder nor a readable hub repository (status ${status})`,
    {
      cause,
      hints: ["check the name", "for gated or private models put a token into HF_TOKEN"],
    },
  );
}

function unreachable(model: string, cause: unknown): never {
  const reason = cause instanceof Error ? cause.message : "HF_HUB_OFFLINE is set";
  throw new EnvironmentError(
    `Cannot download model "${model}": ${reason}, and no earlier download was found`,
    { cause, hints: ["check the network and HF_ENDPOINT, or pass a local folder"] },
  );
}

async function downloadSnapshot(repository: string): Promise<string> {
  const hub = await import("@huggingface/hub");
  const repo = { type: "model", name: repository } as const;
  const access = {
    hubUrl: Deno.env.get("HF_ENDPOINT"),
    accessToken: Deno.env.get("HF_TOKEN"),
  };
  const { sha } = await hub.modelInfo({ ...access, name: repository, additionalFields: ["sha"] });
  const wanted: string[] = [];
  for await (const entry of hub.listFiles({ ...access, repo, revision: sha })) {
    if (entry.type === "file" && WANTED.test(entry.path)) wanted.push(entry.path);
  }
  let pointer = "";
  for (const path of wanted.sort()) {
    pointer = await quietly(() =>
      hub.downloadFileToCacheDir({ ...access, repo, path, revision: sha })
    );
  }
  if (pointer === "") {
    throw new DataError(`Cannot open model "${repository}": found no weights in the repository`);
  }
  const folder = pointer.slice(0, pointer.lastIndexOf("/"));
  const refs = `${folder}/../../refs`;
  await Deno.mkdir(refs, { recursive: true });
  await Deno.writeTextFile(`${refs}/main`, sha);
  return folder;
}

/** The library announces each file with `console.debug`, which would land in our standard output. */
async function quietly<T>(work: () => Promise<T>): Promise<T> {
  const debug = console.debug;
  console.debug = () => {};
  try {
    return await work();
  } finally {
    console.debug = debug;
  }
}

/** The snapshot an earlier download left in the cache. */
async function cachedSnapshot(repository: string): Promise<string | undefined> {
  const { getHFHubCachePath } = await import("@huggingface/hub");
  const root = `${getHFHubCachePath()}/models--${repository.replace("/", "--")}`;
  if (!await statIfExists(`${root}/refs/main`)) return undefined;
  const revision = (await Deno.readTextFile(`${root}/refs/main`)).trim();
  const folder = `${root}/snapshots/${revision}`;
  return await statIfExists(`${folder}/${CONFIG_FILE}`) ? folder : undefined;
}
