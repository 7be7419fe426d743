/** Models named as `organisation/name`, downloaded from a stand-in hub on this machine. */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { assertFailed, names, PLAIN_MODEL } from "./models.ts";
import { type Line, runParscale, runProcess, type RunResult } from "./run.ts";
import { withScratch } from "../scratch.ts";
import {
  allPaths,
  entryOf as entryIn,
  oidOf,
  type StandInHub,
  type StandInRepository,
  startHub,
} from "./stand_in_hub.ts";
import { linkSync } from "../links.ts";

const NAME = "tiny/qwen";
const SHA = "0123456789abcdef0123456789abcdef01234567";
const WEIGHTS = "model.safetensors";
const FILES = names(PLAIN_MODEL);
const PLAIN = `inspect --model ${NAME}`;
const INSPECT = `${PLAIN} --json`;

/** Other files of the listing; none of it is a part of a checkpoint. */
const UNWANTED = ["README.md", "model.gguf", "pytorch_model.bin", "onnx/config.json"]
  .concat("other.safetensors", "old/model.safetensors");

const isLarge = (path: string) => path.endsWith(".safetensors");

const bytesOf = (file: string) =>
  FILES.includes(file)
    ? Deno.readFileSync(`${PLAIN_MODEL}/${file}`)
    : new TextEncoder().encode("not wanted");

const repositoryOf = (files: readonly string[]): StandInRepository => ({
  kind: "model",
  name: NAME,
  commit: SHA,
  files: new Map(files.map((file) => [file, bytesOf(file)])),
  isLarge,
});

const REPOSITORY = repositoryOf([...FILES, ...UNWANTED]);

const hash = (file: string) => oidOf(bytesOf(file), isLarge(file));
const entryOf = (file: string) => entryIn(REPOSITORY, file);

type Run = (line: Line, env?: Record<string, string>) => Promise<RunResult>;

/** Calls `body` with a hub, a scratch folder, and a way to run the program with both. */
const withHub = (
  body: (hub: StandInHub, cwd: string, run: Run) => Promise<void>,
  ...repositories: readonly StandInRepository[]
) =>
  withScratch(async (cwd) => {
    await using hub = startHub(repositories.length > 0 ? repositories : [REPOSITORY]);
    const usual = { HF_ENDPOINT: hub.url, HF_HOME: `${cwd}/home` };
    await body(hub, cwd, (line, env) => runParscale(line, { cwd, env: { ...usual, ...env } }));
  });

const cacheOf = (cwd: string) => `${cwd}/home/hub/models--tiny--qwen`;

/** Requests for resolved files, by name. */
const resolved = (log: readonly string[]) =>
  new Set(log.flatMap((line) => line.split("/resolve/")[1]?.split("/").slice(1) ?? []));

function inspected(result: RunResult): void {
  assertEquals([result.code, result.stderr], [0, ""]);
  const { schema, results } = JSON.parse(result.stdout);
  assertEquals([schema, results.streams], ["parscale.inspect/2", 1]);
}

Deno.test("a download fills the standard cache, which then serves without the hub", () =>
  withHub(async (hub, cwd, run) => {
    inspected(await run(INSPECT));
    assertEquals([...resolved(hub.take())].sort(), FILES); // and nothing unwanted
    const cache = cacheOf(cwd);
    assertEquals(await Deno.readTextFile(`${cache}/refs/main`), SHA);
    const snapshot = `${cache}/snapshots/${SHA}`;
    assertEquals(names(snapshot), FILES);
    for (const file of FILES) {
      assertEquals(await Deno.readLink(`${snapshot}/${file}`), `../../blobs/${hash(file)}`);
      assertEquals(await Deno.readFile(`${snapshot}/${file}`), bytesOf(file));
    }
    assertEquals(names(`${cache}/blobs`).length, FILES.length);

    // The address may end with a slash; with all files there, only names are asked for.
    inspected(await run(INSPECT, { HF_ENDPOINT: `${hub.url}/` }));
    const asked = hub.take();
    assert(asked.length > 0 && asked.every((line) => !/resolve|paths-info/.test(line)), `${asked}`);

    for (const HF_HUB_OFFLINE of ["1", "ON"]) inspected(await run(INSPECT, { HF_HUB_OFFLINE }));
    const convert = `convert --model ${NAME} --streams 2 --out p2 --json`;
    const converted = await run(convert, { HF_HUB_OFFLINE: "1" });
    const down = await run(INSPECT, { HF_ENDPOINT: "http://127.0.0.1:1" });
    assertStringIncludes(down.stderr, `warning: the hub cannot be asked for "${NAME}"`);
    inspected({ ...down, stderr: "" });
    assertEquals([converted.code, converted.stderr], [0, ""]);
    assertEquals(JSON.parse(converted.stdout).results.streams, 2);
    assert([...Deno.readDirSync(`${cwd}/p2`)].every(({ isFile }) => isFile));
    assertEquals(hub.take(), []);
    hub.answer = () => new Response("", { status: 503 });
    inspected({ ...await run(INSPECT, { HF_HUB_OFFLINE: "0" }), stderr: "" });
    assertEquals(hub.take().length, 1); // with an earlier download there, it is asked once
    // A commit never changes, so nothing is asked.
    inspected(await run(`inspect --model ${NAME}@${SHA} --json`));
    assertEquals(hub.take(), []);
  }));

