/**
 * Turns what the user calls a model into a local path: a path, or `organisation/name[@revision]` on the
 * hub, which is downloaded into the cache. `:Q8_0` or `:FILE.gguf` after it names a GGUF file.
 *
 * An existing path always wins, and the hub is asked only if there is none.
 */
import { DataError, EnvironmentError } from "../base/errors.ts";
import { isObject, readJsonObject, statIfExists } from "../base/files.ts";
import {
  ADAPTER_FILE,
  COMPANION_FILES,
  CONFIG_FILE,
  INDEX_FILE,
  isGgufName,
  PEFT_CONFIG,
  TEMPLATES_FOLDER,
  WEIGHTS_FILE,
} from "../base/companions.ts";
import { hubAccess } from "./access.ts";
import { RepositoryCache } from "./cache.ts";
import { HubClient, NetworkError, type Patience, StatusError } from "./client.ts";
import type { DownloadEvents } from "./blob.ts";
import { downloadFiles } from "./download.ts";
import { explain } from "./errors.ts";
import { chooseGguf, chooseGgufIn } from "./gguf_files.ts";
import { findCommit, listFiles } from "./listing.ts";
import {
  type HubFile,
  isCommit,
  type NamedRevision,
  parseName,
  type Repository,
} from "./repository.ts";

/** Files of a checkpoint besides weights; all other files of a repository stay where they are. */
const COMPANIONS = new Set([CONFIG_FILE, "chat_template.json", ...COMPANION_FILES]);

/** A further chat template. */
const TEMPLATE = new RegExp(`^${TEMPLATES_FOLDER}/[^/]+\\.jinja$`);

const TOKENIZERS = ["tokenizer.json", "vocab.json"];

/** Options of finding a model. */
export interface ResolveOptions {
  readonly events?: DownloadEvents | undefined;
  readonly signal?: AbortSignal | undefined;
  readonly patience?: Partial<Patience> | undefined;
  /** Needs config.json alone: takes that of an earlier download, or fetches no other file. */
  readonly configOnly?: boolean;
}

/** A model on the hub. */
interface NamedModel extends NamedRevision {
  /** Quantization or path of the GGUF file that is meant; undefined for safetensors. */
  readonly gguf: string | undefined;
}

/** Reads `organisation/name[@revision][:gguf]`; undefined for anything else. */
function parseModelName(text: string): NamedModel | undefined {
  const at = text.indexOf(":");
  const gguf = at < 0 ? undefined : text.slice(at + 1);
  const named = parseName(at < 0 ? text : text.slice(0, at));
  if (!named || gguf === "" || at < 0 && isGgufName(text)) return undefined;
  return { ...named, gguf };
}

/** Returns whether a model would be looked up on the hub: nothing has its name here. */
export async function isOnHub(model: string): Promise<boolean> {
  return parseModelName(model) !== undefined && !await statIfExists(model);
}

/**
 * The folder or GGUF file of a model given as a path or by its name on the hub.
 * @throws {DataError} when it is neither
 * @throws {EnvironmentError} when the hub cannot be reached and no earlier download is whole
 */
export async function resolveModel(model: string, options: ResolveOptions = {}): Promise<string> {
  if (await statIfExists(model)) return model;
  const named = parseModelName(model);
  if (!named) {
    throw new DataError(`no such ${isGgufName(model) ? "file" : "folder"}: "${model}"`, {
      hints: ["check the path; a model of the hub is named OWNER/NAME"],
    });
  }
  const folder = await resolveFolder(named, model, options);
  const { gguf } = named;
  return gguf === undefined ? folder : `${folder}/${(await chooseGgufIn(folder, gguf))![0]}`;
}

