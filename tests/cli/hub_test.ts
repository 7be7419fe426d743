/** Models named as `organisation/name`, downloaded from a stand-in hub on this machine. */
import { createHash } from "node:crypto";
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { assertRefused, PLAIN_MODEL } from "./models.ts";
import { runParscale, type RunResult, withScratch } from "./run.ts";

const NAME = "tiny/qwen";
const SHA = "0123456789abcdef0123456789abcdef01234567";
const WEIGHTS = "model.safetensors";
const FILES = [...Deno.readDirSync(PLAIN_MODEL)].map(({ name }) => name).sort();
const PLAIN = ["inspect", "--model", NAME];
const INSPECT = [...PLAIN, "--json"];
const TOKEN = "hf_secret";

/** What the listing holds besides; none of it is a part of a checkpoint. */
const UNWANTED = ["README.md", "model.gguf", "pytorch_model.bin"];

/** Two servers: the hub, and the storage to which it redirects for weights. */
interface Hub extends AsyncDisposable {
  /** Origin of the hub. */
  readonly url: string;
  /** `METHOD path` of every request to the hub since the last `take`. */
  take(): string[];
  /** Authorization headers seen so far, by server. */
  readonly tokens: { readonly hub: Set<string | null>; readonly storage: Set<string | null> };
  /** Answers in place of the usual one where it returns something. */
  answer: (path: string, request: Request) => Response | undefined;
}

function startHub(files: readonly string[] = [...FILES, ...UNWANTED]): Hub {
  const tokens = { hub: new Set<string | null>(), storage: new Set<string | null>() };
  const options = { hostname: "127.0.0.1", port: 0, onListen: () => {} };
  const log: string[] = [];
  const storage = Deno.serve(options, (request) => {
    tokens.storage.add(request.headers.get("authorization"));
    const { pathname } = new URL(request.url);
    return hub.answer(pathname, request) ?? serveFile(pathname.slice(1), request);
  });
  const server = Deno.serve(options, async (request) => {
    tokens.hub.add(request.headers.get("authorization"));
    const url = new URL(request.url);
    log.push(`${request.method} ${url.pathname}`);
    return hub.answer(url.pathname, request) ?? await respond(url, request);
  });
  async function respond(url: URL, request: Request): Promise<Response> {
    const entries = files.map(entryOf);
    const file = decodeURIComponent(url.pathname.split(`/${NAME}/resolve/${SHA}/`)[1] ?? "");
    if (file === WEIGHTS) {
      return Response.redirect(`http://127.0.0.1:${storage.addr.port}/${file}`, 302);
    }
    if (file !== "") return serveFile(file, request);
    switch (url.pathname) {
      case `/api/models/${NAME}/revision/HEAD`:
        return Response.json({ _id: "1", id: NAME, sha: SHA, lastModified: "2025-01-01" });
      case `/api/models/${NAME}/tree/${SHA}`: { // in two pages, as a long listing is
        if (url.searchParams.has("cursor")) return Response.json(entries.slice(2));
        const next = `<${hub.url}${url.pathname}?cursor=2>; rel="next"`;
        return Response.json(entries.slice(0, 2), { headers: { link: next } });
      }
      case `/api/models/${NAME}/paths-info/${SHA}`: {
        const { paths } = await request.json();
        return Response.json(entries.filter(({ path }) => paths.includes(path)));
      }
    }
    return Response.json({ error: "Repository not found" }, { status: 404 });
  }
  const hub: Hub = {
    url: `http://127.0.0.1:${server.addr.port}`,
    take: () => log.splice(0),
    tokens,
    answer: () => undefined,
    [Symbol.asyncDispose]: async () => {
      await Promise.all([server.shutdown(), storage.shutdown()]);
    },
  };
  return hub;
}

const bytesOf = (file: string) =>
  FILES.includes(file)
    ? Deno.readFileSync(`${PLAIN_MODEL}/${file}`)
    : new TextEncoder().encode("not wanted");

/** By what the hub names a file: the SHA-256 of a large one, else git's hash. */
const hash = (file: string) =>
  file === WEIGHTS
    ? createHash("sha256").update(bytesOf(file)).digest("hex")
    : createHash("sha1").update(`blob ${bytesOf(file).length}\0`).update(bytesOf(file)).digest(
      "hex",
    );