Deno.test("an adapter of the hub is downloaded with its backbone, which it names with the commit", () => {
  const files = new Map<string, Uint8Array>();
  const adapter = { ...REPOSITORY, name: "tiny/p2", commit: "ab".repeat(20), files };
  return withHub(
    async (hub, cwd, run) => {
      const convert = await run(`convert --model ${NAME} --streams 2 --introduced-only --out p2`);
      assertEquals(convert.code, 0, convert.stderr);
      names(`${cwd}/p2`).forEach((file) => files.set(file, Deno.readFileSync(`${cwd}/p2/${file}`)));
      const config = JSON.parse(Deno.readTextFileSync(`${cwd}/p2/config.json`));
      assertEquals(config.base_model_name_or_path, `${NAME}@${SHA}`);
      hub.take();

      const generate = (model: string, env: Record<string, string> = {}) =>
        run(`generate --model ${model} --prompt a --max-tokens 4`, env);
      const own = await generate(`${NAME} --adapter p2`);
      assertEquals([own.code, (await generate("p2")).stdout], [0, own.stdout], own.stderr);
      hub.take();
      const home = { HF_HOME: `${cwd}/other` };
      const dry = await run("generate --model p2 --prompt a --dry-run", home);
      assertStringIncludes(dry.stdout, `model: ${NAME}@${SHA} on the hub`);
      assertEquals(hub.take(), []);
      const both = await generate("tiny/p2", home);
      assertEquals([both.code, both.stdout], [0, own.stdout], both.stderr);
      const found = resolved(hub.take());
      for (const file of [...FILES, "introduced.safetensors"]) assert(found.has(file), file);
      const cached = await generate("tiny/p2", { ...home, HF_HUB_OFFLINE: "1" });
      assertEquals(cached.stdout, own.stdout);

      const offline = await generate("p2", { HF_HOME: `${cwd}/none`, HF_HUB_OFFLINE: "1" });
      const needs =
        `cannot open the backbone of adapter "p2": no such folder: "${NAME}@${SHA}", and `;
      assertFailed(offline, 4, needs, "--model BACKBONE --adapter p2", "unset HF_HUB_OFFLINE");
    },
    REPOSITORY,
    adapter,
  );
});

Deno.test("a folder of that name wins, without a request", () =>
  withHub(async (hub, cwd, run) => {
    await Deno.mkdir(`${cwd}/tiny`);
    linkSync(PLAIN_MODEL, `${cwd}/${NAME}`);
    inspected(await run(INSPECT));
    assertEquals(hub.take(), []);
  }));

Deno.test("the token goes to the hub and nowhere else; HF_TOKEN, then HF_TOKEN_PATH, then HF_HOME", () =>
  withHub(async (hub, cwd, run) => {
    await Deno.mkdir(`${cwd}/home`);
    await Deno.writeTextFile(`${cwd}/home/token`, "hf_home\n");
    await Deno.writeTextFile(`${cwd}/other`, "hf_path");
    const path = { HF_TOKEN_PATH: `${cwd}/other` };
    inspected(await run(INSPECT));
    inspected(await run(INSPECT, path));
    inspected(await run(INSPECT, { ...path, HF_TOKEN: "hf_secret\n" }));
    // As older tokens and those of other hubs look.
    inspected(await run(INSPECT, { HF_TOKEN: "api_other" }));
    const tokens = ["hf_home", "hf_path", "hf_secret", "api_other"];
    assertEquals([...hub.tokens.hub], tokens.map((token) => `Bearer ${token}`));
    assertEquals([...hub.tokens.storage], [null]);
    hub.take();
    const odd = await run(PLAIN, { HF_TOKEN: "sec ret" });
    assertFailed(odd, 4, "HF_TOKEN has blanks");
    assertEquals([odd.stderr.includes("sec"), hub.take()], [false, []]);
  }));