async function resolveFolder(
  named: NamedModel,
  model: string,
  options: ResolveOptions,
): Promise<string> {
  const client = new HubClient(
    await hubAccess(),
    options.signal,
    options.patience,
    (host) => options.events?.onNotice?.(`contacting ${host} …`),
  );
  const cache = new RepositoryCache(client.access.cache, repositoryOf(named));
  const earlier = await earlierDownload(cache, named);
  const isWhole = earlier?.missing.length === 0;
  const needsConfig = options.configOnly && named.gguf === undefined;
  if (earlier && needsConfig && !earlier.missing.includes(CONFIG_FILE)) return earlier.folder;
  const { offline } = client.access;
  if (offline) {
    if (isWhole) return earlier.folder;
    throw await notDownloaded(model, offline, cache, earlier);
  }
  if (isCommit(named.revision)) {
    const folder = cache.snapshot(named.revision);
    // A commit never changes, so a whole snapshot of it needs no question.
    if ((await missingOf(folder, named, true)).length === 0) return folder;
  }
  return await download(client, cache, named, options, isWhole ? earlier.folder : undefined);
}

function repositoryOf({ name }: NamedRevision): Repository {
  return { kind: "model", name };
}

async function download(
  client: HubClient,
  cache: RepositoryCache,
  named: NamedModel,
  { events = {}, configOnly = false }: ResolveOptions,
  earlier: string | undefined,
): Promise<string> {
  const repository = repositoryOf(named);
  try {
    const commit = await findCommit(client, repository, named.revision, earlier ? 1 : undefined);
    const listed = await listFiles(client, repository, commit);
    const wanted = named.gguf !== undefined
      ? ggufFiles(repository, listed, named.gguf)
      : configOnly
      ? configFile(repository, listed)
      : await checkpointFiles(client, repository, commit, listed);
    const folder = await downloadFiles(client, repository, commit, wanted, events);
    if (!isCommit(named.revision)) await cache.setCommit(named.revision, commit);
    return folder;
  } catch (error) {
    const isOfTheMoment = error instanceof NetworkError ||
      error instanceof StatusError && error.isPassing;
    if (isOfTheMoment && earlier) {
      events.onWarning?.(
        `the hub cannot be asked for "${named.name}" (${error.message}): using the earlier download`,
      );
      return earlier;
    }
    throw explain(error, client, {
      repository,
      revision: named.revision,
      prefix: `no such folder: "${named.name}", and `,
    });
  }
}

function configFile({ name }: Repository, listed: readonly HubFile[]): HubFile[] {
  const config = listed.find(({ path }) => path === CONFIG_FILE);
  if (config) return [config];
  throw new DataError(`the model "${name}" has no ${CONFIG_FILE}`);
}

/** A GGUF file, or all its shards. */
function ggufFiles({ name }: Repository, listed: readonly HubFile[], wanted: string): HubFile[] {
  const chosen = chooseGguf(listed.map(({ path }) => path), wanted);
  if (chosen) return listed.filter(({ path }) => chosen.includes(path));
  const others = listed.filter(({ path }) => isGgufName(path)).map(({ path }) => `"${path}"`);
  throw new DataError(`the model "${name}" has no GGUF file "${wanted}"`, {
    hints: [others.length === 0 ? "it has no GGUF files" : `it has ${others.join(", ")}`],
  });
}

/** The files of a checkpoint: of the shards only those that the index lists, which is downloaded. */
async function checkpointFiles(
  client: HubClient,
  repository: Repository,
  commit: string,
  listed: readonly HubFile[],
): Promise<HubFile[]> {
  const byPath = new Map(listed.map((file) => [file.path, file]));
  const weights = [WEIGHTS_FILE, INDEX_FILE, ADAPTER_FILE].find((name) => byPath.has(name));
  if (weights === undefined) throw noWeights(repository, listed);
  const companions = listed.filter(({ path }) => COMPANIONS.has(path) || TEMPLATE.test(path));
  const files = [...companions, byPath.get(weights)!];
  if (weights !== INDEX_FILE) return files;
  const folder = await downloadFiles(client, repository, commit, [byPath.get(INDEX_FILE)!]);
  const shards = await shardsOf(folder);
  const missing = shards.filter((name) => !byPath.has(name));
  if (missing.length > 0) throw incomplete(repository.name, missing);
  return [...files, ...shards.map((name) => byPath.get(name)!)];
}

