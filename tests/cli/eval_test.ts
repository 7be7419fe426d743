/** `parscale eval` as a black box: scores of the reference, prompts, formats, pipes. */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import {
  assertRefused,
  documentOf,
  jsonLines,
  parseLines,
  PLAIN_MODEL,
  rowsOf,
  succeed,
} from "./models.ts";
import { DATA, EVAL, runEval, sortedLines, TINY } from "./eval_testing.ts";
import { runParscale, runShell } from "./run.ts";
import { withScratch } from "../scratch.ts";
import { FIXTURES } from "../fixtures.ts";

const GOLDEN = `${FIXTURES}golden/eval/`;
const SUMMARY = JSON.parse(Deno.readTextFileSync(`${GOLDEN}metrics_summary.json`));

const CHOICES = "winogrande,piqa,arc_challenge";

/** Tasks of an evaluation's document. */
// deno-lint-ignore no-explicit-any -- tests look at any field
async function tasksOf(line: string): Promise<any[]> {
  return JSON.parse((await runEval(`${line} --json`)).stdout).results.tasks;
}

const tasksIn = (tasks: readonly { task: string }[]) => tasks.map(({ task }) => task).join();

Deno.test("choice tasks: accuracies are those of lm-evaluation-harness", async () => {
  const { stdout } = await runEval(`--tasks ${CHOICES} --ids 0..9 --json`);
  const document = JSON.parse(stdout);
  assertEquals(document.schema, "parscale.eval/1");
  assertEquals(tasksIn(document.results.tasks), CHOICES);
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
  for (const [name, flags] of [["mmlu", ""], ["mmlu_chat", "--chat"]]) {
    const [{ rows, groups, supergroups, metrics }] = await tasksOf(`--tasks mmlu ${flags}`);
    assertEquals([rows, groups.length, groups[0].n], [12, 6, 2]);
    const mean = groups.reduce((sum: number, { value }: { value: number }) => sum + value / 6, 0);
    assert(Math.abs(metrics[0].value - mean) < 1e-12);
    assert(supergroups.some(({ group }: { group: string }) => group === "stem"));
    for (const { group, value } of groups) {
      const expected = SUMMARY[`${name}/mmlu_${group}`];
      if (expected) assertEquals(value, expected.shared.acc, group);
    }
  }
});

Deno.test("prompts that do not fit are truncated on the left, with a warning", async () => {
  const line = "--tasks arc_challenge --ids 0,1 --max-length 256 --json";
  const { stdout, stderr } = await runEval(line);
  const { metrics } = JSON.parse(stdout).results.tasks[0];
  const { acc, acc_norm } = SUMMARY.arc_challenge_maxlen256.shared;
  assertEquals(metrics.map(({ value }: { value: number }) => value), [acc_norm, acc]);
  const told = "warning: 8 prompts exceed 256 tokens and were truncated on the left";
  assertStringIncludes(stderr, told);
});

Deno.test("greedy answers are the reference's, cut at the stop strings; beams give others", () =>
  withScratch(async (cwd) => {
    const answers = async (out: string, flags: string) => {
      await runEval(`--tasks gsm8k ${flags} --out ${out}`, cwd);
      return sortedLines(`${cwd}/${out}/samples.jsonl`);
    };
    const golden = parseLines(Deno.readTextFileSync(`${GOLDEN}requests_gsm8k.jsonl`));
    const greedy = await answers("greedy", "--shots 4 --ids 0..4 --max-tokens 48");
    for (const { doc_id, text, temperature } of greedy) {
      const { tiny_model_text, effective_until } = golden[doc_id];
      let expected = tiny_model_text;
      for (const stop of effective_until) expected = expected.split(stop)[0];
      assertEquals([text, temperature], [expected, 0]);
    }
    const few = "--limit 2 --max-tokens 8";
    const beams = (await answers("beams", `${few} --num-beams 4`)).map(({ text }) => text);
    const plain = (await answers("plain", few)).map(({ text }) => text);
    assertEquals(beams.length, 2);
    assert(beams.join() !== plain.join());
  }));