Deno.test("a hub that refuses, fails or is not there", () =>
  withHub(async (hub, cwd, run) => {
    const headers = (code: string) => ({ "x-error-code": code });
    const refusals = [
      [404, "RepoNotFound", `no such folder: "${NAME}", and the hub has no model "${NAME}"`],
      [401, "RepoNotFound", `the hub has no model "${NAME}"`],
      [403, "GatedRepo", `the model "${NAME}" is gated`],
      [404, "RevisionNotFound", 'has no revision "main"'],
      [403, "", `the hub refuses the model "${NAME}" (status 403)`],
    ] as const;
    for (const [status, code, message] of refusals) {
      hub.answer = () => Response.json({ error: "no" }, { status, headers: headers(code) });
      assertFailed(await run(PLAIN), 3, message);
      assertEquals(hub.take().length, 1, "asked once");
    }
    for (const status of [429, 500]) {
      hub.answer = () => new Response("", { status, headers: { "retry-after": "0" } });
      assertFailed(await run(PLAIN), 4, `status ${status}`, "after 5 tries");
      assertEquals(hub.take().length, 5);
    }
    await Deno.writeTextFile(`${cwd}/file`, "");
    hub.answer = () => undefined;
    const offline = `HF_HUB_OFFLINE is set: no earlier download is in "${cwd}/home/hub"`;
    for (
      const [env, ...words] of [
        [{ HF_HOME: `${cwd}/file` }, "cannot write", `"${cwd}/file/hub"`],
        [{ HF_HUB_OFFLINE: "1" }, offline],
        [{ HF_ENDPOINT: "localhost" }, "HF_ENDPOINT is not a URL"],
      ] as const
    ) assertFailed(await run(PLAIN, env), 4, ...words);
  }));

Deno.test("a repository without safetensors is refused before anything is fetched", () =>
  withHub(async (hub, _cwd, run) => {
    const none = "has no model.safetensors and no model.safetensors.index.json";
    assertFailed(await run(PLAIN), 3, `${none}; it has "model.gguf"`);
    assertEquals([...resolved(hub.take())], []);
  }, repositoryOf(["config.json", "README.md", "model.gguf", "pytorch_model.bin"])));

Deno.test("a repository with an adapter of PEFT is named as such", () =>
  withHub(async (_hub, _cwd, run) => {
    const hint = "it is an adapter of PEFT: download it, and pass its folder with `--adapter`";
    assertFailed(await run(PLAIN), 3, "has no model.safetensors", hint);
  }, repositoryOf(["adapter_config.json", "adapter_model.safetensors", "README.md"])));

/** Answers requests for the listing with other entries. */
const listing =
  (change: (entry: ReturnType<typeof entryOf>) => unknown): StandInHub["answer"] => (path) =>
    path.includes("/tree/") ? Response.json(FILES.map(entryOf).map(change)) : undefined;

Deno.test("a hub cannot choose where files go: hashes, paths and commits are checked", async () => {
  const config = (name: string) => (value: unknown) =>
    listing((entry) => entry.path === "config.json" ? { ...entry, [name]: value } : entry);
  const weights = (oid: unknown) =>
    listing((entry) => entry.path === WEIGHTS ? { ...entry, lfs: { ...entry.lfs, oid } } : entry);
  const named = (sha: unknown): StandInHub["answer"] => (path) =>
    path.includes("/revision/") ? Response.json({ _id: "1", id: NAME, sha }) : undefined;
  const up = "../../../up", short = SHA.slice(1), capital = SHA.toUpperCase();
  const paths = [`${up}.json`, "/b.json", "a/../../b", "a//b.json", "..\\b.json", "a\0.json"];
  const [hash40, hash64] = [40, 64].map((digits) => `expected ${digits} hexadecimal digits`);
  const cases = [
    [config("oid"), hash40, [up, "/tmp/up", short, capital, "", 7, null]],
    [weights, hash64, [up, hash("config.json"), `${"a".repeat(63)}/`]],
    [config("path"), "expected a path inside", paths],
    [config("path"), String.raw`the path "a\u001b[2J.json", expected`, ["a\u001b[2J.json"]],
    [named, hash40, [up, "main", capital, null]],
  ] as const;
  await withHub(async (hub, cwd, run) => {
    for (const [answer, reason, values] of cases) {
      for (const value of values) {
        hub.answer = answer(value);
        assertFailed(await run(PLAIN), 3, `cannot download "${NAME}": the hub gives the`, reason!);
        assertEquals(allPaths(cwd), [], "nothing was written");
      }
    }
  });
});