function noWeights({ name }: Repository, listed: readonly HubFile[]): DataError {
  const others = listed.filter(({ path }) => /\.(bin|gguf|pth?|onnx)$/.test(path));
  const found = others.length === 0 ? "" : `; it has "${others[0]!.path}"`;
  const gguf = others.find(({ path }) => isGgufName(path));
  const remedy = listed.some(({ path }) => path === PEFT_CONFIG)
    ? "it is an adapter of PEFT: download it, and pass its folder with `--adapter`"
    : "choose a repository with safetensors weights";
  return new DataError(`the model "${name}" has no ${WEIGHTS_FILE} and no ${INDEX_FILE}${found}`, {
    hints: [gguf ? `name the file: ${name}:${gguf.path}` : remedy],
  });
}

function incomplete(name: string, missing: readonly string[]): DataError {
  const more = missing.length === 1 ? "is" : `and ${missing.length - 1} more are`;
  return new DataError(
    `the model "${name}" is incomplete: "${missing[0]}" ${more} listed in the index and missing`,
  );
}

/** Names of the files that the index of a folder lists. */
async function shardsOf(folder: string): Promise<string[]> {
  const { weight_map: map } = await readJsonObject(`${folder}/${INDEX_FILE}`);
  const names = isObject(map) ? [...new Set(Object.values(map))] : [];
  // Anything else is refused with a better message when the checkpoint is opened.
  return names.filter((name) => typeof name === "string").sort();
}

/** Returns the files of a checkpoint that a snapshot lacks. */
async function missingOf(
  folder: string,
  { gguf }: NamedModel,
  needsTokenizer = false,
): Promise<string[]> {
  if (gguf !== undefined) return await chooseGgufIn(folder, gguf) ? [] : [gguf];
  const has = async (name: string) => await statIfExists(`${folder}/${name}`) !== undefined;
  const missing = await has(CONFIG_FILE) ? [] : [CONFIG_FILE];
  if (!await has(WEIGHTS_FILE) && !await has(ADAPTER_FILE)) {
    const shards = await has(INDEX_FILE) ? await shardsOf(folder) : [WEIGHTS_FILE];
    for (const name of shards) if (!await has(name)) missing.push(name);
  }
  if (needsTokenizer && !await has(TOKENIZERS[0]!) && !await has(TOKENIZERS[1]!)) {
    missing.push(TOKENIZERS[0]!);
  }
  return missing;
}

/** The folder that an earlier download left, and the files of a checkpoint that it lacks. */
interface EarlierDownload {
  readonly folder: string;
  readonly missing: readonly string[];
}

async function earlierDownload(
  cache: RepositoryCache,
  named: NamedModel,
): Promise<EarlierDownload | undefined> {
  const commit = await cache.commitOf(named.revision);
  const folder = commit && cache.snapshot(commit);
  if (!folder || !await statIfExists(folder)) return undefined;
  return { folder, missing: await missingOf(folder, named) };
}

async function notDownloaded(
  model: string,
  offline: string,
  cache: RepositoryCache,
  earlier?: EarlierDownload,
): Promise<Error> {
  const lack = earlier === undefined
    ? `no earlier download is in "${cache.cache}"`
    : `the earlier download lacks ${earlier.missing.map((name) => `"${name}"`).join(", ")}`;
  const names = earlier
    ? await Array.fromAsync(Deno.readDir(earlier.folder), ({ name }) => name)
    : [];
  const [base] = model.split(":");
  const files = names.filter(isGgufName).sort().map((name) => `${base}:${name}`);
  return new EnvironmentError(`no such folder: "${model}", and ${offline} is set: ${lack}`, {
    hints: [
      ...files.length > 0 ? [`name the file: ${files.join(", ")}`] : [],
      `unset ${offline}, or pass a local folder`,
    ],
  });
}
