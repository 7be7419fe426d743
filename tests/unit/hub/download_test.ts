/** Transfers from the hub that go wrong: waits, silence, ranges, parts, foreign links. */
import { assert, assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { EnvironmentError, ParscaleError } from "../../../core/base/errors.ts";
import { accountHome } from "../../../core/base/platform/paths.ts";
import { type HubAccess, hubAccess } from "../../../core/hub/access.ts";
import { askedWait, HubClient, NetworkError, StatusError } from "../../../core/hub/client.ts";
import { downloadFiles } from "../../../core/hub/download.ts";
import { findCommit, listFiles } from "../../../core/hub/listing.ts";
import { resolveModel } from "../../../core/hub/model.ts";
import { parseName } from "../../../core/hub/repository.ts";
import { environment } from "../../replaced.ts";
import { withScratch } from "../../scratch.ts";
import { allPaths, oidOf, type StandInHub, startHub } from "../../cli/stand_in_hub.ts";

const COMMIT = "0123456789abcdef0123456789abcdef01234567";
const REPOSITORY = { kind: "dataset", name: "some/rows" } as const;
const FILE = "data/rows.bin";

/** Bytes that differ everywhere, so that a part in the wrong place is noticed. */
const CONTENT = new Uint8Array(300_000).map((_, i) => (i * 2654435761) >>> 13);

interface Scene {
  readonly hub: StandInHub;
  readonly client: HubClient;
  readonly cache: string;
  /** Downloads the file and returns what arrived. */
  fetch(): Promise<Uint8Array>;
}

const withScene = (
  body: (scene: Scene) => Promise<void>,
  { content = CONTENT, silenceMs = 10_000 } = {},
) =>
  withScratch(async (cache) => {
    await using hub = startHub([
      { ...REPOSITORY, commit: COMMIT, files: new Map([[FILE, content]]), isLarge: () => true },
    ]);
    const access = { endpoint: hub.url, token: "hf_secret", cache };
    const client = new HubClient(access, undefined, { delaysMs: [1, 1, 1, 1], silenceMs });
    const fetch = async () => {
      const files = await listFiles(client, REPOSITORY, COMMIT);
      const folder = await downloadFiles(client, REPOSITORY, COMMIT, files);
      return await Deno.readFile(`${folder}/${FILE}`);
    };
    await body({ hub, client, cache, fetch });
    assertEquals([...hub.tokens.storage].filter((token) => token !== null), [], "no token leaks");
  });

const isContent = (path: string) => path.startsWith("/0/");

Deno.test("a server's own wait wins over ours", () => {
  const wait = (headers: Record<string, string>) => askedWait(new Headers(headers));
  assertEquals(wait({ ratelimit: '"resolvers";r=0;t=55', "retry-after": "7" }), 55_000);
  assertEquals(wait({ ratelimit: '"api";r=12;t=55' }), undefined);
  assertEquals(wait({ "retry-after": "7" }), 7000);
  assertEquals(wait({ "retry-after": new Date(0).toUTCString() }), 0);
  assertEquals(wait({ "retry-after": "soon" }), undefined);
});

Deno.test("a wait that a header asks for is kept", () =>
  withScene(async ({ hub, fetch }) => {
    const times: number[] = [];
    hub.answer = (path) => {
      if (!isContent(path)) return undefined;
      times.push(Date.now());
      const headers = { ratelimit: '"resolvers";r=0;t=1' };
      return times.length > 1 ? undefined : new Response("", { status: 429, headers });
    };
    assertEquals(await fetch(), CONTENT);
    assert(times[1]! - times[0]! >= 1000, `${times[1]! - times[0]!} ms`);
  }));

Deno.test("a wait of more than ten minutes is an error at once", () =>
  withScene(async ({ hub, client }) => {
    hub.answer = () => new Response("", { status: 429, headers: { "retry-after": "3600" } });
    await assertRejects(() => findCommit(client, REPOSITORY, "main"), StatusError, "status 429");
    assertEquals(hub.take().length, 1);
  }));

Deno.test("503 twice, a silent server and broken transfers are tried again, from where they ended", () =>
  withScene(async ({ hub, fetch, cache }) => {
    const broken: Record<string, () => Response> = {
      "503": () => new Response("", { status: 503 }),
      silent: () =>
        new Response(new ReadableStream({ start: (c) => c.enqueue(CONTENT.slice(0, 9)) })),
      reset: () =>
        new Response(
          new ReadableStream({
            start(controller) {
              controller.enqueue(CONTENT.slice(0, 1000));
              setTimeout(() => controller.error(new Error("reset")), 20);
            },
          }),
        ),
      cut: () =>
        new Response(new Blob([CONTENT.slice(0, 1000)]).stream(), {
          headers: { "content-length": `${CONTENT.length}` },
        }),
      "ended as if that were all": () => new Response(CONTENT.slice(0, 1000)),
    };
    for (const [name, respond] of Object.entries(broken)) {
      let failures = 0;
      hub.answer = (path) => isContent(path) && failures++ < 2 ? respond() : undefined;
      assertEquals(await fetch(), CONTENT, name);
      assert(failures >= 2, name);
      const isContinued = hub.take().some((line) => line.endsWith(`-${CONTENT.length - 1}`));
      assertEquals(isContinued, name !== "503", name);
      for (const path of allPaths(cache)) await Deno.remove(path);
    }
  }, { silenceMs: 300 }));

Deno.test("a hub that is silent for good is named", () =>
  withScene(async ({ hub, client }) => {
    const late = Promise.withResolvers<void>();
    hub.answer = () => late.promise.then(() => new Response(""));
    const finding = () => findCommit(client, REPOSITORY, "main", 2);
    await assertRejects(finding, NetworkError, "silent for 0.3 s");
    late.resolve();
  }, { silenceMs: 300 }));

Deno.test("an expired link of the storage is resolved again", () =>
  withScene(async ({ hub, fetch }) => {
    let refusals = 0;
    hub.answer = (path) =>
      isContent(path) && refusals++ === 0 ? new Response("", { status: 403 }) : undefined;
    assertEquals(await fetch(), CONTENT);
    assertEquals(hub.take().filter((line) => line.includes("/resolve/")).length, 2);
  }));

Deno.test("a storage that ignores ranges, refuses one or sends another is read from the start", () =>
  withScene(async ({ hub, fetch, cache }) => {
    const headers = { "content-range": `bytes 0-${CONTENT.length - 1}/${CONTENT.length}` };
    const responses = [
      () => new Response(CONTENT),
      () => new Response("", { status: 416 }),
      () => new Response(CONTENT, { status: 206, headers }),
    ];
    for (const respond of responses) {
      let count = 0;
      hub.answer = (path, request) => {
        if (!isContent(path)) return undefined;
        if (count++ === 0) return new Response(CONTENT.slice(0, 5000)); // ends early
        return request.headers.has("range") ? respond() : undefined;
      };
      assertEquals(await fetch(), CONTENT);
      for (const path of allPaths(cache)) await Deno.remove(path);
    }
  }));

Deno.test("a partial file with wrong bytes is fetched anew", () =>
  withScene(async ({ hub, fetch, cache }) => {
    const oid = oidOf(CONTENT, true);
    const blobs = `${cache}/datasets--some--rows/blobs`;
    await Deno.mkdir(blobs, { recursive: true });
    await Deno.writeFile(`${blobs}/${oid}.parscale-partial`, new Uint8Array(200_000));
    assertEquals(await fetch(), CONTENT);
    const [continued, anew] = hub.take().filter((line) => line.startsWith("GET /0/"));
    assertStringIncludes(continued!, `bytes=200000-${CONTENT.length - 1}`);
    assert(!anew!.includes("bytes="));
  }));

Deno.test("a content of the wrong size is fetched anew", () =>
  withScene(async ({ fetch, cache }) => {
    const blobs = `${cache}/datasets--some--rows/blobs`;
    await Deno.mkdir(blobs, { recursive: true });
    await Deno.writeFile(`${blobs}/${oidOf(CONTENT, true)}`, CONTENT.slice(0, 1000));
    assertEquals(await fetch(), CONTENT);
  }));

/** Asks a hub at an address through a client that waits twice; returns the hosts named meanwhile. */
async function named(endpoint: string, ask: (client: HubClient) => Promise<unknown>) {
  const waiting: string[] = [], access = { endpoint, token: undefined, cache: "" };
  const patience = { delaysMs: [1000, 1] };
  const client = new HubClient(access, undefined, patience, (host) => waiting.push(host));
  await assertRejects(() => ask(client));
  return waiting;
}

Deno.test("a host that does not answer is named once, while the client waits, and not only the hub", async () => {
  const none = "http://127.0.0.1:9",
    listing = (client: HubClient) => listFiles(client, REPOSITORY, COMMIT);
  const file = (client: HubClient) => client.retry(() => client.get(`${none}/file`));
  assertEquals(await named(none, listing), ["127.0.0.1:9"]);
  assertEquals(await named("https://hub.test", file), ["127.0.0.1:9"]);
});

Deno.test("a listing of 2,500 files is read to its end", async () => {
  const names = Array.from({ length: 2500 }, (_, i) => `data/${String(i).padStart(4, "0")}.txt`);
  const files = new Map(names.map((name) => [name, new Uint8Array(1)]));
  await using hub = startHub([{ ...REPOSITORY, commit: COMMIT, files, isLarge: () => false }]);
  const access = { endpoint: hub.url, token: "hf_a", cache: "/nowhere" };
  const client = new HubClient(access);
  const listed = await listFiles(client, REPOSITORY, COMMIT);
  assertEquals(listed.map(({ path }) => path), names);
  assertEquals(hub.take().length, 3);
});

Deno.test("a listing whose next page is named at the origin of a mirror is read at the mirror", async () => {
  const files = new Map(["a", "b", "c"].map((name) => [name, new Uint8Array(1)]));
  const served = { ...REPOSITORY, commit: COMMIT, files, isLarge: () => false };
  await using origin = startHub([served]);
  origin.pageSize = 1;
  for (const prefix of ["", "/hf"]) {
    await using mirror = startHub([]);
    mirror.answer = async (path, request) => {
      assert(path.startsWith(prefix));
      const { search } = new URL(request.url);
      const { status, headers, body } = await fetch(
        origin.url + path.slice(prefix.length) + search,
      );
      return new Response(body, { status, headers });
    };
    const access = { endpoint: mirror.url + prefix, token: "hf_a", cache: "/nowhere" };
    const listed = await listFiles(new HubClient(access), REPOSITORY, COMMIT);
    assertEquals(listed.map(({ path }) => path), [...files.keys()]);
    assertEquals([...origin.tokens.hub, ...mirror.tokens.hub], [null, "Bearer hf_a"]);
  }
});

Deno.test("names on the hub have an owner, a name and perhaps a revision", () => {
  assertEquals(parseName("a/b"), { name: "a/b", revision: "main" });
  for (const revision of ["v1", "refs/pr/1", "feature/x"]) {
    assertEquals(parseName(`a/b.c@${revision}`), { name: "a/b.c", revision });
  }
  const branch = { name: "a/b", revision: "refs/convert/parquet" };
  assertEquals(parseName("a/b@refs%2Fconvert%2Fparquet"), branch);
  for (const text of ["a", "a/b/c", "./a/b", "../a", "a/..", "a/b@", "a/b@../c", "a/b@%zz", ""]) {
    assertEquals(parseName(text), undefined, text);
  }
  const windows = ["C:\\models\\qwen", "C:/qwen", "models\\qwen", "..\\qwen", "\\\\host\\share"];
  for (const path of windows) assertEquals(parseName(path), undefined, path);
});

Deno.test("the environment is read as by huggingface_hub 2.4.0", async () => {
  const root = accountHome("root");
  const rows: [env: Record<string, string>, expected: Partial<HubAccess>][] = [
    [{}, { cache: "/u/.cache/huggingface/hub", token: undefined, offline: undefined }],
    [{ HF_HOME: "~/h" }, { cache: "/u/h/hub" }],
    [{ HF_HOME: "~", HOME: "/u/" }, { cache: "/u/hub" }],
    [{ HF_HOME: "~root/h" }, { cache: `${root}/h/hub` }],
    [{ HF_HOME: "$HOME/h" }, { cache: "/u/h/hub" }],
    [{ HF_HUB_CACHE: "${HOME}/c" }, { cache: "/u/c" }],
    [{ HF_HUB_CACHE: "$A_1-y/${A_1}z", A_1: "/x" }, { cache: "/x-y//xz" }],
    [{ HF_HOME: "$A/h", A: "~/in" }, { cache: "/u/in/h/hub" }],
    [{ HF_HOME: "a/~/$NONE/${NONE}/$HOMEX/${}/a$" }, {
      cache: "a/~/$NONE/${NONE}/$HOMEX/${}/a$/hub",
    }],
    [{ HUGGINGFACE_HUB_CACHE: "~/old" }, { cache: "/u/old" }],
    [{ HUGGINGFACE_HUB_CACHE: "~/old", HF_HUB_CACHE: "/new" }, { cache: "/new" }],
    [{ XDG_CACHE_HOME: "~/x" }, { cache: "/u/x/huggingface/hub" }],
    [{ XDG_CACHE_HOME: "rel" }, { cache: "/u/.cache/huggingface/hub" }], // but for XDG's own rule
    [{ HF_HUB_OFFLINE: "on" }, { offline: "HF_HUB_OFFLINE" }],
    [{ HF_HUB_OFFLINE: "0", TRANSFORMERS_OFFLINE: "1" }, { offline: undefined }],
    [{ HF_HUB_OFFLINE: "", TRANSFORMERS_OFFLINE: "Yes" }, { offline: "TRANSFORMERS_OFFLINE" }],
    [{ TRANSFORMERS_OFFLINE: "y" }, { offline: undefined }],
    [{ HF_TOKEN: "hf_e", HUGGING_FACE_HUB_TOKEN: "hf_o" }, { token: "hf_e" }],
    [{ HUGGING_FACE_HUB_TOKEN: "hf_o" }, { token: "hf_o" }],
    ...["1", "on", "YES", "True"].map((value): typeof rows[0] => [
      { HF_TOKEN: "hf_e", HF_HUB_DISABLE_IMPLICIT_TOKEN: value },
      { token: undefined },
    ]),
    [{ HF_TOKEN: "hf_e", HF_HUB_DISABLE_IMPLICIT_TOKEN: "0" }, { token: "hf_e" }],
  ];
  for (const [variables, expected] of rows) {
    const env = { HOME: "/u", USERPROFILE: "/u", ...variables } as Record<string, string>;
    const access = await hubAccess((name) => env[name]);
    assertEquals({ ...access, ...expected }, access, JSON.stringify(variables));
  }
  const unknown = { HF_HOME: "~no-such-user/h" } as Record<string, string>;
  await assertRejects(
    () => hubAccess((name) => unknown[name]),
    EnvironmentError,
    'HF_HOME begins with "~no-such-user"',
  );
});

Deno.test("a file of tokens is read at the expanded path, and not at all where tokens are forbidden", () =>
  withScratch(async (HOME) => {
    await Deno.writeTextFile(`${HOME}/t`, "hf_file\n");
    const env: Record<string, string> = { HOME, USERPROFILE: HOME, HF_TOKEN_PATH: "~/t" };
    assertEquals((await hubAccess((name) => env[name])).token, "hf_file");
    env.HF_HUB_DISABLE_IMPLICIT_TOKEN = "1";
    assertEquals((await hubAccess((name) => env[name])).token, undefined);
  }));

Deno.test("a model that is neither a folder nor reachable names both", () =>
  withScratch(async (cache) => {
    using _ = environment({ HF_ENDPOINT: "http://127.0.0.1:1", HF_HUB_CACHE: cache });
    const resolving = () => resolveModel("a/b", { patience: { delaysMs: [1], silenceMs: 500 } });
    const words = 'no such folder: "a/b", and the hub cannot be reached';
    assertEquals((await assertRejects(resolving, ParscaleError, words)).kind, "environment");
  }));