/** Answers requests for the content of a file with another body. */
const contentOf = (file: string, body: () => BodyInit): StandInHub["answer"] => (path) => {
  const isRedirected = file === WEIGHTS && path.includes("/resolve/");
  return path.endsWith(`/${file}`) && !isRedirected ? new Response(body()) : undefined;
};

Deno.test("a flipped byte is found before the file gets its name", async () => {
  for (const file of [WEIGHTS, "config.json"]) {
    await withHub(async (hub, cwd, run) => {
      hub.answer = contentOf(file, () => {
        const bytes = bytesOf(file);
        bytes[bytes.length >> 1]! ^= 1;
        return bytes;
      });
      assertFailed(await run(PLAIN), 3, `"${file}" has the hash `, `expected ${hash(file)}`);
      assert(!names(`${cacheOf(cwd)}/blobs`).includes(hash(file)));
      hub.answer = () => undefined;
      inspected(await run(INSPECT));
    });
  }
});

Deno.test("an answer that never ends is cut off at the size of the file", () =>
  withHub(async (hub, cwd, run) => {
    const endless = () => new ReadableStream({ pull: (to) => to.enqueue(new Uint8Array(1 << 16)) });
    hub.answer = contentOf(WEIGHTS, endless);
    const { length } = bytesOf(WEIGHTS);
    assertFailed(await run(PLAIN), 3, `more than ${length} bytes of "${WEIGHTS}" arrive`);
    assert(!allPaths(cwd).some((path) => path.endsWith(`blobs/${hash(WEIGHTS)}`)));
  }));

Deno.test("of an index only the shards that it lists are fetched, and all of them are needed", async () => {
  const shard = "model-00001-of-00001.safetensors", unlisted = "model-00002-of-00002.safetensors";
  const sharded = (name: string): StandInRepository => ({
    ...REPOSITORY,
    files: new Map<string, Uint8Array>([
      ["config.json", bytesOf("config.json")],
      ["tokenizer.json", bytesOf("tokenizer.json")],
      ["model.safetensors.index.json", new TextEncoder().encode(`{"weight_map":{"a":"${name}"}}`)],
      [shard, bytesOf(WEIGHTS)],
      [unlisted, new Uint8Array(10)],
    ]),
  });
  await withHub(async (hub, cwd, run) => {
    await run(PLAIN); // the index of this test does not name the tensors
    assert(resolved(hub.take()).has(shard));
    assert(!allPaths(cwd).some((path) => path.endsWith(unlisted)));
    await Deno.remove(`${cacheOf(cwd)}/snapshots/${SHA}/${shard}`);
    const lacks = `the earlier download lacks "${shard}"`;
    assertFailed(await run(PLAIN, { HF_HUB_OFFLINE: "1" }), 4, lacks);
    hub.answer = () => new Response("", { status: 503, headers: { "retry-after": "0" } });
    assertFailed(await run(PLAIN), 4, "status 503"); // and nothing falls back
  }, sharded(shard));
  await withHub(async (_hub, _cwd, run) => {
    assertFailed(await run(PLAIN), 3, 'is incomplete: "gone.safetensors" is listed in the index');
  }, sharded("gone.safetensors"));
});

