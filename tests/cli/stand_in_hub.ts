/** A stand-in for the hub and for the storage it redirects to, on two ports of this machine. */
import { createHash } from "node:crypto";

/** A repository that the stand-in serves. */
export interface StandInRepository {
  readonly kind: "model" | "dataset";
  readonly name: string;
  readonly commit: string;
  readonly files: ReadonlyMap<string, Uint8Array>;
  /** Returns whether a file is kept apart from git; such files come from the storage. */
  readonly isLarge: (path: string) => boolean;
}

/** Both servers. */
export interface StandInHub extends AsyncDisposable {
  /** Origin of the hub. */
  readonly url: string;
  /** Origin of the storage. */
  readonly storage: string;
  /** `METHOD path` and the range of every request to either server since the last `take`. */
  take(): string[];
  /** Authorization headers seen so far, by server. */
  readonly tokens: { readonly hub: Set<string | null>; readonly storage: Set<string | null> };
  /** Answers in place of the usual one where it returns something. */
  answer: (path: string, request: Request) => Response | Promise<Response> | undefined;
  /** Entries on one page of a listing. */
  pageSize: number;
}

/** SHA-256 of bytes, or what git names a file by. */
export function oidOf(bytes: Uint8Array, isLarge: boolean): string {
  return isLarge
    ? createHash("sha256").update(bytes).digest("hex")
    : createHash("sha1").update(`blob ${bytes.length}\0`).update(bytes).digest("hex");
}

/** An entry of a listing. */
export function entryOf({ files, isLarge }: StandInRepository, path: string) {
  const bytes = files.get(path)!, size = bytes.length, oid = oidOf(bytes, isLarge(path));
  const lfs = isLarge(path) ? { oid, size, pointerSize: 134 } : undefined;
  return { type: "file", path, size, oid: lfs ? "a".repeat(40) : oid, lfs };
}

/** Serves bytes, or the range of them that is asked for. */
export function serveBytes(
  bytes: Uint8Array,
  request: Request,
  more: Readonly<Record<string, string>> = {},
): Response {
  const [, first, last] = /^bytes=(\d+)-(\d*)$/.exec(request.headers.get("range") ?? "") ?? [];
  if (first === undefined) return new Response(bytes.slice(), { headers: more });
  if (Number(first) >= bytes.length) return new Response(null, { status: 416 });
  const end = last ? Math.min(bytes.length, Number(last) + 1) : bytes.length;
  const headers = { ...more, "content-range": `bytes ${first}-${end - 1}/${bytes.length}` };
  return new Response(bytes.slice(Number(first), end), { status: 206, headers });
}

const notFound = (code: string) =>
  Response.json({ error: "not found" }, { status: 404, headers: { "x-error-code": code } });

/** Starts both servers. */
export function startHub(repositories: readonly StandInRepository[]): StandInHub {
  const tokens = { hub: new Set<string | null>(), storage: new Set<string | null>() };
  const options = { hostname: "127.0.0.1", port: 0, onListen: () => {} };
  const log: string[] = [];
  const note = (request: Request, server: "hub" | "storage") => {
    tokens[server].add(request.headers.get("authorization"));
    const range = request.headers.get("range");
    log.push(`${request.method} ${new URL(request.url).pathname}${range ? ` ${range}` : ""}`);
  };
  const storage = Deno.serve(options, async (request) => {
    note(request, "storage");
    const { pathname } = new URL(request.url);
    const answer = await hub.answer(pathname, request);
    if (answer) return answer;
    const [, index, path] = /^\/(\d+)\/(.+)$/.exec(decodeURIComponent(pathname)) ?? [];
    const bytes = repositories[Number(index)]?.files.get(path ?? "");
    return bytes ? serveBytes(bytes, request) : new Response("", { status: 404 });
  });
  const server = Deno.serve(options, async (request) => {
    note(request, "hub");
    const url = new URL(request.url);
    return await hub.answer(url.pathname, request) ?? respond(url, request);
  });
  function respond(url: URL, request: Request): Response {
    const pathname = decodeURIComponent(url.pathname);
    for (const [index, repository] of repositories.entries()) {
      const { kind, name, commit, files } = repository;
      const api = `/api/${kind}s/${name}`, section = kind === "dataset" ? "/datasets" : "";
      if (pathname.startsWith(`${section}/${name}/resolve/`)) {
        const [, revision, path] = /\/resolve\/([^/]+)\/(.+)$/.exec(pathname) ?? [];
        const bytes = files.get(path ?? "");
        if (revision !== commit && revision !== "main") return notFound("RevisionNotFound");
        if (path === undefined || !bytes) return notFound("EntryNotFound");
        const isLarge = repository.isLarge(path), oid = oidOf(bytes, isLarge);
        const headers = {
          "x-repo-commit": commit,
          "x-linked-etag": `"${oid}"`,
          "x-linked-size": `${bytes.length}`,
          etag: `"${oid}"`,
        };
        if (!isLarge) return serveBytes(bytes, request, headers);
        const location = `${hub.storage}/${index}/${encodeURIComponent(path)}`;
        return new Response(null, { status: 302, headers: { ...headers, location } });
      }
      const [, revision] = pathname.split(`${api}/revision/`);
      if (revision === "main" || revision === commit) {
        const siblings = [...files.keys()].map((rfilename) => ({ rfilename }));
        return Response.json({ _id: "1", id: name, sha: commit, siblings });
      }
      if (revision !== undefined) return notFound("RevisionNotFound");
      const tree = `${api}/tree/${commit}`;
      if (pathname === tree || pathname.startsWith(`${tree}/`)) {
        const below = pathname.slice(tree.length + 1);
        const all = [...files.keys()].filter((path) => path.startsWith(below && `${below}/`));
        if (all.length === 0) return notFound("EntryNotFound");
        const from = Number(url.searchParams.get("cursor") ?? 0), to = from + hub.pageSize;
        const next = `<${hub.url}${url.pathname}?recursive=true&cursor=${to}>; rel="next"`;
        return Response.json(all.slice(from, to).map((path) => entryOf(repository, path)), {
          headers: to < all.length ? { link: next } : {},
        });
      }
    }
    return notFound("RepoNotFound");
  }
  const hub: StandInHub = {
    url: `http://127.0.0.1:${server.addr.port}`,
    // Another name, since some clients take two ports of one host for the same place.
    storage: `http://localhost:${storage.addr.port}`,
    take: () => log.splice(0),
    tokens,
    answer: () => undefined,
    pageSize: 1000,
    [Symbol.asyncDispose]: async () => {
      await Promise.all([server.shutdown(), storage.shutdown()]);
    },
  };
  return hub;
}

/** Everything below a folder. */
export function allPaths(folder: string): string[] {
  return [...Deno.readDirSync(folder)].flatMap(({ name, isDirectory }) => {
    const path = `${folder}/${name}`;
    return isDirectory ? allPaths(path) : [path];
  }).sort();
}
