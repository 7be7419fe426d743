/** `parscale train --data hf://…` with a stand-in hub on this machine. */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { bytesOf, DATA, gzip } from "../unit/data/testing.ts";
import { jsonLines } from "../cli/models.ts";
import { parscale } from "../cli/run.ts";
import { type StandInHub, type StandInRepository, startHub } from "../cli/stand_in_hub.ts";
import { texts, withWorkplace, type Workplace } from "../cli/train_testing.ts";

const FIRST = "0123456789abcdef0123456789abcdef01234567";
const LATER = FIRST.replaceAll("0", "f"), NAME = "owner/corpus";
const TEXTS = jsonLines(...texts(40));
const CODE = jsonLines(
  ...texts(40).map(({ text }, i) => ({
    content: text,
    metadata: { language: i % 2 ? "C" : "Python" },
  })),
);
const FILES = new Map<string, Uint8Array>([
  ["data/000.jsonl.gz", await gzip(TEXTS)],
  ["data/001.parquet", Deno.readFileSync(`${DATA}/text.parquet`)],
  ["data/002.jsonl", bytesOf(TEXTS)],
  ["code/0.json.gz", await gzip(CODE)],
]);

const repository = (commit: string): StandInRepository => ({
  kind: "dataset",
  name: NAME,
  commit,
  files: FILES,
  isLarge: () => true,
});

/** Calls `body` with a hub, and the environment that leads to it. */
const withHub = (
  body: (place: Workplace, hub: StandInHub, env: Record<string, string>) => Promise<void>,
) =>
  withWorkplace(async (place) => {
    await using hub = startHub([repository(FIRST)]);
    await body(place, hub, { HF_ENDPOINT: hub.url, HF_HOME: `${place.cwd}/home` });
  });

const RUN = "--model p2 --seq-len 16 --batch 2 --lr 1e-3";

/** Paths whose content was asked for. */
const fetched = (hub: StandInHub) =>
  new Set(hub.take().flatMap((line) => /\/resolve\/[^/]+\/(\S+)/.exec(line)?.[1] ?? []));

Deno.test("train reads files of the hub in order, only as far as --steps need, and never twice", () =>
  withHub(async (place, hub, env) => {
    const line = `${RUN} --data hf://datasets/${NAME}/data/** --steps 3`;
    const metrics = await place.trained(`${line} --out hub`, { env });
    assert(fetched(hub).has("data/000.jsonl.gz")); // the next two files may be on their way
    place.write("same.jsonl", TEXTS);
    const local = await place.trained(`${RUN} --data same.jsonl --steps 3 --out local`);
    assertEquals(metrics.map(({ loss }) => loss), local.map(({ loss }) => loss));
    const { hub_data } = JSON.parse(place.read("hub/config.json"));
    const paths = hub_data[0].files.map(({ path }: { path: string }) => path);
    assertEquals([hub_data[0].commit, ...paths], [FIRST, "data/000.jsonl.gz"]);
    await place.trained(`${line} --out again`, { env });
    assertEquals(fetched(hub), new Set());
    assert(!place.exists("home"), "raw files are not kept");
    const epochs = `${RUN} --data hf://datasets/${NAME}/data/** --epochs 1 --out epochs`;
    await place.trained(epochs, { env });
    assertEquals(fetched(hub), new Set(["data/001.parquet", "data/002.jsonl"]));
  }));

Deno.test("train --resume reads the commit that the run was begun with, without the hub", () =>
  withHub(async (place, hub, env) => {
    // The whole glob is read for validation, one file of it for training.
    const data = `hf://datasets/${NAME}/data/*.js*`;
    const line = `${RUN} --data ${data} --eval-data ${data} --steps 4 --save-every 2`;
    const whole = await place.trained(`${line} --out run`, { env });
    place.write("run/last", "checkpoint-000002\n");
    hub.take();
    await using later = startHub([repository(LATER)]);
    const moved = { ...env, HF_ENDPOINT: later.url };
    const resumed = await place.trained("--resume --out run", { env: moved });
    assertEquals(later.take(), []);
    assertEquals(resumed.map(({ loss }) => loss), whole.map(({ loss }) => loss));

    await Deno.remove(`${place.cwd}/cache`, { recursive: true });
    place.write("run/last", "checkpoint-000002\n");
    const gone = await place.train("--resume --out run", { env: moved });
    assertEquals(gone.code, 3);
    assertStringIncludes(gone.stderr, `no revision "${FIRST}"`);
    const again = await place.trained("--resume --out run", { env });
    assertEquals(again.map(({ loss }) => loss), whole.map(({ loss }) => loss));
  }));