Deno.test("further chat templates are downloaded, and convert keeps and replaces them", () => {
  const folder = "additional_chat_templates", text = "TOOLS {{ tools }}";
  const files = new Map(REPOSITORY.files);
  for (const name of ["notes.txt", "rag.jinja", "tool_use.jinja"]) {
    files.set(`${folder}/${name}`, new TextEncoder().encode(text));
  }
  return withHub(async (_hub, cwd, run) => {
    const convert = `convert --model ${NAME} --streams 2 --standalone --out p2 -qq`;
    for (const flags of ["", "--overwrite"]) {
      assertEquals((await run(`${convert} ${flags}`)).stderr, "");
      assertEquals(names(`${cwd}/p2/${folder}`), ["rag.jinja", "tool_use.jinja"]);
      assertEquals(await Deno.readTextFile(`${cwd}/p2/${folder}/tool_use.jinja`), text);
    }
    await Deno.writeTextFile(`${cwd}/p2/${folder}/notes.txt`, "");
    const foreign = `holds "${folder}/notes.txt", which is not part of a checkpoint`;
    assertFailed(await run(`${convert} --overwrite`), 2, foreign);
  }, { ...REPOSITORY, files });
});

Deno.test("a revision is a part of the name", () =>
  withHub(async (hub, cwd, run) => {
    assertFailed(await run(`inspect --model ${NAME}@v9`), 3, 'has no revision "v9"');
    inspected(await run(`inspect --model ${NAME}@${SHA} --json`));
    assert(!hub.take().some((line) => line.includes("main")));
    assert(!allPaths(cacheOf(cwd)).some((path) => path.includes("/refs/")));
  }));

Deno.test("a download larger than the disk is refused before it begins", () =>
  withHub(async (hub, _cwd, run) => {
    hub.answer = listing((entry) => ({ ...entry, size: 1e15 }));
    assertFailed(await run(PLAIN), 4, "the download takes", "HF_HUB_CACHE");
    assertEquals([...resolved(hub.take())], []);
  }));

Deno.test("two processes share one download", () =>
  withHub(async (hub, cwd) => {
    hub.answer = async (path) => {
      if (path.startsWith("/0/")) await new Promise((resolve) => setTimeout(resolve, 1500));
      return undefined as unknown as Response;
    };
    const env = { HF_ENDPOINT: hub.url, HF_HOME: `${cwd}/home` };
    const alone = () => runProcess(INSPECT, { cwd, env });
    const results = await Promise.all([alone(), alone()]);
    for (const result of results) inspected({ ...result, stderr: "" });
    // Each may wait for a file that the other fetches.
    assert(results.some(({ stderr }) => stderr.includes("waiting for another process")));
    assertEquals(hub.take().filter((line) => line.startsWith("GET /0/")).length, 1);
    assert(!allPaths(cwd).some((path) => path.includes("partial")));
  }));

Deno.test("a cache that cannot be written serves what it holds", () =>
  withHub(async (hub, cwd, run) => {
    inspected(await run(INSPECT));
    const folders = ["", "/refs", "/blobs", "/snapshots", `/snapshots/${SHA}`]
      .map((below) => cacheOf(cwd) + below);
    for (const folder of folders) await Deno.chmod(folder, 0o555);
    try {
      hub.take();
      inspected(await run(INSPECT));
      assertEquals([...resolved(hub.take())], []);
    } finally {
      for (const folder of folders) await Deno.chmod(folder, 0o755);
    }
  }));

Deno.test("cost needs config.json alone, and takes it from the hub or from an earlier download", () =>
  withHub(async (hub, cwd, run) => {
    const line = `cost --model ${NAME} --hardware a100-sxm-80gb --streams 1,2 --json`;
    const first = await run(line);
    assertEquals(first.code, 0, first.stderr);
    const fetched = hub.take().filter((line) => line.includes("/resolve/"));
    assertEquals(fetched.map((line) => line.split("/").at(-1)), ["config.json"]);
    assert(allPaths(cwd).every((path) => !path.endsWith(".safetensors")));
    const again = await run(line);
    assertEquals([again.code, hub.take()], [0, []]);
    // Nothing else of that model is there, so other commands still fetch what they need.
    inspected(await run(INSPECT));
  }));

Deno.test("an output over weights that were downloaded is refused, and they stay", () =>
  withHub(async (_, cwd, run) => {
    assertEquals((await run(PLAIN)).code, 0);
    const blob = `${cacheOf(cwd)}/blobs/${hash(WEIGHTS)}`, { size } = Deno.statSync(blob);
    const refused = await run(`${PLAIN} --overwrite -o ${blob}`);
    assertFailed(refused, 2, `error: "${blob}" lies in the input "${cwd}/home/hub"\n`);
    assertEquals(Deno.statSync(blob).size, size);
  }));
