/** `parscale eval` as a black box: scores of the reference, prompts, formats, misuse, pipes. */
import { fileURLToPath } from "node:url";
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { assertRefusals, assertRefused, jsonLines, parseLines, succeed } from "./models.ts";
import { DATA, EVAL, runEval, sortedLines, TINY } from "./eval_testing.ts";
import { runParscale } from "./run.ts";
import { withScratch } from "../scratch.ts";

const GOLDEN = fileURLToPath(new URL("../../fixtures/golden/eval/", import.meta.url));
const SUMMARY = JSON.parse(Deno.readTextFileSync(`${GOLDEN}metrics_summary.json`));

const CHOICES = "winogrande,hellaswag,openbookqa,piqa,arc_easy,arc_challenge,sciq".split(",");

Deno.test("choice tasks: accuracies are those of lm-evaluation-harness", async () => {
  const { stdout } = await runEval([...tasks(...CHOICES), "--ids", "0..9", "--json"]);
  const document = JSON.parse(stdout);
  assertEquals(document.schema, "parscale.eval/1");
  assertEquals(document.results.tasks.map(({ task }: { task: string }) => task), CHOICES);
  for (const { task, rows, metrics, version, files } of document.results.tasks) {
    const { n, ...expected } = SUMMARY[task].shared;
    assertEquals([rows, version], [n, 1]);
    assert(files.length >= 2 && files.every((f: { sha256: string }) => f.sha256.length === 64));
    for (const { metric, value, stderr } of metrics) {
      assert(Math.abs(value - expected[metric]) < 1e-9, `${task} ${metric}`);
      // Sample standard deviation over the root of n.
      assert(Math.abs(stderr - Math.sqrt(value * (1 - value) / (n - 1))) < 1e-9);
    }
  }
});

Deno.test("MMLU: subjects by size, groups, and as a conversation", async () => {
  for (const chat of [false, true]) {
    const args = [...tasks("mmlu"), "--json", ...(chat ? ["--chat"] : [])];
    const [{ rows, groups, supergroups, metrics }] = JSON.parse((await runEval(args)).stdout)
      .results.tasks;
    assertEquals([rows, groups.length, groups[0].n], [12, 6, 2]);
    const mean = groups.reduce((sum: number, { value }: { value: number }) => sum + value / 6, 0);
    assert(Math.abs(metrics[0].value - mean) < 1e-12);
    assert(supergroups.some(({ group }: { group: string }) => group === "stem"));
    const name = chat ? "mmlu_chat" : "mmlu";
    for (const { group, value } of groups) {
      const expected = SUMMARY[`${name}/mmlu_${group}`];
      if (expected) assertEquals(value, expected.shared.acc, group);
    }
  }
});

Deno.test("prompts that do not fit lose their beginning, and that is said", async () => {
  const args = [...tasks("arc_challenge"), "--ids", "0,1", "--max-length", "256", "--json"];
  const { stdout, stderr } = await runEval(args);
  const { metrics } = JSON.parse(stdout).results.tasks[0];
  const { acc, acc_norm } = SUMMARY.arc_challenge_maxlen256.shared;
  assertEquals(metrics.map(({ value }: { value: number }) => value), [acc_norm, acc]);
  assertStringIncludes(stderr, "warning: 8 prompts lost their beginning");
});

Deno.test("prompts longer than the model's context are evaluated", async () => {
  const model = fileURLToPath(new URL("../../fixtures/models/word-problems", import.meta.url));
  const args = ["eval", "--model", model, "--data", DATA, ...tasks("piqa"), "--ids", "0..3"];
  const { code, stdout, stderr } = await runParscale([...args, "--json"]);
  assertEquals(code, 0, stderr);
  assertEquals(JSON.parse(stdout).results.tasks[0].rows, 4);
  assertStringIncludes(stderr, "lost their beginning, since they are longer than 512 tokens");
});