Deno.test("perplexity of a text is that of its tokens", () =>
  withScratch(async (cwd) => {
    const text = "Once upon a time there was a small model. ".repeat(30);
    await Deno.writeTextFile(`${cwd}/book.txt`, text);
    const run = async (flags = "") => {
      const line = `eval --model ${TINY} --tasks perplexity --data book.txt ${flags}`;
      const [{ metrics }] = (await documentOf(line, { cwd })).results.tasks;
      return Object.fromEntries(
        metrics.map((m: { metric: string; value: number }) => [m.metric, m.value]),
      );
    };
    const whole = await run();
    assert(Math.abs(whole.perplexity - Math.exp(whole.loss)) < 1e-6);
    const stdin = JSON.stringify({ prompt: "", continuation: text });
    const [{ loglikelihood, token_logprobs }] = await rowsOf(`score --model ${TINY}`, { stdin });
    assert(Math.abs(whole.loss + loglikelihood / token_logprobs.length) < 1e-5);
    const bits = -loglikelihood / Math.LN2 / text.length;
    assert(Math.abs(whole.bits_per_byte - bits) < 1e-5);
    // A window sees at least one token before what it scores.
    assert((await run("--max-length 64")).loss > whole.loss * 0.9);
    await Deno.writeTextFile(`${cwd}/book.txt`, "\u4f60".repeat(400));
    assertEquals((await run()).word_perplexity, null, "a text without blanks has no words");
  }));

Deno.test("labels of PIQA are found beside compressed rows", () =>
  withScratch(async (cwd) => {
    const row = new Blob([jsonLines({ goal: "Open", sol1: "Push.", sol2: "Sit." })]).stream();
    const file = await Deno.create(`${cwd}/valid.jsonl.gz`);
    await row.pipeThrough(new CompressionStream("gzip")).pipeTo(file.writable);
    await Deno.writeTextFile(`${cwd}/valid-labels.lst`, "1\n");
    await succeed("eval show piqa --shots 0 --data valid.jsonl.gz", { cwd });
  }));

Deno.test("samples of all shards, one of them without rows, are scored as those of one run", () =>
  withScratch(async (cwd) => {
    await Deno.mkdir(`${cwd}/data/piqa`, { recursive: true });
    await Deno.symlink(`${DATA}/sciq`, `${cwd}/data/sciq`);
    const row = { goal: "Open", sol1: "Push.", sol2: "Sit.", label: 0 };
    await Deno.writeTextFile(`${cwd}/data/piqa/valid.jsonl`, jsonLines(row));
    const tasks = "--tasks sciq,piqa --shots 0 --limit 2 --data data -q";
    const line = `eval --model ${TINY} ${tasks}`;
    for (const part of [1, 2, 3]) {
      await succeed(`${line} --shard ${part}/3 --out part-${part}`, { cwd });
    }
    await succeed(`${line} --out single`, { cwd });
    const { code, stderr } = await runShell(
      `cat part-*/samples.jsonl | parscale eval --score - ${tasks} --out all`,
      { cwd },
    );
    assertEquals([code, stderr], [0, ""]);
    const tasksOf = async (folder: string) =>
      JSON.parse(await Deno.readTextFile(`${cwd}/${folder}/results.json`)).results.tasks;
    assertEquals(await tasksOf("all"), await tasksOf("single"));
  }));

Deno.test("ls needs no model, tells what is there, and lists suites", async () => {
  const stdout = await succeed("eval ls");
  for (const text of ["gsm8k", "minerva_math", "arc = arc_easy, arc_challenge"]) {
    assertStringIncludes(stdout, text);
  }
  const rows = await rowsOf(`eval ls --data ${DATA}`);
  const found = Object.fromEntries(rows.map((row) => [row.task, row.found]));
  assertEquals(found.gsm8k, "12 rows, 7473 to draw from");
  assertEquals(found.perplexity, "missing");
});

Deno.test("show prints one row per request, or prompts to be read", async () => {
  const rows = await rowsOf(`eval show arc_easy --data ${DATA} --ids 3,4`);
  assertEquals(new Set(rows.map(({ doc_id }) => doc_id)), new Set([3, 4]));
  assertEquals(Object.keys(rows[0]), ["doc_id", "kind", "context", "continuation"]);
  const golden = parseLines(Deno.readTextFileSync(`${GOLDEN}requests_arc_easy.jsonl`));
  assertEquals(rows[0].context, golden[3].context);
  const read = await succeed(`eval show gsm8k -n 2 --data ${DATA}`);
  const titles = ["--- gsm8k 0: prompt", "--- gsm8k 1: prompt"];
  assertEquals(read.match(/^--- gsm8k \d: prompt$/gm), titles);
  assertStringIncludes(read, '--- at most 256 tokens, until "Question:"');
});

