/** Evaluations that are killed, spread over shards, or scored later give what a single run gives. */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { comparable, DATA, EVAL, runEval, sortedLines } from "../cli/eval_testing.ts";
import { assertFailed, assertRefused, jsonLines, parseLines, succeed } from "../cli/models.ts";
import { parscale, runParscale, runShell } from "../cli/run.ts";
import { withScratch } from "../scratch.ts";

/** Choices that share contexts, and answers in free words, sampled. */
const WORK = [
  ...["--tasks", "arc_easy,mmlu,gsm8k,gsm8k_cot", "--limit", "8"],
  ...["--max-tokens", "24", "--temperature", "0.7", "--n-samples", "2"],
];

let base = "";

/** The run that tests compare with is made once. */
Deno.test.beforeAll(async () => {
  base = await Deno.makeTempDir({ prefix: "parscale-test-" });
  await runEval([...WORK, "--out", "whole"], base);
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
  const child = parscale([...EVAL, ...WORK, "--out", "killed"], {
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
    const { stderr } = await runEval([...WORK, "--out", "killed", "--resume"], cwd);
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
    await runEval([...WORK, "--out", "killed"], cwd);
    const again = statsOf(killed);
    assertEquals([again.samples, again.new_tokens], [samples, new_tokens]);
    assert(again.seconds >= seconds, `${again.seconds}`);
  }));

Deno.test("shards merge into the single run", () =>
  withScratch(async (cwd) => {
    for (const part of [1, 2, 3]) {
      await runEval([...WORK, "--shard", `${part}/3`, "--out", `part-${part}`], cwd);
    }
    const merge = (...parts: string[]) =>
      runParscale(["eval", "merge", ...parts, "--out", "merged"], { cwd });
    assertRefused(
      await merge("part-1", "part-3"),
      3,
      "the shards are incomplete: found 1/3, 3/3, expected 1/3 to 3/3",
    );
    const merged = await merge("part-3", "part-1", "part-2");
    assertEquals([merged.code, merged.stderr], [0, ""]);
    const [one, other] = [comparable(`${cwd}/merged`), comparable(`${base}/whole`)];
    assertEquals(one.scores, other.scores);
    assertEquals(one.results, other.results);
    const close = (folder: string) =>
      sortedLines(`${folder}/samples.jsonl`).map(({ loglikelihood, ...rest }) => ({
        ...rest,
        loglikelihood: loglikelihood?.map((x: number) => x.toFixed(3)),
      }));
    assertEquals(close(`${cwd}/merged`), close(`${base}/whole`));
  }));

Deno.test("answers now, scores later: the file scores as the run did, also from stdin", () =>
  withScratch(async (cwd) => {
    await runEval([...WORK, "--out", "answers", "--predict-only"], cwd);
    const data = ["--tasks", "arc_easy,mmlu,gsm8k,gsm8k_cot", "--limit", "8", "--data", DATA];
    const path = "answers/samples.jsonl";
    const scored = await succeed(["eval", "--score", path, ...data, "--json", "-q"], { cwd });
    const { tasks } = JSON.parse(scored).results;
    assertEquals(tasks, comparable(`${base}/whole`).results.tasks);
    const piped = await runShell(
      `cat ${path} | parscale eval --score - ${data.join(" ")} --json`,
      { cwd },
    );
    assertEquals(JSON.parse(piped.stdout).results.tasks, tasks);
  }));

Deno.test("a folder of another evaluation is refused, and replaced only when told", () =>
  withScratch(async (cwd) => {
    const args = ["--tasks", "piqa", "--limit", "2", "--out", "run"];
    await runEval(args, cwd);
    const other = [...EVAL, ...args, "--shots", "1"];
    assertFailed(
      await runParscale(other, { cwd }),
      2,
      '"run" holds an evaluation with another shots',
    );
    assertEquals((await runParscale([...other, "--overwrite"], { cwd })).code, 0);
    await Deno.mkdir(`${cwd}/mine`);
    await Deno.writeTextFile(`${cwd}/mine/notes`, "");
    const occupied = await runParscale([...EVAL, ...args.slice(0, 4), "--out", "mine"], { cwd });
    assertEquals(occupied.code, 2);
    const none = await runParscale([...EVAL, ...args.slice(0, 4), "--out", "x", "--resume"], {
      cwd,
    });
    assertEquals(none.code, 3);
  }));

const GSM8K = [
  "eval",
  "--tasks",
  "gsm8k",
  "--shots",
  "0",
  "--data",
  DATA,
  "--score",
  "-",
  "--json",
];

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

Deno.test("sample files that do not fit are refused with their line", async () => {
  const good = jsonLines({ task: "gsm8k", doc_id: 0, text: "#### 18" });
  const cases: [string, string][] = [
    [good + '{"task":"gsm8k","doc_id":1,"te', "line 2 of stdin is not valid JSON: unterminated"],
    [good + good, 'line 2 of stdin repeats the sample "gsm8k/0/0"'],
    [jsonLines({ a: 1 }), 'line 1 of stdin is not a known kind of sample: "a"'],
    [jsonLines({ task: "gsm8k", doc_id: 99, text: "" }), "row 99 of gsm8k is not among the"],
    [
      jsonLines({ task: "gsm8k", doc_id: 0, text: "", request: "0000000000000000" }),
      "the sample of row 0 of gsm8k answers another prompt",
    ],
    [jsonLines({ task: "piqa", doc_id: 0, text: "" }), "stdin holds no samples of"],
    [
      jsonLines({ task: "gsm8k", doc_id: 0, loglikelihood: [-1, -2] }),
      "the sample for row 0 of gsm8k has no text",
    ],
    [
      jsonLines({ id: 0, error: "too long" }),
      "line 1 of stdin is a failed row without an answer: ",
    ],
  ];
  for (const [stdin, message] of cases) {
    const { code, stdout, stderr } = await runParscale([...GSM8K.slice(0, -1), "-q"], { stdin });
    assertEquals([code, stdout], [3, ""]);
    assert(stderr.startsWith(`error: ${message}`), stderr);
  }
});
