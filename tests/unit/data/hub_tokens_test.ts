/** Data on a stand-in hub: what is fetched, what is kept, and what an interrupted run fetches again. */
import {
  assert,
  assertEquals,
  assertRejects,
  assertStringIncludes,
  assertThrows,
} from "@std/assert";
import { DataError, ParscaleError, UsageError } from "../../../core/base/errors.ts";
import { findHubData, recordedHubData } from "../../../core/data/hub_data.ts";
import { type HubTokensOptions, openHubTokens } from "../../../core/data/hub_tokens.ts";
import { openTokens } from "../../../core/data/tokenize.ts";
import type { TokenStore } from "../../../core/data/token_store.ts";
import { HubClient } from "../../../core/hub/client.ts";
import { RemoteFile } from "../../../core/hub/remote_file.ts";
import { serveBytes, type StandInHub, startHub } from "../../cli/stand_in_hub.ts";
import { manyGroups } from "../../parquet_groups.ts";
import { withScratch } from "../../scratch.ts";
import { bytesOf, contentOf, DATA, gzip, jsonLines, TOKENIZER, zstd } from "./testing.ts";

const COMMIT = "0123456789abcdef0123456789abcdef01234567", NAME = "owner/corpus";
const TABLE = Deno.readFileSync(`${DATA}/text.parquet`);
const CODE = jsonLines([
  { content: "print(1)", metadata: { language: "Python" } },
  { content: "int x;", metadata: { language: "C" } },
  { content: "pass", metadata: { language: "Python" } },
]);

const TOKENS = { tokenizerFolder: TOKENIZER, endToken: 1 };

const FILES = new Map<string, Uint8Array>([
  ["data/b.parquet", TABLE],
  ["data/a.jsonl.gz", await gzip(jsonLines([{ text: "one two" }, { text: "three" }]))],
  ["data/deep/c.jsonl.zst", zstd(jsonLines([{ text: "four" }]))],
  ["code.json", bytesOf(CODE)],
  ["README.md", bytesOf("a corpus")],
]);

interface Place {
  readonly hub: StandInHub;
  readonly folder: string;
  readonly client: HubClient;
  /** Tokens of a glob, read as they are asked for. */
  open(
    glob: string,
    options?: Partial<HubTokensOptions>,
  ): Promise<ReturnType<typeof openHubTokens>>;
  /** Stores of a glob. */
  stores(glob: string, options?: Partial<HubTokensOptions>): Promise<TokenStore[]>;
}

const withHub = (work: (place: Place) => Promise<void>, files = FILES) =>
  withScratch(async (folder) => {
    const isLarge = (path: string) => path !== "code.json";
    await using hub = startHub([{ kind: "dataset", name: NAME, commit: COMMIT, files, isLarge }]);
    const access = { endpoint: hub.url, token: undefined, cache: "" };
    const client = new HubClient(access, undefined, { delaysMs: [1, 1], silenceMs: 5000 });
    const open = async (glob: string, options: Partial<HubTokensOptions> = {}) => {
      const data = await findHubData(client, `hf://datasets/${NAME}/${glob}`);
      const cache = { cacheFolder: `${folder}/cache`, selection: { where: [] } };
      return openHubTokens(client, data, { ...TOKENS, ...cache, ...options });
    };
    const stores = async (glob: string, options: Partial<HubTokensOptions> = {}) => {
      const tokens = await open(glob, options);
      return (await Array.fromAsync(tokens)).map(({ store }) => store);
    };
    await work({ hub, folder, client, open, stores });
  });

const close = (stores: readonly TokenStore[]) => stores.forEach((store) => store.close());

/** Requests for content. */
const fetched = (hub: StandInHub) => hub.take().filter((line) => line.includes("/resolve/"));

/** Tokens of the same bytes in a local file. */
async function local(folder: string, name: string, bytes: Uint8Array): Promise<number[][]> {
  Deno.writeFileSync(`${folder}/${name}`, bytes);
  using store = await openTokens(`${folder}/${name}`, {
    ...TOKENS,
    cacheFolder: `${folder}/local`,
  });
  return contentOf(store);
}

Deno.test("files of a glob become the tokens of local files, in byte order of their paths", () =>
  withHub(async ({ hub, folder, stores }) => {
    const found = await stores("data/**");
    const expected = [
      ...await local(folder, "a.jsonl.gz", FILES.get("data/a.jsonl.gz")!),
      ...await local(folder, "b.parquet", TABLE),
      ...await local(folder, "c.jsonl.zst", FILES.get("data/deep/c.jsonl.zst")!),
    ];
    assertEquals(found.flatMap(contentOf), expected);
    close(found);
    assert(fetched(hub).length > 0);
    const again = await stores("data/**");
    assertEquals(again.flatMap(contentOf), expected);
    close(again);
    assertEquals(fetched(hub), []);
    const kept = [...Deno.readDirSync(`${folder}/cache`)].map(({ name }) => name);
    assert(kept.every((name) => /^[0-9a-f]{64}(\.json)?$/.test(name)), kept.join());
  }));