Deno.test("--fail-under: 0 where all scores reach their bounds, else 1 with the score", async () => {
  const line = `${EVAL.join(" ")} --tasks piqa --ids 0..9 --fail-under`;
  assertEquals((await runParscale(`${line} piqa=0.7`)).code, 0);
  const { code, stderr } = await runParscale(`${line} piqa=0.71,piqa.acc=0.5 -q`);
  assertEquals([code, stderr], [1, "missed: piqa: acc_norm is 0.7000, below the required 0.71\n"]);
});

Deno.test("sampled answers depend on the seed, not on what else is asked", () =>
  withScratch(async (cwd) => {
    const run = async (out: string, flags: string) => {
      const how = "--temperature 1 --n-samples 2 --max-tokens 8";
      await runEval(`${how} --out ${out} ${flags}`, cwd);
      return sortedLines(`${cwd}/${out}/samples.jsonl`);
    };
    const all = await run("a", "--tasks gsm8k,gsm8k_cot --limit 3");
    assertEquals(all.length, 12);
    const some = await run("b", "--tasks gsm8k_cot --ids 2 --batch 1");
    assertEquals(some, all.filter(({ task, doc_id }) => task === "gsm8k_cot" && doc_id === 2));
    assert(some[0].text !== some[1].text);
    const other = await run("c", "--tasks gsm8k_cot --ids 2 --seed 1");
    assert(other[0].text !== some[0].text);
  }));

Deno.test("a preset sets tasks and shots and prints the paper's table", async () => {
  const { stdout } = await runEval("--preset paper-instruct --limit 2 --max-tokens 4");
  assertStringIncludes(stdout, "Instruct, percent");
  assert(/IFEval +MMLU +GSM8K +Average/.test(stdout), stdout);
  assert(/^gsm8k +1 +4 +2 +strict_match/m.test(stdout), stdout);
});

Deno.test("--chat asks code tasks for a script; answers to completions are not resumed", () =>
  withScratch(async (cwd) => {
    const rows = "--tasks humaneval,mbpp --ids 1,0 --max-tokens 4 --predict-only --out run";
    await runEval(`${rows} --chat`, cwd);
    const { stderr } = await runEval(`${rows} --chat --resume`, cwd);
    assertStringIncludes(stderr, 'resuming "run": 4 samples done');
    const other = await runParscale([...EVAL, ...`${rows} --resume`.split(" ")], { cwd });
    assertRefused(other, 2, '"run" holds an evaluation that differs in chat');
    const completed = { task: "humaneval", doc_id: 0, request: "0f3c", text: "    pass" };
    const score = `eval --score - --tasks humaneval --limit 1 --data ${DATA} --chat`;
    const line = `${score} --allow-code-execution`;
    const refused = await runParscale(line, { stdin: jsonLines(completed) });
    assertRefused(refused, 3, "the sample of row 0 of humaneval answers another prompt");

    const shown = await succeed(`eval show mbpp --chat --model ${TINY} --data ${DATA}`);
    const start = "passes corresponding tests:\n```python\n\n--- at most 768 tokens, until";
    assertStringIncludes(shown, "following problem in a markdown code block:\n```\n");
    assertStringIncludes(shown, start);
    const plain = await succeed(`eval show mbpp --data ${DATA}`);
    assert(!plain.includes("```"));
  }));

Deno.test("--chat with a model that has no chat template is refused before anything is written", () =>
  withScratch(async (cwd) => {
    const line = `eval --model ${PLAIN_MODEL} --data ${DATA} --tasks humaneval --limit 1 --chat`;
    const predict = `${line} --predict-only --out run`;
    for (const flag of ["", "--dry-run"]) {
      const refused = await runParscale(`${predict} ${flag}`, { cwd });
      assertRefused(refused, 3, `"${PLAIN_MODEL}" has no chat template`);
    }
    assertEquals([...Deno.readDirSync(cwd)], []);
  }));

