/** Published files of benchmarks: the table, what readers make of them, and releases. */
import { assert, assertEquals, assertRejects } from "@std/assert";
import { createHash } from "node:crypto";
import { DataError } from "../../../core/base/errors.ts";
import { readTaskData } from "../../../core/eval/harness/data_folder.ts";
import { type FetchedFile, PublishedFiles } from "../../../core/eval/harness/fetch.ts";
import type { Row } from "../../../core/eval/harness/row.ts";
import { taskOf, TASKS } from "../../../core/eval/tasks/mod.ts";
import { PUBLISHED, type PublishedData } from "../../../core/eval/tasks/published.ts";
import { HubClient } from "../../../core/hub/client.ts";
import { withScratch } from "../../scratch.ts";
import { serveBytes } from "../../cli/stand_in_hub.ts";
import { FIXTURES } from "../../fixtures.ts";

const EVAL = `${FIXTURES}eval/`;

const fetchedFile = (local: string): FetchedFile => ({
  local,
  repository: "a/b",
  revision: "c",
  path: "d",
  bytes: 1,
  sha256: "e",
  isPinned: false,
});

Deno.test("every task but perplexity has published files, with whole hashes and commits", () => {
  const missing = TASKS.filter(({ name }) => !PUBLISHED[name]).map(({ name }) => name);
  assertEquals(missing, ["perplexity"]);
  for (const [name, { source, rows, pool, folder }] of Object.entries(PUBLISHED)) {
    const task = taskOf(name)!;
    if (source.release === undefined) assert(/^[0-9a-f]{40}$/.test(source.revision), name);
    const isDrawn = "pool" in task.shots && Array.isArray(task.shots.pool);
    assertEquals(pool.length > 0, isDrawn, `${name}: rows to draw shots from`);
    assertEquals(folder !== undefined, task.folder === ".", name);
    for (const { sha256, bytes } of [...rows, ...pool]) {
      assert(sha256 === undefined || /^[0-9a-f]{64}$/.test(sha256), name);
      if (source.release !== undefined) assert(sha256 !== undefined && bytes !== undefined, name);
    }
  }
});

Deno.test("tables of the hub give the rows of the official files", async () => {
  const tasks = { winogrande: 5, mmlu: 5, piqa: 5, arc_challenge: 25, minerva_math: 0 };
  for (const [name, shots] of Object.entries(tasks)) {
    const task = taskOf(name)!, { rows, pool } = PUBLISHED[name]!;
    const local = ({ path }: { path: string }) => fetchedFile(`${EVAL}hub/${task.folder}/${path}`);
    const fetched = { rows: rows.map(local), pool: pool.map(local) };
    const found = await readTaskData(task, fetched, shots);
    const official = await readTaskData(task, `${EVAL}data`, shots);
    const texts = (data: readonly Row[]) =>
      data.filter(({ fields }) => Object.values(fields).some((value) => typeof value === "string"))
        .map((row) => JSON.stringify(task.read(row))).sort();
    assertEquals(texts(found.rows), texts(official.rows), name);
    assertEquals(texts(found.pool), texts(official.pool), name);
    assertEquals(found.pool.length, official.pool.length, name);
    // The same files are found by their names in a folder, too.
    const folder = await readTaskData(task, `${EVAL}hub`, shots);
    assertEquals(folder.rows.length, found.rows.length, name);
  }
});

Deno.test("releases are fetched without a token, checked, and kept", () =>
  withScratch(async (cache) => {
    const bytes = Deno.readFileSync(`${EVAL}data/humaneval_plus/HumanEvalPlus.jsonl.gz`);
    const served = bytes.slice();
    const tokens = new Set<string | null>();
    await using server = Deno.serve(
      { hostname: "127.0.0.1", port: 0, onListen() {} },
      (request) => {
        tokens.add(request.headers.get("authorization"));
        return serveBytes(served, request);
      },
    );
    const data: PublishedData = {
      source: {
        repository: "evalplus/humanevalplus_release",
        revision: "v0.1.10",
        release: `http://127.0.0.1:${server.addr.port}/download/v0.1.10`,
      },
      licence: "Apache-2.0",
      rows: [{
        path: "HumanEvalPlus.jsonl.gz",
        bytes: bytes.length,
        sha256: createHash("sha256").update(bytes).digest("hex"),
      }],
      pool: [],
    };
    const access = { endpoint: "http://hub.invalid", token: "hf_a", cache };
    const files = new PublishedFiles(new HubClient(access), {}, `${cache}/releases`);
    const [missing] = await files.missing([data]);
    served[100]! ^= 1;
    const described = await files.describe(missing!);
    const wrong = () => files.download(missing!, described);
    await assertRejects(wrong, DataError, '"HumanEvalPlus.jsonl.gz" has the hash');
    served[100]! ^= 1;
    await files.download(missing!, described);
    assertEquals(await files.missing([data]), []);
    assertEquals([...tokens], [null]);
    const { rows } = await readTaskData(taskOf("humaneval")!, await files.open(data), 0);
    assertEquals(rows.length, 164);
  }));

Deno.test("the published EvalPlus files are those of the table", () => {
  for (const name of ["humaneval", "mbpp"]) {
    const { rows: [file], folder } = PUBLISHED[name]!;
    const bytes = Deno.readFileSync(`${EVAL}data/${folder}/${file!.path}`);
    assertEquals(createHash("sha256").update(bytes).digest("hex"), file!.sha256, name);
    assertEquals(bytes.length, file!.bytes, name);
  }
});