Deno.test("greedy answers are the reference's, cut at the stop strings", () =>
  withScratch(async (cwd) => {
    const args = [...tasks("gsm8k"), "--shots", "4", "--ids", "0..4", "--max-tokens", "48"];
    await runEval([...args, "--out", "run"], cwd);
    const samples = sortedLines(`${cwd}/run/samples.jsonl`);
    const golden = parseLines(Deno.readTextFileSync(`${GOLDEN}requests_gsm8k.jsonl`));
    for (const { doc_id, text, temperature } of samples) {
      const { tiny_model_text, effective_until } = golden[doc_id];
      let expected = tiny_model_text;
      for (const stop of effective_until) expected = expected.split(stop)[0];
      assertEquals([text, temperature], [expected, 0]);
    }
  }));

Deno.test("perplexity of a text is that of its tokens", () =>
  withScratch(async (cwd) => {
    const text = "Once upon a time there was a small model. ".repeat(30);
    await Deno.writeTextFile(`${cwd}/book.txt`, text);
    const run = async (...more: string[]) => {
      const args = ["eval", "--model", TINY, "--tasks", "perplexity", "--data", "book.txt"];
      const stdout = await succeed([...args, ...more, "--json"], { cwd });
      const [{ metrics }] = JSON.parse(stdout).results.tasks;
      return Object.fromEntries(
        metrics.map((m: { metric: string; value: number }) => [m.metric, m.value]),
      );
    };
    const whole = await run();
    assert(Math.abs(whole.perplexity - Math.exp(whole.loss)) < 1e-6);
    const row = JSON.stringify({ prompt: "", continuation: text });
    const { stdout } = await runParscale(["score", "--model", TINY, "--jsonl"], {
      stdin: row,
    });
    const [{ loglikelihood, token_logprobs }] = parseLines(stdout);
    assert(Math.abs(whole.loss + loglikelihood / token_logprobs.length) < 1e-5);
    const bits = -loglikelihood / Math.LN2 / text.length;
    assert(Math.abs(whole.bits_per_byte - bits) < 1e-5);
    // A window sees at least one token before what it scores.
    assert((await run("--max-length", "64")).loss > whole.loss * 0.9);
  }));

Deno.test("ls needs no model, tells what is there, and lists suites", async () => {
  const stdout = await succeed(["eval", "ls"]);
  for (const text of ["gsm8k", "minerva_math", "arc = arc_easy, arc_challenge"]) {
    assertStringIncludes(stdout, text);
  }
  const listed = await runParscale(["eval", "ls", "--data", DATA, "--jsonl"]);
  const rows = parseLines(listed.stdout);
  const found = Object.fromEntries(rows.map((row) => [row.task, row.found]));
  assertEquals(found.gsm8k, "12 rows, 7473 to draw from");
  assertEquals(found.perplexity, "missing");
});

Deno.test("show prints one row per request, or prompts to be read", async () => {
  const args = ["eval", "show", "arc_easy", "--data", DATA, "--ids", "3,4", "--jsonl"];
  const rows = parseLines((await runParscale(args)).stdout);
  assertEquals(new Set(rows.map(({ doc_id }) => doc_id)), new Set([3, 4]));
  assertEquals(Object.keys(rows[0]), ["doc_id", "kind", "context", "continuation"]);
  const golden = parseLines(Deno.readTextFileSync(`${GOLDEN}requests_arc_easy.jsonl`));
  assertEquals(rows[0].context, golden[3].context);
  const read = await succeed(["eval", "show", "gsm8k", "-n", "2", "--data", DATA]);
  assertEquals(read.match(/^--- gsm8k \d: prompt$/gm), [
    "--- gsm8k 0: prompt",
    "--- gsm8k 1: prompt",
  ]);
  assertStringIncludes(read, '--- at most 256 tokens, until "Question:"');
});

Deno.test("--fail-under: 0 where all scores reach their bounds, else 1 with the score", async () => {
  const args = [...EVAL, ...tasks("piqa"), "--ids", "0..9"];
  assertEquals((await runParscale([...args, "--fail-under", "piqa=0.7"])).code, 0);
  const missed = await runParscale([...args, "--fail-under", "piqa=0.71,piqa.acc=0.5", "-q"]);
  assertEquals(missed.code, 1);
  assertEquals(
    missed.stderr,
    "missed: piqa: acc_norm is 0.7000, below the required 0.71\n",
  );
});

