/** Files that the version before the first changelog entry wrote: they open, or say why not. */
import { cpSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { assertEquals } from "@std/assert";
import { assertFailed, documentOf, PLAIN_MODEL, rowsOf } from "./models.ts";
import { runParscale } from "./run.ts";
import { withScratch } from "../scratch.ts";
import { linkSync } from "../links.ts";

const FIXTURE = fileURLToPath(new URL("../../fixtures/earlier_version", import.meta.url));
const DATA = fileURLToPath(new URL("../../fixtures/eval/data", import.meta.url));

/** A folder with the files, the model `p1` and the benchmarks they were made with. */
function withEarlier(test: (cwd: string) => Promise<void>) {
  return withScratch(async (cwd) => {
    cpSync(FIXTURE, cwd, { recursive: true }); // no links: the run is resumed in place
    linkSync(PLAIN_MODEL, `${cwd}/p1`);
    linkSync(DATA, `${cwd}/data`);
    await test(cwd);
  });
}

Deno.test("an earlier run is refused with a remedy: conversations are rendered otherwise now", () =>
  withEarlier(async (cwd) => {
    const resumed = await runParscale("train --resume --out run -q", { cwd });
    assertFailed(resumed, 3, "the data changed since the run began", "from its last checkpoint");
  }));

Deno.test("an earlier adapter opens", () =>
  withEarlier(async (cwd) => {
    const stdin = '{"tokens":[1,2,3]}\n';
    const score = "score --model p1 --adapter run/checkpoint-000002";
    const [row] = await rowsOf(score, { cwd, stdin });
    assertEquals(row.token_logprobs.length, 2);
  }));

Deno.test("an earlier evaluation is refused by version, scores again, and can be compared", () =>
  withEarlier(async (cwd) => {
    const rows = "--tasks gsm8k --data data --limit 2";
    const other = '"results" was written by another version';
    const hint = "`parscale eval --score results/samples.jsonl`";
    const anew = await runParscale(`eval --model p1 ${rows} --out results`, { cwd });
    assertFailed(anew, 2, other, hint);
    await documentOf(`eval --score results/samples.jsonl ${rows}`, { cwd });
    await rowsOf("compare results results", { cwd });
  }));

Deno.test("a key of an earlier document names the flag of today", () =>
  withEarlier(async (cwd) => {
    const unknown = 'error: unknown key "weights" in config "generate.json"';
    const hint = "hint: it is called `--quantize` now";
    const old = await runParscale("generate --config generate.json --dry-run", { cwd });
    assertFailed(old, 2, unknown, hint);
  }));

Deno.test("earlier timings compare", () =>
  withEarlier(async (cwd) => {
    const rows = await rowsOf("bench --compare bench.jsonl --against bench.jsonl", { cwd });
    assertEquals(rows.map(({ result }) => result), ["same", "same"]);
  }));