function entryOf(path: string) {
  const size = bytesOf(path).length;
  const lfs = path === WEIGHTS ? { oid: hash(path), size, pointerSize: 134 } : undefined;
  return { type: "file", path, size, oid: lfs ? "a".repeat(40) : hash(path), lfs };
}

function serveFile(file: string, request: Request): Response {
  const bytes = bytesOf(file);
  const headers = { etag: `"${hash(file)}"`, "x-repo-commit": SHA };
  if (request.headers.get("range") !== "bytes=0-0") return new Response(bytes, { headers });
  const range = { ...headers, "content-range": `bytes 0-0/${bytes.length}` };
  return new Response(bytes.slice(0, 1), { status: 206, headers: range });
}

/** Answers the whole of `file` with its first half: cut off, or ended as if that were all. */
function half(file: string, cut: boolean): Hub["answer"] {
  return (path, request) => {
    if (!path.endsWith(`/${file}`) || request.headers.has("range")) return undefined;
    const { length } = bytesOf(file);
    const body = new Blob([bytesOf(file).slice(0, length / 2)]).stream();
    return new Response(body, cut ? { headers: { "content-length": `${length}` } } : {});
  };
}

/** Calls `body` with a hub, a scratch folder, and a way to run the program with both. */
const withHub = (
  body: (
    hub: Hub,
    cwd: string,
    run: (args: readonly string[], env?: Record<string, string>) => Promise<RunResult>,
  ) => Promise<void>,
  files?: readonly string[],
) =>
  withScratch(async (cwd) => {
    await using hub = startHub(files);
    const usual = { HF_ENDPOINT: hub.url, HF_HOME: `${cwd}/home` };
    await body(hub, cwd, (args, env) => runParscale(args, { cwd, env: { ...usual, ...env } }));
  });

const cacheOf = (cwd: string) => `${cwd}/home/hub/models--tiny--qwen`;

/** What was resolved, by name of the file. */
const resolved = (log: readonly string[]) =>
  new Set(log.flatMap((line) => line.split("/resolve/")[1]?.split("/").slice(1) ?? []));

function inspected(result: RunResult): void {
  assertEquals([result.code, result.stderr], [0, ""]);
  const { schema, results } = JSON.parse(result.stdout);
  assertEquals([schema, results.streams], ["parscale.inspect/1", 1]);
}

/** Fails unless the run ended with an error as users see it, with these words in it. */
function failed(result: RunResult, code: number, ...words: string[]): void {
  assertEquals([result.code, result.stdout], [code, ""], result.stderr);
  assert(
    /^error: Cannot [^\n]+\n(\nhint: [^\n]+\n(hint: [^\n]+\n)*)?$/.test(result.stderr),
    result.stderr,
  );
  for (const word of words) assertStringIncludes(result.stderr, word);
}

Deno.test("a download fills the standard cache, which then serves without the hub", () =>
  withHub(async (hub, cwd, run) => {
    inspected(await run(INSPECT));
    assertEquals([...resolved(hub.take())].sort(), FILES); // and nothing unwanted
    const cache = cacheOf(cwd);
    assertEquals(await Deno.readTextFile(`${cache}/refs/main`), SHA);
    const snapshot = `${cache}/snapshots/${SHA}`;
    assertEquals([...Deno.readDirSync(snapshot)].map(({ name }) => name).sort(), FILES);
    for (const file of FILES) {
      assertEquals(await Deno.readLink(`${snapshot}/${file}`), `../../blobs/${hash(file)}`);
      assertEquals(await Deno.readFile(`${snapshot}/${file}`), bytesOf(file));
    }
    assertEquals([...Deno.readDirSync(`${cache}/blobs`)].length, FILES.length);

    // The address may end with a slash; with all files there, only names are asked for.
    inspected(await run(INSPECT, { HF_ENDPOINT: `${hub.url}/` }));
    const asked = hub.take();
    assert(asked.length > 0 && asked.every((line) => !/resolve|paths-info/.test(line)), `${asked}`);

    const convert = ["convert", "--model", NAME, "--streams", "2", "--out", "p2", "--json"];
    const [offline, converted, on, down] = await Promise.all([
      run(INSPECT, { HF_HUB_OFFLINE: "1" }),
      run(convert, { HF_HUB_OFFLINE: "1" }),
      run(INSPECT, { HF_HUB_OFFLINE: "ON" }),
      run(INSPECT, { HF_ENDPOINT: "http://127.0.0.1:1" }),
    ]);
    for (const result of [offline, on, down]) inspected(result);
    assertEquals([converted.code, converted.stderr], [0, ""]);
    assertEquals(JSON.parse(converted.stdout).results.streams, 2);
    assert([...Deno.readDirSync(`${cwd}/p2`)].every(({ isFile }) => isFile));
    assertEquals(hub.take(), []);
    hub.answer = () => new Response("", { status: 503 });
    inspected(await run(INSPECT, { HF_HUB_OFFLINE: "0" }));
    assertEquals(hub.take().length, 1);
  }));

