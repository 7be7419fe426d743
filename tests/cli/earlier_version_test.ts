/** Files that the version before the first changelog entry wrote: they open, resume, or say why not. */
import { cpSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { assertAlmostEquals, assertEquals } from "@std/assert";
import { assertFailed, documentOf, parseLines, PLAIN_MODEL, rowsOf, succeed } from "./models.ts";
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

Deno.test("an earlier run resumes and ends as it would have", () =>
  withEarlier(async (cwd) => {
    await succeed("train --resume --out run -q", { cwd });
    const read = async (path: string) => parseLines(await Deno.readTextFile(`${cwd}/${path}`));
    const [now, then] = [await read("run/metrics.jsonl"), await read("full_metrics.jsonl")];
    assertEquals(now.map(({ step }) => step), [1, 2, 3, 4]);
    for (const [i, row] of then.entries()) {
      assertAlmostEquals(now[i]!.loss, row.loss, 1e-6);
      assertAlmostEquals(now[i]!.grad_norm, row.grad_norm, 1e-5);
    }
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