Deno.test("sampled answers depend on the seed, not on what else is asked", () =>
  withScratch(async (cwd) => {
    const run = async (out: string, ...more: string[]) => {
      const args = ["--temperature", "1", "--n-samples", "2", "--max-tokens", "8", "--out", out];
      await runEval([...args, ...more], cwd);
      return sortedLines(`${cwd}/${out}/samples.jsonl`);
    };
    const all = await run("a", ...tasks("gsm8k", "gsm8k_cot"), "--limit", "3");
    assertEquals(all.length, 12);
    const some = await run("b", ...tasks("gsm8k_cot"), "--ids", "2", "--batch", "1");
    assertEquals(some, all.filter(({ task, doc_id }) => task === "gsm8k_cot" && doc_id === 2));
    assert(some[0].text !== some[1].text);
    const other = await run("c", ...tasks("gsm8k_cot"), "--ids", "2", "--seed", "1");
    assert(other[0].text !== some[0].text);
  }));

Deno.test("beams answer in free words too", () =>
  withScratch(async (cwd) => {
    const args = [...tasks("gsm8k"), "--limit", "2", "--max-tokens", "8"];
    await runEval([...args, "--num-beams", "4", "--out", "beams"], cwd);
    await runEval([...args, "--out", "greedy"], cwd);
    const texts = (out: string) => sortedLines(`${cwd}/${out}/samples.jsonl`).map((s) => s.text);
    assertEquals(texts("beams").length, 2);
    assert(texts("beams").join() !== texts("greedy").join());
  }));

Deno.test("a preset sets tasks and shots and prints the paper's table", async () => {
  const { stdout } = await runEval([
    ...["--preset", "paper-instruct", "--limit", "2", "--max-tokens", "4"],
  ]);
  assertStringIncludes(stdout, "Instruct, percent");
  assert(/IFEval +MMLU +GSM8K +Average/.test(stdout), stdout);
  assert(/^gsm8k +1 +4 +2 +strict_match/m.test(stdout), stdout);
});

Deno.test("--dry-run says what would be asked and opens no model", async () => {
  const args = ["eval", "--model", "nowhere", "--data", DATA, "--limit", "3", "--n-samples", "10"];
  const stdout = await succeed([...args, ...tasks("piqa,humaneval"), "--dry-run"]);
  assertStringIncludes(stdout, "piqa: 3 of 12 rows, 5 shots, log-likelihoods of choices");
  assertStringIncludes(stdout, "humaneval: 3 of 164 rows, 0 shots, 11 answers of at most 768");
});

Deno.test("misuse is refused before a model is opened", async () => {
  const evaluate = EVAL.join(" ");
  await assertRefusals([
    ["eval -q", 2, "error: `eval` needs `--tasks`\n"],
    ["eval --tasks gsm9k -q", 2, 'error: unknown task "gsm9k"\n'],
    ["eval --tasks gsm8k -q", 2, "error: `eval` needs `--model`\n"],
    [`eval --tasks gsm8k --data ${DATA} -q`, 2, "error: `eval` needs `--model`\n"],
    [
      `${evaluate} --tasks gsm8k --shots four -q`,
      2,
      'error: invalid value "four" for `--shots`: must be a number, or TASK=NUMBER\n',
    ],
    [
      `${evaluate} --tasks gsm8k --shots mmlu=4 -q`,
      2,
      "error: `--shots mmlu=4` names a task that is not among --tasks: gsm8k\n",
    ],
    [
      `${evaluate} --tasks gsm8k --shard 3/2 -q`,
      2,
      'error: invalid value "3/2" for `--shard`: must be I/N with I from 1 to N, or auto\n',
    ],
    [
      `${evaluate} --tasks gsm8k --ids 12 -q`,
      2,
      "error: gsm8k has no row 12: of its 12 rows, 0 to 11 are evaluated\n",
    ],
    [
      `${evaluate} --tasks gsm8k --fail-under gsm8k.acc=0.5 -q`,
      2,
      "error: `--fail-under gsm8k.acc=0.5` names an unknown metric of gsm8k\n",
    ],
    [
      `${evaluate} --tasks gsm8k --num-beams 4 --temperature 1 -q`,
      2,
      "error: `--num-beams 4` cannot be combined with `--temperature`\n",
    ],
    [
      `${evaluate} --tasks humaneval -q`,
      2,
      "error: scoring programs runs code written by a model: pass `--allow-code-execution`\n",
    ],
    [`${evaluate} --tasks gsm8k --predict-only -q`, 2, "error: `--predict-only` needs `--out`\n"],
  ]);
});

