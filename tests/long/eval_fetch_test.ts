/** Benchmarks by name: `eval` without --data and `eval fetch`, against a stand-in hub. */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { createHash } from "node:crypto";
import { DATA, TINY } from "../cli/eval_testing.ts";
import { assertFailed, parseLines } from "../cli/models.ts";
import { runParscale, type RunResult } from "../cli/run.ts";
import { withScratch } from "../scratch.ts";
import {
  allPaths,
  type StandInHub,
  type StandInRepository,
  startHub,
} from "../cli/stand_in_hub.ts";
import { FIXTURES } from "../fixtures.ts";

const HUB = `${FIXTURES}eval/hub/`;

/** The files below a folder of the fixtures as a dataset. */
function dataset(name: string, commit: string, folder: string): StandInRepository {
  const root = `${HUB}${folder}/`;
  const files = allPaths(root).map((path) =>
    [path.slice(root.length).replace(/^\//, ""), Deno.readFileSync(path)] as const
  );
  return { kind: "dataset", name, commit, files: new Map(files), isLarge: () => true };
}

const WINOGRANDE = dataset(
  "allenai/winogrande",
  "01e74176c63542e6b0bcb004dcdea22d94fb67b5",
  "winogrande",
);
const MATH = dataset(
  "EleutherAI/hendrycks_math",
  "21a5633873b6a120296cce3e2df9d5550074f4a3",
  "math",
);

/** Another content under a name that is pinned. */
const GSM8K: StandInRepository = {
  kind: "dataset",
  name: "openai/gsm8k",
  commit: "740312add88f781978c0658806c59bc2815b9866",
  files: new Map([
    ["main/train-00000-of-00001.parquet", new Uint8Array(9)],
    ["main/test-00000-of-00001.parquet", new Uint8Array(9)],
  ]),
  isLarge: () => true,
};

type Run = (line: string, env?: Record<string, string>) => Promise<RunResult>;

const withHub = (body: (hub: StandInHub, cwd: string, run: Run) => Promise<void>) =>
  withScratch(async (cwd) => {
    await using hub = startHub([WINOGRANDE, MATH, GSM8K]);
    const usual = { HF_ENDPOINT: hub.url, HF_HOME: `${cwd}/home`, PARSCALE_CACHE: `${cwd}/ours` };
    await body(hub, cwd, (line, env) => runParscale(line, { cwd, env: { ...usual, ...env } }));
  });

const EVAL = `eval --model ${TINY} --tasks winogrande --json`;

Deno.test("eval without --data fetches once, says what, and scores as with --data", () =>
  withHub(async (hub, cwd, run) => {
    const fetched = await run(EVAL, { HF_TOKEN: "hf_secret" });
    assertEquals(fetched.code, 0, fetched.stderr);
    assertStringIncludes(
      fetched.stderr,
      `fetching allenai/winogrande @ ${WINOGRANDE.commit}: 2 files, 12.4 KB, licence CC-BY upstream`,
    );
    assertEquals([...hub.tokens.storage], [null]);
    assert(hub.take().some((line) => line.startsWith("GET /0/")));

    const local = await run(`${EVAL} --data ${DATA}`);
    const [ours, theirs] = [fetched, local].map(({ stdout }) =>
      JSON.parse(stdout).results.tasks[0]
    );
    assertEquals(ours.metrics, theirs.metrics);
    assertEquals(ours.prompts_sha256, theirs.prompts_sha256);
    for (const file of ours.files) {
      const bytes = WINOGRANDE.files.get(file.path)!;
      assertEquals(file, {
        path: file.path,
        sha256: createHash("sha256").update(bytes).digest("hex"),
        repository: "allenai/winogrande",
        commit: WINOGRANDE.commit,
        bytes: bytes.length,
      });
    }

    const again = await run(EVAL);
    assertEquals(again.code, 0);
    assert(!again.stderr.includes("fetching"));
    const offline = await run(EVAL, { HF_HUB_OFFLINE: "1" });
    assertEquals(offline.code, 0, offline.stderr);
    assertEquals(hub.take(), []);

    // A cache that was changed is not used.
    const [path] = ours.files.map((file: { path: string }) => file.path);
    const local1 = `${cwd}/home/hub/datasets--allenai--winogrande/snapshots/` +
      `${WINOGRANDE.commit}/${path}`;
    const bytes = await Deno.readFile(local1);
    bytes[20]! ^= 1;
    await Deno.writeFile(await Deno.realPath(local1), bytes);
    assertFailed(await run(EVAL), 3, "has the SHA-256", "remove");
  }));

Deno.test("without shots the rows they are drawn from are not fetched", () =>
  withHub(async (hub, cwd, run) => {
    const result = await run("eval show winogrande --shots 0 --jsonl");
    assertEquals(result.code, 0, result.stderr);
    assert(!allPaths(`${cwd}/home`).some((path) => path.includes("/train")));
    assert(hub.take().length > 0);
  }));

Deno.test("eval fetch fills a folder that --data reads", () =>
  withHub(async (hub, cwd, run) => {
    const plan = await run("eval fetch minerva_math --data bench --dry-run");
    assertEquals(plan.code, 0, plan.stderr);
    assertStringIncludes(plan.stdout, `would fetch EleutherAI/hendrycks_math @ ${MATH.commit}`);
    assertEquals([hub.take(), allPaths(cwd)], [[], []]);

    const line = "eval fetch minerva_math --data bench --jsonl";
    const result = await run(line);
    assertEquals(result.code, 0, result.stderr);
    const rows = parseLines(result.stdout);
    assertEquals(rows.length, 7);
    for (const { file, bytes, sha256, pinned } of rows) {
      const content = MATH.files.get(file)!;
      assertEquals([bytes, pinned], [content.length, "no"]);
      assertEquals(sha256, createHash("sha256").update(content).digest("hex"));
      assertEquals(await Deno.readFile(`${cwd}/bench/math/${file}`), content);
    }
    assertEquals((await run(line)).code, 0, "the same files again do not conflict");
    await Deno.writeTextFile(`${cwd}/bench/math/${rows[0].file}`, "mine");
    assertFailed(await run(line), 2, "already exists and has other content", "--overwrite");
    assertEquals((await run(`${line} --overwrite`)).code, 0);

    const show = "eval show minerva_math --ids 0,13 --jsonl";
    const [fetched, copied] = [await run(show), await run(`${show} --data bench`)];
    assertEquals([fetched.code, copied.code], [0, 0], copied.stderr);
    assertEquals(fetched.stdout, copied.stdout);
  }));

Deno.test("a pinned file of another hash is refused before it is fetched", () =>
  withHub(async (hub, _cwd, run) => {
    const result = await run("eval fetch gsm8k");
    assertFailed(result, 3, 'main/test-00000-of-00001.parquet" of openai/gsm8k has the SHA-256');
    assertStringIncludes(result.stderr, "ee7b8da9e381df27b9e3f7758a159ab2");
    assert(!hub.take().some((line) => line.includes("/resolve/")));
  }));

Deno.test("what cannot be fetched names --data", () =>
  withHub(async (_hub, _cwd, run) => {
    const gone = await run("eval fetch hellaswag");
    assertFailed(gone, 3, 'the hub has no dataset "Rowan/hellaswag"', "--data DIR");
    const offline = await run("eval fetch winogrande", { HF_HUB_OFFLINE: "1" });
    assertFailed(offline, 4, 'the cache lacks "winogrande_xl/validation', "--data DIR");
  }));