Deno.test("a folder of that name wins, without a request", () =>
  withHub(async (hub, cwd, run) => {
    await Deno.mkdir(`${cwd}/tiny`);
    await Deno.symlink(PLAIN_MODEL, `${cwd}/${NAME}`);
    inspected(await run(INSPECT));
    assertEquals(hub.take(), []);
  }));

Deno.test("the token goes to the hub and nowhere else", () =>
  withHub(async (hub, _cwd, run) => {
    inspected(await run(INSPECT, { HF_TOKEN: `${TOKEN}\n` }));
    assertEquals([...hub.tokens.hub], [`Bearer ${TOKEN}`]);
    assertEquals([...hub.tokens.storage], [null]);
    hub.take();
    const odd = await run(PLAIN, { HF_TOKEN: "secret" });
    failed(odd, 4, 'found another beginning, expected "hf_"');
    assert(!odd.stderr.includes("secret"));
    assertEquals(hub.take(), []);
  }));

Deno.test("a hub that refuses, fails or is not there", () =>
  withHub(async (hub, cwd, run) => {
    for (const status of [404, 401, 403]) {
      hub.answer = () => Response.json({ error: "no" }, { status });
      failed(await run(PLAIN), 3, `status ${status} from the hub`, "HF_TOKEN");
    }
    for (const status of [429, 500]) {
      hub.answer = () => new Response("", { status });
      failed(await run(PLAIN), 4, `status ${status}`, "nor an earlier download");
    }
    failed(await run(PLAIN, { HF_ENDPOINT: "http://127.0.0.1:1" }), 4, "HF_ENDPOINT");
    await Deno.writeTextFile(`${cwd}/file`, "");
    hub.answer = () => undefined;
    failed(await run(PLAIN, { HF_HOME: `${cwd}/file` }), 4, "Cannot write", `"${cwd}/file/hub"`);
    assertRefused(
      await run(PLAIN, { HF_HUB_OFFLINE: "1" }),
      4,
      `Cannot download model "${NAME}": found HF_HUB_OFFLINE set and no earlier download, expected one in "${cwd}/home/hub"`,
    );
  }));

Deno.test("half a file is an error, and the next run fetches it anew", async () => {
  for (const [file, cut] of [[WEIGHTS, true], [WEIGHTS, false], ["config.json", true]] as const) {
    await withHub(async (hub, cwd, run) => {
      hub.answer = half(file, cut);
      const found = cut ? "neither a working connection" : `${bytesOf(file).length / 2} bytes of`;
      failed(await run(PLAIN), 4, `Cannot download model "${NAME}": found ${found}`);
      failed(await run(PLAIN, { HF_HUB_OFFLINE: "1" }), 4);
      hub.answer = () => undefined;
      hub.take();
      inspected(await run(INSPECT));
      assert(resolved(hub.take()).has(file));
      assertEquals(await Deno.readFile(`${cacheOf(cwd)}/snapshots/${SHA}/${file}`), bytesOf(file));
    });
  }
});