Deno.test("rows that are not what they should be name their place", () =>
  withScratch(async (cwd) => {
    const refused = async (task: string, rows: string, message: string) => {
      await Deno.writeTextFile(`${cwd}/rows.jsonl`, rows);
      const args = ["eval", "show", task, "--shots", "0", "--data", "rows.jsonl", "-n", "1", "-q"];
      assertRefused(await runParscale(args, { cwd }), 3, message);
    };
    const at = 'row 1 of "rows.jsonl"';
    await refused(
      "gsm8k",
      jsonLines({ question: "1+1?" }),
      `${at} has no column "answer": its columns are "question"`,
    );
    await refused(
      "piqa",
      jsonLines({ goal: "g", sol1: "a", sol2: "b", label: 2 }),
      `${at} has 2 in column "label", expected an integer from 0 to 1`,
    );
    await refused("gsm8k", "", '"rows.jsonl" has no rows');
    const broken = '{"question": "1+1?", "answer": "#### 2"}\n{"question": "2+';
    await refused(
      "gsm8k",
      broken,
      'row 2 of "rows.jsonl" is not valid JSON: unterminated string in JSON at position 16 ' +
        "(line 1 column 17)",
    );
    const twice = { key: 7, prompt: "p", instruction_id_list: [], kwargs: [] };
    await Deno.mkdir(`${cwd}/data/ifeval`, { recursive: true });
    await Deno.writeTextFile(`${cwd}/data/ifeval/input_data.jsonl`, jsonLines(twice, twice));
    assertRefused(
      await runParscale(["eval", "show", "ifeval", "--data", "data", "-q"], { cwd }),
      3,
      'row 2 of "data/ifeval/input_data.jsonl" repeats "key" 7 of row 1 of ' +
        '"data/ifeval/input_data.jsonl"',
    );
  }));

Deno.test("a task without rows is left out, and the others are evaluated", () =>
  withScratch(async (cwd) => {
    const options = { cwd, env: { PARSCALE_CACHE: cwd, HF_HUB_OFFLINE: "1", HF_HOME: cwd } };
    await Deno.symlink(`${DATA}/piqa`, `${cwd}/piqa`);
    const args = ["eval", "--model", TINY, ...tasks("sciq", "piqa"), "--ids", "0,1"];
    const { code, stdout, stderr } = await runParscale([...args, "--data", ".", "--json"], options);
    assertEquals(code, 1, stderr);
    const { results } = JSON.parse(stdout);
    assertEquals(results.tasks.map(({ task }: { task: string }) => task), ["piqa"]);
    assertEquals(results.left_out.map(({ task }: { task: string }) => task), ["sciq"]);
    assertStringIncludes(stderr, 'warning: sciq is left out: "sciq" has no "test"');

    const none = ["eval", "--model", TINY, ...tasks("sciq", "race"), "--data", "."];
    const nothing =
      '"sciq" has no "test" (.jsonl, .json, .parquet or .csv) for sciq: it has no data files';
    assertRefused(await runParscale(none, options), 3, nothing);
    const fetched = ["eval", "--model", TINY, ...tasks("perplexity", "sciq")];
    assertRefused(
      await runParscale(fetched, options),
      2,
      "perplexity needs `--data`: its rows are not published",
    );
  }));

Deno.test("the training split under the name of the evaluated one is refused", () =>
  withScratch(async (cwd) => {
    await Deno.mkdir(`${cwd}/gsm8k`);
    const rows = jsonLines({ question: "q", answer: "#### 1" }).repeat(7473);
    for (const name of ["test", "train"]) {
      await Deno.writeTextFile(`${cwd}/gsm8k/${name}.jsonl`, rows);
    }
    assertRefused(
      await runParscale(["eval", "show", "gsm8k", "--data", cwd]),
      3,
      "the file of gsm8k is its training split: it has 7473 rows, expected 1319",
    );
  }));

function tasks(...names: string[]): string[] {
  return ["--tasks", names.join()];
}
