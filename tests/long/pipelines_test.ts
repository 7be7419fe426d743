/**
 * The ten pipelines that the contract promises, each run exactly as it is written there.
 *
 * They build on one another, so they share a folder and an order. Names stand for fixtures: the model
 * is a link, the corpus and the prompts are made. Where the benchmarks are, and what keeps tests
 * short, comes from the environment.
 */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { DATA } from "../cli/eval_testing.ts";
import { jsonLines, parseLines, PLAIN_MODEL } from "../cli/models.ts";
import { type RunResult, runShell } from "../cli/run.ts";
import { withScratch } from "../scratch.ts";
import { texts } from "../cli/train_testing.ts";
import { linkSync } from "../links.ts";
import { readFixture } from "../fixtures.ts";

const LINES = {
  convert: "parscale convert --model qwen2.5-0.5b --streams 4 --out qwen-p4 --json" +
    " | jq -r .results.introduced_params",
  train: "zcat corpus.jsonl.gz | parscale train --model qwen-p4 --data - " +
    "--train-params introduced --tokens 20M --out run",
  follow: "tail -f run/metrics.jsonl | jq -r '[.step,.loss,.grad_norm]|@tsv'",
  answer: "parscale generate --model run --jsonl < prompts.jsonl | tee samples.jsonl " +
    "| parscale eval --score - --tasks gsm8k",
  gate: "parscale eval --model run --tasks gsm8k,math --limit 50 --fail-under gsm8k=0.3 -q " +
    '|| notify "score fell"',
  cost: "parscale cost --model qwen-p4 --streams 1,2,4,8 --batch 1..8*2 --jsonl " +
    "| jq -s 'group_by(.batch)'",
  fit: "parscale fit losses.csv --bootstrap 200 --predict 1.6e9,8 --json > law.json",
  prompt: 'parscale generate --model run --prompt "2+2=" | head -c 40',
  bench: "parscale bench --model run --streams 1..8*2 --jsonl " +
    "| jq -s --slurpfile last last.jsonl '[., $last] | transpose | map(.[0].median_ms / .[1].median_ms)'",
  doctor: `parscale doctor --json | jq -e '.results[]|select(.status=="fail")'`,
};

/** Runs a script in the folder, where the environment shortens what it can. */
function shell(script: string, cwd: string): Promise<RunResult> {
  const env = {
    PARSCALE_CACHE: `${cwd}/cache`,
    PARSCALE_DATA: DATA,
    PARSCALE_CONTEXT: "64",
    PARSCALE_MAX_TOKENS: "16",
    PARSCALE_ROUNDS: "1",
    PARSCALE_SEQ_LEN: "32",
    PARSCALE_SHOTS: "1",
  };
  return runShell(script, { cwd, env });
}

/** Runs one line; every program in it must end with 0. */
async function succeeds(line: string, cwd: string): Promise<RunResult> {
  const result = await shell(`${line}\necho "\${PIPESTATUS[*]}" > status`, cwd);
  const status = Deno.readTextFileSync(`${cwd}/status`).trim();
  assert(/^0( 0)*$/.test(status), `${status}: ${result.stderr}`);
  return result;
}

async function fill(cwd: string): Promise<void> {
  linkSync(PLAIN_MODEL, `${cwd}/qwen2.5-0.5b`);
  const corpus = new Blob([jsonLines(...texts(60))]).stream();
  await Deno.writeFile(
    `${cwd}/corpus.jsonl.gz`,
    corpus.pipeThrough(new CompressionStream("gzip")) as ReadableStream<Uint8Array>,
  );
  const { observations } = readFixture("analysis/scaling-law.json").datasets["stack-v2-python"];
  const losses = observations.map(({ N, P, loss }: Record<string, number>) =>
    `${N},${P},${loss}\n`
  );
  await Deno.writeTextFile(`${cwd}/losses.csv`, `n_params,streams,loss\n${losses.join("")}`);
  const questions = parseLines(Deno.readTextFileSync(`${DATA}/gsm8k/test.jsonl`));
  const prompts = questions.slice(0, 3).map(({ question }, id) => ({ id, prompt: question }));
  await Deno.writeTextFile(`${cwd}/prompts.jsonl`, jsonLines(...prompts));
}