Deno.test("train killed while it reads from the hub fetches no finished file again", () =>
  withHub(async (place, hub, env) => {
    const line = `${RUN} --data hf://datasets/${NAME}/data/** --epochs 1 --out run`;
    const reached = Promise.withResolvers<void>(), killed = Promise.withResolvers<void>();
    hub.answer = (path) => {
      if (!path.endsWith("002.jsonl")) return undefined;
      reached.resolve();
      return killed.promise.then(() => new Response("", { status: 404 }));
    };
    const child = parscale(place.args(line), {
      cwd: place.cwd,
      env: { ...place.env, ...env },
      stdin: "null",
      stdout: "null",
      stderr: "null",
    }).spawn();
    await reached.promise;
    const stores = () =>
      [...Deno.readDirSync(`${place.cwd}/cache/tokens`)]
        .filter(({ name }) => /^[0-9a-f]{64}$/.test(name));
    while (stores().length < 2) await new Promise((resolve) => setTimeout(resolve, 20));
    child.kill("SIGKILL");
    await child.status;
    killed.resolve();
    assertEquals(
      fetched(hub),
      new Set(["data/000.jsonl.gz", "data/001.parquet", "data/002.jsonl"]),
    );
    hub.answer = () => undefined;
    await place.trained(line, { env });
    assertEquals(fetched(hub), new Set(["data/002.jsonl"]));
  }));

Deno.test("train --text-column --where picks rows, and both flags need data on the hub", () =>
  withHub(async (place, _hub, env) => {
    const picked = "--text-column content --where metadata.language=Python";
    const data = `--data hf://datasets/${NAME}/code/*.json.gz`;
    const metrics = await place.trained(`${RUN} ${data} ${picked} --steps 2 --out py`, { env });
    place.write("py.jsonl", jsonLines(...texts(40).filter((_, i) => i % 2 === 0)));
    const local = await place.trained(`${RUN} --data py.jsonl --steps 2 --out local`);
    assertEquals(metrics.map(({ loss }) => loss), local.map(({ loss }) => loss));
    const misuse: [string, string][] = [
      [`--data py.jsonl ${picked}`, "`--text-column` needs data on the hub"],
      ["--data py.jsonl --where a=b", "`--where` needs data on the hub"],
      [`${data} --where Python`, "`--where Python` is not a condition"],
      [`${data} --text-column absent`, '"absent"'],
      [`--data hf://datasets/${NAME}/none/*.parquet`, "no file matches"],
    ];
    for (const [flags, message] of misuse) {
      const { code, stderr } = await place.train(`${RUN} ${flags} --steps 1 --out bad`, { env });
      assert(code === 2 || code === 3, stderr);
      assertStringIncludes(stderr, message);
    }
    const offline = { ...env, HF_HUB_OFFLINE: "1" };
    const { code, stderr } = await place.train(`${RUN} ${data} --steps 1 --out off`, {
      env: offline,
    });
    assertEquals(code, 4);
    assertStringIncludes(stderr, "HF_HUB_OFFLINE is set");
  }));

Deno.test("documented lines for corpora of the hub plan a run", () =>
  withWorkplace(async (place) => {
    const page = Deno.readTextFileSync(new URL("../../docs/training.md", import.meta.url));
    const [, block] = /### Corpora on the hub\s+```sh network\n([\s\S]*?)```/.exec(page)!;
    const lines = block!.trim().split("\n");
    assertEquals(lines.length, 4);
    const code = (key: string) =>
      gzip(jsonLines(
        ...texts(40).map(({ text }) => ({ [key]: text, metadata: { language: "Python" } })),
      ));
    const [text, content] = await Promise.all([code("text"), code("content")]);
    const corpora = lines.map((line): StandInRepository => {
      const [, name, commit = FIRST, glob] = /datasets\/([^/@]+\/[^/@]+)(?:@(\w+))?\/([^"]+)"/
        .exec(line)!;
      const bytes = glob!.endsWith(".parquet")
        ? FILES.get("data/001.parquet")!
        : line.includes("--text-column content")
        ? content
        : text;
      const files = new Map([[glob!.replace("*", "0"), bytes]]);
      return { kind: "dataset", name: name!, commit, files, isLarge: () => true };
    });
    await using hub = startHub(corpora);
    const env = { HF_ENDPOINT: hub.url, HF_HOME: `${place.cwd}/home` };
    for (const line of lines) {
      const short = line.replace(/^parscale train /, "").replaceAll('"', "")
        .replace("qwen2.5-0.5b", "p1");
      const result = await place.train(`${short} --seq-len 16 --batch 4 --dry-run`, { env });
      assertEquals(result.code, 0, result.stderr);
      assertEquals(fetched(hub).size, 1);
    }
  }));