Deno.test("of a table only the text column is fetched, and an interrupted read continues at its row group", () =>
  withHub(async ({ hub, stores, folder }) => {
    // The second row group has its text at bytes 329 to 438.
    const refuse = (range: string): StandInHub["answer"] => (path, request) =>
      path.includes("b.parquet") && request.headers.get("range") === range
        ? new Response("", { status: 404 })
        : undefined;
    hub.answer = refuse("bytes=329-437");
    await assertRejects(() => stores("data/b.parquet", { unitBytes: 1 }), ParscaleError);
    hub.take();
    hub.answer = refuse("bytes=116-230");
    const found = await stores("data/b.parquet", { unitBytes: 1 });
    assertEquals(found.length, 2);
    assertEquals(found.flatMap(contentOf), await local(folder, "b.parquet", TABLE));
    close(found);
    const ranges = fetched(hub).map((line) => line.split(" ")[2]);
    // The footer of so small a table is all of it; of the rows only the second group is asked for.
    assertEquals(ranges, [undefined, "bytes=329-437"]);
  }));

Deno.test("small row groups that lie together are fetched by one request", () => {
  const table = manyGroups(300, "one");
  return withHub(async ({ hub, stores, folder }) => {
    const found = await stores("many.parquet");
    assertEquals(found.flatMap(contentOf), await local(folder, "many.parquet", table));
    close(found);
    assert(fetched(hub).length <= 3);
  }, new Map([["many.parquet", table]]));
});

Deno.test("--text-column and --where choose the text and the rows", () =>
  withHub(async ({ stores, folder }) => {
    const where = [{ column: "metadata.language", value: "Python" }];
    const found = await stores("code.json", { selection: { textColumn: "content", where } });
    const rows = jsonLines([{ text: "print(1)" }, { text: "pass" }]);
    assertEquals(found.flatMap(contentOf), await local(folder, "python.jsonl", bytesOf(rows)));
    close(found);
    const absent = [
      ["code.json", "content", { column: "metadata.language", value: "Go" }],
      ["data/b.parquet", "text", { column: "id", value: "absent" }],
    ] as const;
    for (const [file, textColumn, condition] of absent) {
      const none = await stores(file, { selection: { textColumn, where: [condition] } });
      assertEquals(none.map(({ documents }) => documents), [0]);
      close(none);
    }
    await assertRejects(() => stores("code.json"), DataError, '"content"');
  }));

Deno.test("content with another hash than the listing is refused and leaves no tokens", () =>
  withHub(async ({ hub, stores, folder }) => {
    const other = bytesOf(CODE.replace("pass", "fail"));
    hub.answer = (path, request) =>
      path.endsWith("/code.json") && path.includes("/resolve/")
        ? serveBytes(other, request)
        : undefined;
    const selection = { textColumn: "content", where: [] };
    await assertRejects(() => stores("code.json", { selection }), DataError, "has the hash");
    assertEquals([...Deno.readDirSync(`${folder}/cache`)], []);
  }));

Deno.test("reads continue after a broken connection and survive a server without ranges", () =>
  withHub(async ({ hub, client }) => {
    const data = await findHubData(client, `hf://datasets/${NAME}/data/b.parquet`);
    const remote = new RemoteFile(client, { kind: "dataset", name: NAME }, COMMIT, data.files[0]!);
    let broken = 0;
    hub.answer = (path, request) => {
      if (!path.includes("parquet") || path.includes("/resolve/") || path.includes("/api/")) {
        return undefined;
      }
      const range = request.headers.get("range") ?? "";
      if (range === "bytes=100-999" && broken++ === 0) {
        const headers = { "content-range": `bytes 100-999/${TABLE.length}` };
        return new Response(TABLE.slice(100, 300), { status: 206, headers });
      }
      return undefined;
    };
    assertEquals(await remote.read(100, 1000), TABLE.slice(100, 1000));
    assert(hub.take().some((line) => line.endsWith("bytes=300-999")));
    hub.answer = (path) => path.includes("/resolve/") ? new Response(TABLE.slice()) : undefined;
    assertEquals(await remote.read(100, 1000), TABLE.slice(100, 1000));
    const pieces = await Array.fromAsync(remote.chunks(500));
    assertEquals(new Uint8Array(await new Blob(pieces.map((p) => p.slice())).arrayBuffer()), TABLE);
  }));

