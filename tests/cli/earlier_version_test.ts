/** Files that the version before the first changelog entry wrote: they open, resume, or say why not. */
import { cpSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { assertAlmostEquals, assertEquals } from "@std/assert";
import { assertFailed, parseLines, PLAIN_MODEL } from "./models.ts";
import { runParscale } from "./run.ts";
import { withScratch } from "../scratch.ts";
import { linkSync } from "../links.ts";

const FIXTURE = fileURLToPath(new URL("../../fixtures/earlier_version", import.meta.url));
const DATA = fileURLToPath(new URL("../../fixtures/eval/data", import.meta.url));

/** A folder with the files, the model `p1` and the benchmarks they were made with. */
function withEarlier(test: (cwd: string, run: typeof runParscale) => Promise<void>) {
  return withScratch(async (cwd) => {
    cpSync(FIXTURE, cwd, { recursive: true }); // no links: the run is resumed in place
    linkSync(PLAIN_MODEL, `${cwd}/p1`);
    linkSync(DATA, `${cwd}/data`);
    await test(cwd, (line, options) => runParscale(line, { cwd, ...options }));
  });
}

Deno.test("an earlier run resumes and ends as it would have", () =>
  withEarlier(async (cwd, run) => {
    const { code, stderr } = await run("train --resume --out run -q");
    assertEquals([code, stderr], [0, ""]);
    const read = async (path: string) => parseLines(await Deno.readTextFile(`${cwd}/${path}`));
    const [now, then] = [await read("run/metrics.jsonl"), await read("full_metrics.jsonl")];
    assertEquals(now.map(({ step }) => step), [1, 2, 3, 4]);
    for (const [i, row] of then.entries()) {
      assertAlmostEquals(now[i]!.loss, row.loss, 1e-6);
      assertAlmostEquals(now[i]!.grad_norm, row.grad_norm, 1e-5);
    }
  }));

Deno.test("an earlier adapter opens", () =>
  withEarlier(async (_, run) => {
    const stdin = '{"tokens":[1,2,3]}\n';
    const line = "score --model p1 --adapter run/checkpoint-000002 --jsonl";
    const { code, stdout, stderr } = await run(line, { stdin });
    assertEquals([code, stderr], [0, ""]);
    assertEquals(parseLines(stdout)[0].token_logprobs.length, 2);
  }));

Deno.test("an earlier evaluation is refused by version, scores again, and can be compared", () =>
  withEarlier(async (_, run) => {
    const rows = "--tasks gsm8k --data data --limit 2";
    const other = '"results" was written by another version';
    const hint = "`parscale eval --score results/samples.jsonl`";
    assertFailed(await run(`eval --model p1 ${rows} --out results`), 2, other, hint);
    const scored = await run(`eval --score results/samples.jsonl ${rows} --json`);
    assertEquals(scored.code, 0, scored.stderr);
    const compared = await run("compare results results --jsonl");
    assertEquals([compared.code, compared.stderr], [0, ""]);
  }));

Deno.test("a key of an earlier document names the flag of today", () =>
  withEarlier(async (_, run) => {
    const unknown = 'error: unknown key "weights" in config "generate.json"';
    const hint = "hint: it is called `--quantize` now";
    assertFailed(await run("generate --config generate.json --dry-run"), 2, unknown, hint);
  }));

Deno.test("earlier timings compare", () =>
  withEarlier(async (_, run) => {
    const line = "bench --compare bench.jsonl --against bench.jsonl --jsonl";
    const { code, stdout } = await run(line);
    assertEquals([code, parseLines(stdout).map(({ result }) => result)], [0, ["same", "same"]]);
  }));
