/** Asks the hub for the commit of a revision and for the files of a commit. */
import { DataError } from "../base/errors.ts";
import { type Answer, type HubClient, NetworkError } from "./client.ts";
import { checkCommit, checkEntry, type HubFile, type Repository } from "./repository.ts";

/** Bytes of one JSON answer; a page of 1,000 files has about 300 KB. */
const MAX_JSON_BYTES = 64 << 20;

/** Pages of a listing; the largest datasets have some hundred. */
const MAX_PAGES = 5000;

/** The commit a revision stands for. */
export async function findCommit(
  client: HubClient,
  repository: Repository,
  revision: string,
  tries?: number,
): Promise<string> {
  const url = `${apiUrl(client, repository)}/revision/${encodeURIComponent(revision)}`;
  const { value } = await getJson(client, url, tries);
  return checkCommit(repository, (value as { sha?: unknown } | null)?.sha);
}

/** Files of a commit, below a folder where one is given. All of them are checked. */
export async function listFiles(
  client: HubClient,
  repository: Repository,
  commit: string,
  folder = "",
): Promise<HubFile[]> {
  const below = folder === "" ? "" : `/${encodePath(folder)}`;
  const first = `${apiUrl(client, repository)}/tree/${commit}${below}?recursive=true`;
  const files: HubFile[] = [];
  let url: string | undefined = first;
  for (let page = 0; url !== undefined; page++) {
    if (page === MAX_PAGES) throw listingError(repository, `more than ${MAX_PAGES} pages`);
    const { value, link } = await getJson(client, url);
    if (!Array.isArray(value)) throw listingError(repository, "something other than a list");
    files.push(...value.flatMap((entry) => checkEntry(repository, entry) ?? []));
    url = nextPage(client, repository, link, url);
  }
  return files;
}

/** Address of a file's content. */
export function contentUrl(
  { access }: HubClient,
  { kind, name }: Repository,
  commit: string,
  path: string,
): string {
  const section = kind === "dataset" ? "datasets/" : "";
  return `${access.endpoint}/${section}${name}/resolve/${commit}/${encodePath(path)}`;
}

function encodePath(path: string): string {
  return path.split("/").map(encodeURIComponent).join("/");
}

function apiUrl({ access }: HubClient, { kind, name }: Repository): string {
  return `${access.endpoint}/api/${kind}s/${name}`;
}

/**
 * The address of the next page. It is asked at the hub, where the token goes, since a mirror may pass on
 * a link to its origin.
 */
function nextPage(
  { access }: HubClient,
  repository: Repository,
  link: string | null,
  base: string,
): string | undefined {
  const target = /<([^>]*)>\s*;[^,]*rel="?next"?/.exec(link ?? "")?.[1];
  if (target === undefined) return undefined;
  const url = URL.parse(target, base);
  if (url === null) throw listingError(repository, `a next page on "${target}"`);
  if (url.origin === new URL(access.endpoint).origin) return url.href;
  return `${access.endpoint}${url.pathname}${url.search}`;
}

function listingError({ name }: Repository, found: string): DataError {
  return new DataError(`cannot list "${name}": the hub answers with ${found}`, {
    hints: ["check HF_ENDPOINT: the Hugging Face Hub does not answer so"],
  });
}

async function getJson(
  client: HubClient,
  url: string,
  tries?: number,
): Promise<{ value: unknown; link: string | null }> {
  return await client.retry(async () => {
    const answer = await client.get(url, { accept: "application/json" });
    const text = await readText(answer);
    try {
      return { value: JSON.parse(text), link: answer.response.headers.get("link") };
    } catch (cause) {
      throw new NetworkError(`${new URL(url).host} answers without JSON`, { cause });
    }
  }, tries);
}

async function readText({ chunks }: Answer): Promise<string> {
  const decoder = new TextDecoder();
  let text = "", size = 0;
  for await (const chunk of chunks()) {
    if ((size += chunk.length) > MAX_JSON_BYTES) throw new NetworkError("an answer without end");
    text += decoder.decode(chunk, { stream: true });
  }
  return text + decoder.decode();
}