Deno.test("the pipelines of the contract work as they are written", (t) =>
  withScratch(async (cwd) => {
    await fill(cwd);

    await t.step("convert tells jq what it introduced", async () => {
      const { stdout } = await succeeds(LINES.convert, cwd);
      assert(Number(stdout) > 10_000, stdout);
    });

    await t.step(
      "train reads a packed corpus from a pipe; its metrics can be followed",
      async () => {
        // 20M tokens are hours, so an interrupt ends the run, as it may: it saves first.
        const script = `
        set -m
        ${LINES.train} 2> log &
        until [ -s run/metrics.jsonl ]; do sleep 0.1; kill -0 %1 || break; done
        ${LINES.follow} > steps &
        for i in {1..600}; do [ $(wc -l < steps) -ge 3 ] && break; sleep 0.1; done
        kill -TERM %2
        kill -INT %1
        wait %1`;
        await shell(script, cwd);
        const log = Deno.readTextFileSync(`${cwd}/log`);
        assertStringIncludes(log, "error: Interrupted");
        const followed = Deno.readTextFileSync(`${cwd}/steps`).trim().split("\n").slice(0, 3)
          .map((line) => line.split("\t").map(Number));
        const metrics = parseLines(Deno.readTextFileSync(`${cwd}/run/metrics.jsonl`));
        const first = followed[0]![0]! - 1; // tail begins with the last lines of what is there
        assertEquals(
          followed,
          metrics.slice(first, first + 3).map((
            { step, loss, grad_norm },
          ) => [step, loss, grad_norm]),
        );
        assert(/^checkpoint-\d+$/.test(Deno.readTextFileSync(`${cwd}/run/last`).trim()));
      },
    );

    await t.step("generate feeds tee and eval --score", async () => {
      const { stdout } = await succeeds(LINES.answer, cwd);
      const samples = parseLines(Deno.readTextFileSync(`${cwd}/samples.jsonl`));
      assertEquals(samples.map(({ id }) => id), [0, 1, 2]);
      assert(/^gsm8k .* strict_match /m.test(stdout), stdout);
    });

    await t.step("eval tells when a score has fallen", async () => {
      const notify = 'notify() { echo "notify: $*"; }\n';
      const { code, stdout, stderr } = await shell(notify + LINES.gate, cwd);
      assertEquals([code, stderr], [
        0,
        "missed: gsm8k: strict_match is 0.0000, below the required 0.3\n",
      ]);
      assert(stdout.endsWith("\nnotify: score fell\n"), stdout);
    });

    await t.step("cost rows are grouped by jq", async () => {
      const { stdout } = await succeeds(LINES.cost, cwd);
      const groups = JSON.parse(stdout) as { batch: number; streams: number }[][];
      assertEquals(groups.map((rows) => [rows[0]!.batch, rows.map(({ streams }) => streams)]), [
        [1, [1, 2, 4, 8]],
        [2, [1, 2, 4, 8]],
        [4, [1, 2, 4, 8]],
        [8, [1, 2, 4, 8]],
      ]);
    });

    await t.step("fit writes a law", async () => {
      assertEquals((await succeeds(LINES.fit, cwd)).stdout, "");
      const { schema, results } = JSON.parse(Deno.readTextFileSync(`${cwd}/law.json`));
      assertEquals([schema, Object.keys(results.parameters)], [
        "parscale.fit/2",
        ["E", "A", "k", "alpha"],
      ]);
    });

    await t.step("generate continues one prompt, also for a reader that leaves", async () => {
      const { stdout, stderr } = await succeeds(LINES.prompt, cwd);
      assertEquals(stderr, "");
      assert(stdout.length > 0 && stdout.length <= 40, stdout);
    });

    await t.step("bench is compared with an earlier one", async () => {
      await shell(`${LINES.bench.split(" | ")[0]!} > last.jsonl`, cwd);
      const ratios = JSON.parse((await succeeds(LINES.bench, cwd)).stdout);
      assertEquals([ratios.length, ratios.every((ratio: number) => ratio > 0)], [8, true]);
    });

    await t.step("doctor finds no failure here", async () => {
      const { code, stdout } = await shell(LINES.doctor, cwd);
      assertEquals([code, stdout], [4, ""], "jq's code for no output");
    });
  }));
