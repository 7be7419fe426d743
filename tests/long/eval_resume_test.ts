/** Evaluations that are killed, spread over shards, or scored later give what a single run gives. */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { comparable, DATA, EVAL, runEval, sortedLines } from "../cli/eval_testing.ts";
import { documentOf, jsonLines, parseLines } from "../cli/models.ts";
import { parscale, runParscale, runShell, wordsOf } from "../cli/run.ts";
import { withScratch } from "../scratch.ts";

/** Choices that share contexts, and answers in free words, sampled. */
const ROWS = "--tasks arc_easy,mmlu,gsm8k,gsm8k_cot --limit 8";
const WORK = `${ROWS} --max-tokens 24 --temperature 0.7 --n-samples 2`;

let base = "";

/** The run that tests compare with is made once. */
Deno.test.beforeAll(async () => {
  base = await Deno.makeTempDir({ prefix: "parscale-test-" });
  await runEval(`${WORK} --out whole`, base);
});

Deno.test.afterAll(() => Deno.remove(base, { recursive: true }));

// deno-lint-ignore no-explicit-any -- tests look at any field
const statsOf = (folder: string): any =>
  JSON.parse(Deno.readTextFileSync(`${folder}/results.json`)).results.stats;

/** Starts or resumes an evaluation and kills it once it has written some more samples. */
async function killAfter(more: number, cwd: string, signal: Deno.Signal): Promise<number> {
  const path = `${cwd}/killed/samples.jsonl`;
  const written = () => {
    try {
      return Deno.readTextFileSync(path).split("\n").length - 1;
    } catch {
      return 0;
    }
  };
  const lines = written() + more;
  const child = parscale([...EVAL, ...wordsOf(`${WORK} --out killed`)], {
    cwd,
    stdout: "null",
    stderr: "null",
  }).spawn();
  const ended = child.status;
  let running = true;
  ended.then(() => running = false);
  while (running && written() < lines) await new Promise((resolve) => setTimeout(resolve, 5));
  if (running) child.kill(signal);
  return (await ended).code;
}

Deno.test("killed and interrupted: finished rows are not run twice, results and statistics are equal", () =>
  withScratch(async (cwd) => {
    const killed = `${cwd}/killed`, path = `${killed}/samples.jsonl`;
    const secondsOfRuns = () => [
      ...new Map(
        parseLines(Deno.readTextFileSync(`${killed}/stats.jsonl`)).map((row) => [
          row.run,
          row.seconds,
        ]),
      ).values(),
    ];
    await killAfter(1, cwd, "SIGKILL");
    assertEquals(await killAfter(1, cwd, "SIGTERM"), 143);
    await killAfter(12, cwd, "SIGKILL");
    // What a crash of the machine could leave.
    await Deno.writeTextFile(path, '{"task":"gsm8k","doc', { append: true });
    const before = parseLines(Deno.readTextFileSync(path).replace(/[^\n]*$/, ""));
    const earlier = secondsOfRuns();
    const { stderr } = await runEval(`${WORK} --out killed --resume`, cwd);
    assertStringIncludes(stderr, `resuming "killed": ${before.length} samples done`);
    const after = parseLines(Deno.readTextFileSync(path));
    assertEquals(after.slice(0, before.length), before);
    assertEquals(sortedLines(path), sortedLines(`${base}/whole/samples.jsonl`));
    assertEquals(comparable(killed), comparable(`${base}/whole`));

    const whole = statsOf(`${base}/whole`);
    const { samples, seconds, new_tokens, peak_rss_bytes } = statsOf(killed);
    assertEquals([samples, new_tokens], [whole.samples, whole.new_tokens]);
    assertEquals(secondsOfRuns().length, earlier.length + 1);
    const known = earlier.reduce((sum, one) => sum + one, 0);
    assert(seconds > known && peak_rss_bytes > 1e7, `${seconds} after ${known}`);
    await runEval(`${WORK} --out killed`, cwd);
    const again = statsOf(killed);
    assertEquals([again.samples, again.new_tokens], [samples, new_tokens]);
    assert(again.seconds >= seconds, `${again.seconds}`);
  }));

Deno.test("answers now, scores later: the file scores as the run did, also from stdin", () =>
  withScratch(async (cwd) => {
    const { stdout } = await runEval(`${WORK} --out answers --predict-only --json`, cwd);
    const { schema, results: answers } = JSON.parse(stdout);
    assertEquals([schema, answers.out], ["parscale.eval-answers/1", "answers"]);
    assertEquals(answers.samples, sortedLines(`${cwd}/answers/samples.jsonl`).length);
    const rest = `${ROWS} --data ${DATA} --json -q`, path = "answers/samples.jsonl";
    const { results: { tasks } } = await documentOf(`eval --score ${path} ${rest}`, { cwd });
    assertEquals(tasks, comparable(`${base}/whole`).results.tasks);
    const piped = await runShell(`cat ${path} | parscale eval --score - ${rest}`, { cwd });
    assertEquals(JSON.parse(piped.stdout).results.tasks, tasks);
  }));

const GSM8K = `eval --tasks gsm8k --shots 0 --data ${DATA} --score - --json`;

Deno.test("samples of other tools: generate's rows and the harness's", async () => {
  const answers = ["#### 18", "so it is 3.", "#### 70,000"];
  const layouts = [
    answers.map((text, id) => ({ id, text, tokens: [1], finish_reason: "stop" })),
    answers.flatMap((text, doc_id) =>
      ["strict-match", "flexible-extract"].map((filter) => ({
        doc_id,
        doc: {},
        target: "",
        resps: [[text]],
        filter,
      }))
    ),
    answers.map((text, doc_id) => ({ task: "gsm8k", doc_id, text })),
  ];
  for (const rows of layouts) {
    const { code, stdout, stderr } = await runParscale(GSM8K, { stdin: jsonLines(...rows) });
    assertEquals(code, 0, stderr);
    assertStringIncludes(stderr, "gsm8k has no answers to 9 of 12 rows, row 3 first");
    const [{ rows: count, metrics }] = JSON.parse(stdout).results.tasks;
    const values = metrics.map(({ value }: { value: number }) => value);
    assertEquals([count, values], [3, [2 / 3, 1]]);
  }
});