Deno.test("globs without files, other formats and bad names of data are errors of the user", () =>
  withHub(async ({ client }) => {
    const cases: [string, string][] = [
      [`hf://datasets/${NAME}/nothing/*.parquet`, "no file matches"],
      [`hf://datasets/${NAME}/*`, '"README.md"'],
      [`hf://datasets/${NAME}@gone/*.json`, 'no revision "gone"'],
      ["hf://datasets/owner/other/*.json", 'no dataset "owner/other"'],
      ["hf://owner/corpus/a.json", "does not name files"],
      [`hf://datasets/${NAME}`, "does not name files"],
    ];
    for (const [spec, expected] of cases) {
      await assertRejects(() => findHubData(client, spec), ParscaleError, expected);
    }
  }));

Deno.test("revisions in names of data are read as by HfFileSystem", () =>
  withHub(async ({ hub, client }) => {
    const asked: string[] = [];
    hub.answer = (path) => {
      const [, revision] = path.split("/revision/");
      if (revision === undefined) return undefined;
      asked.push(revision);
      return Response.json({ sha: COMMIT });
    };
    const revisions = [
      ["refs/convert/parquet", "refs%2Fconvert%2Fparquet"],
      ["refs/convert/duckdb.v1", "refs%2Fconvert%2Fduckdb.v1"],
      ["refs/pr/12", "refs%2Fpr%2F12"],
      ["refs%2Fconvert%2Fparquet", "refs%2Fconvert%2Fparquet"],
      ["v1", "v1"],
      ["feature%2Fx", "feature%2Fx"],
    ];
    for (const [written, revision] of revisions) {
      const spec = `hf://datasets/${NAME}@${written}/data/b.parquet`;
      assertEquals((await findHubData(client, spec)).files.map(({ path }) => path), [
        "data/b.parquet",
      ]);
      assertEquals(asked.splice(0), [revision]);
    }
    for (const spec of [`hf://datasets/${NAME}@refs/pr/1`, `hf://datasets/${NAME}@/a.json`]) {
      await assertRejects(() => findHubData(client, spec), UsageError, "does not name files");
    }
    hub.answer = () => undefined;
    const cut = `hf://datasets/${NAME}@feature/x/data/b.parquet`;
    const { hints } = await assertRejects(() => findHubData(client, cut), ParscaleError);
    assertStringIncludes(hints[0]!, "@feature%2Fx");
  }));

Deno.test("a recorded commit stands, and a recorded path outside the repository is refused", () => {
  const spec = `hf://datasets/${NAME}/*.json`;
  const file = { path: "code.json", size: 3, oid: "a".repeat(40), check: "git" };
  const record = { spec, repository: NAME, commit: COMMIT, files: [file] };
  assertEquals(recordedHubData(record, spec)?.commit, COMMIT);
  assertEquals(recordedHubData(record, `${spec}l`), undefined);
  const bad = { ...record, files: [{ ...file, path: "../code.json" }] };
  assertThrows(() => recordedHubData(bad, spec), DataError, "gives the path");
});

Deno.test("the first units of two more files are fetched while one is tokenized", () => {
  const line = (text: string) => bytesOf(jsonLines([{ text }]));
  const files = new Map<string, Uint8Array>([
    ["0.jsonl", line("one")],
    ["1.parquet", TABLE],
    ["2.jsonl", line("three")],
    ["3.jsonl", line("four")],
  ]);
  return withHub(async ({ hub, open }) => {
    const tokens = await open("*");
    const names = () =>
      [...new Set(fetched(hub).map((line) => /[^/]+(?= |$)/.exec(line.split(" ")[1]!)![0]))].sort();
    // 404 for the file after the next two is seen only where that file is read.
    hub.answer = (path) =>
      path.endsWith("3.jsonl") && path.includes("/resolve/")
        ? new Response("", { status: 404, headers: { "x-error-code": "EntryNotFound" } })
        : undefined;
    (await tokens.next()).value!.store.close();
    await new Promise((resolve) => setTimeout(resolve, 200));
    assertEquals(names(), ["0.jsonl", "1.parquet", "2.jsonl"]);
    for (const file of ["1.parquet", "2.jsonl"]) {
      const { file: { path }, store } = (await tokens.next()).value!;
      store.close();
      assertEquals(path, file);
    }
    await assertRejects(() => tokens.next(), DataError, "is gone at");
  }, files);
});

Deno.test("a run that has enough tokens leaves no request behind", () =>
  withHub(async ({ open }) => {
    for await (const { store } of await open("data/**")) {
      store.close();
      break; // the test runner fails on requests and workers that continue
    }
  }));