Deno.test("a repository without safetensors is refused before anything is fetched", () =>
  withHub(async (hub, _cwd, run) => {
    failed(await run(PLAIN), 3, "found no weights in the repository, expected *.safetensors");
    assertEquals([...resolved(hub.take())], []);
  }, ["config.json", ...UNWANTED]));

/** Everything below a folder. */
function allPaths(folder: string): string[] {
  return [...Deno.readDirSync(folder)].flatMap(({ name, isDirectory }) => {
    const path = `${folder}/${name}`;
    return isDirectory ? allPaths(path) : [path];
  }).sort();
}

Deno.test("a hub cannot choose where files go: hashes, paths and commits are checked", async () => {
  const page = (change: (entry: ReturnType<typeof entryOf>) => unknown): Hub["answer"] => (path) =>
    path.includes("/tree/") ? Response.json(FILES.map(entryOf).map(change)) : undefined;
  const config = (fields: Record<string, unknown>) =>
    page((entry) => entry.path === "config.json" ? { ...entry, ...fields } : entry);
  const weights = (oid: unknown) =>
    page((entry) => entry.path === WEIGHTS ? { ...entry, lfs: { ...entry.lfs, oid } } : entry);
  const named = (sha: unknown): Hub["answer"] => (path) =>
    path.includes("/revision/") ? Response.json({ _id: "1", id: NAME, sha }) : undefined;
  const cases: [Hub["answer"], string][] = [
    ...["../../../../../escaped", "/tmp/escaped", "a".repeat(39), "A".repeat(40), "", 7, null].map(
      (oid): [Hub["answer"], string] => [config({ oid }), "expected 40 hexadecimal digits"],
    ),
    ...["../../../escaped", hash("config.json"), `${"a".repeat(63)}/`].map(
      (oid): [Hub["answer"], string] => [weights(oid), "expected 64 hexadecimal digits"],
    ),
    ...["../../escaped.json", "/escaped.json", "a/../../b.json", "a//b.json", "..\\b.json"].map(
      (path): [Hub["answer"], string] => [config({ path }), "expected a path inside"],
    ),
    [config({ path: "a\u001b[2J.json" }), String.raw`the path "a\u001b[2J.json", expected`],
    [config({ path: "a\0.json" }), "expected a path inside"],
    ...["../../../escaped", "main", SHA.toUpperCase(), null].map(
      (sha): [Hub["answer"], string] => [named(sha), "expected 40 hexadecimal digits"],
    ),
  ];
  await withHub(async (hub, cwd, run) => {
    for (const [answer, reason] of cases) {
      hub.answer = answer;
      failed(await run(PLAIN), 3, `Cannot download model "${NAME}": the hub names the`, reason);
      assertEquals(allPaths(cwd), [], "nothing was written");
    }
  });
});

Deno.test("a flipped byte is found before the file gets its name", async () => {
  for (const file of [WEIGHTS, "config.json"]) {
    await withHub(async (hub, cwd, run) => {
      hub.answer = (path) => {
        if (!path.endsWith(`/${file}`)) return undefined;
        if (file === WEIGHTS && path.includes("/resolve/")) return undefined;
        const bytes = bytesOf(file);
        bytes[bytes.length >> 1]! ^= 1;
        return new Response(bytes);
      };
      failed(await run(PLAIN), 3, `"${file}" has the hash `, `expected ${hash(file)}`);
      const blobs = allPaths(`${cacheOf(cwd)}/blobs`);
      assert(blobs.every((path) => !path.includes(hash(file))), `${blobs}`);
      hub.answer = () => undefined;
      inspected(await run(INSPECT));
    });
  }
});

Deno.test("an answer that never ends is cut off at the size of the file", () =>
  withHub(async (hub, cwd, run) => {
    hub.answer = (path) => {
      if (!path.endsWith(WEIGHTS) || path.includes("/resolve/")) return undefined;
      const endless = new ReadableStream({
        pull: (controller) => controller.enqueue(new Uint8Array(1 << 16)),
      });
      return new Response(endless);
    };
    const { length } = bytesOf(WEIGHTS);
    failed(await run(PLAIN), 4, `found more than ${length} bytes of "${WEIGHTS}"`);
    assert(!allPaths(cwd).some((path) => path.includes(hash(WEIGHTS))));
  }));