Deno.test("results tell for each task how it was asked", () =>
  withScratch(async (cwd) => {
    await Deno.mkdir(`${cwd}/perplexity`);
    await Deno.writeTextFile(`${cwd}/perplexity/text.txt`, "Once upon a time.");
    await Deno.symlink(`${DATA}/piqa`, `${cwd}/piqa`);
    const line = `eval --model ${TINY} --data . --tasks piqa,perplexity --limit 1`;
    const formats = async (flags: string) => {
      const { results } = await documentOf(`${line} ${flags}`, { cwd });
      return results.tasks.map((one: { prompt_format: string }) => one.prompt_format);
    };
    assertEquals(await formats(""), ["completion", "completion"]);
    assertEquals(await formats("--chat"), ["chat", "completion"]);
  }));

Deno.test("--dry-run says what would be asked, and of which model where one is given", async () => {
  const line = `eval --data ${DATA} --limit 3 --n-samples 10 --allow-code-execution --dry-run`;
  const stdout = await succeed(`${line} --tasks piqa,humaneval`);
  assertStringIncludes(stdout, "piqa: 3 of 12 rows, 5 shots, log-likelihoods of choices");
  assertStringIncludes(stdout, "humaneval: 3 of 164 rows, 0 shots, 11 answers of at most 768");
  const chat = await succeed(`${line} --tasks humaneval --chat`);
  assertStringIncludes(chat, "0 shots, chat prompts, 11 answers of at most 768");
  const asked = await succeed(`${line} --tasks piqa --model ${TINY}`);
  assertStringIncludes(asked, `model: ${TINY}, qwen2, 1 stream, on cpu\npiqa: 3 of 12 rows`);
});

Deno.test("a folder without an answer is that of no evaluation: other flags begin anew", () =>
  withScratch(async (cwd) => {
    await runEval("--tasks piqa --limit 1 --out run", cwd);
    const other = [...EVAL, ..."--tasks sciq --limit 1 --shots 0 --out run".split(" ")];
    const holds = '"run" holds an evaluation that differs in tasks, shots, data, rows';
    assertRefused(await runParscale(other, { cwd }), 2, holds);
    Deno.removeSync(`${cwd}/run/results.json`);
    for (const name of ["samples.jsonl", "scores.jsonl"]) Deno.truncateSync(`${cwd}/run/${name}`);
    const { code, stderr } = await runParscale(other, { cwd });
    assertEquals(code, 0, stderr);
    assertEquals(sortedLines(`${cwd}/run/samples.jsonl`)[0].task, "sciq");
    Deno.mkdirSync(`${cwd}/mine`);
    Deno.writeTextFileSync(`${cwd}/mine/notes`, "");
    const mine = await runParscale([...EVAL, ..."--tasks piqa --limit 1 --out mine".split(" ")], {
      cwd,
    });
    assertRefused(mine, 2, '"mine" already exists and is not an evaluation');
  }));

Deno.test("a task without rows is left out, and the others are evaluated", () =>
  withScratch(async (cwd) => {
    const options = { cwd, env: { PARSCALE_CACHE: cwd, HF_HUB_OFFLINE: "1", HF_HOME: cwd } };
    await Deno.symlink(`${DATA}/piqa`, `${cwd}/piqa`);
    const run = (flags: string) => runParscale(`eval --model ${TINY} --tasks ${flags}`, options);
    const { code, stdout, stderr } = await run("sciq,piqa --ids 0,1 --data . --json");
    assertEquals(code, 1, stderr);
    const { tasks, left_out } = JSON.parse(stdout).results;
    assertEquals([tasksIn(tasks), tasksIn(left_out)], ["piqa", "sciq"]);
    assertStringIncludes(stderr, 'warning: sciq is left out: "sciq" has no "test"');

    const nothing =
      '"sciq" has no "test" (.jsonl, .json, .parquet or .csv) for sciq: it has no data files';
    assertRefused(await run("sciq,race --data ."), 3, nothing);
    const needs = "perplexity needs `--data`: its rows are not published";
    assertRefused(await run("perplexity,sciq"), 2, needs);
  }));
