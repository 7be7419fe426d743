/** `parscale compare` as a black box: models, folders, documents, the paper's table, regressions. */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { pairedDifference } from "../../core/eval/harness/paired.ts";
import { DATA, TINY } from "./eval_testing.ts";
import {
  assertRefusals,
  documentOf,
  jsonLines,
  MODEL,
  parseLines,
  PLAIN_MODEL,
  rowsOf,
  succeed,
} from "./models.ts";
import { runParscale, runProcess, runShell } from "./run.ts";
import { withScratch } from "../scratch.ts";

const GSM8K = `--tasks gsm8k --shots 0 --data ${DATA}`;

Deno.test("models: one evaluation per method, kept, and gone on with", () =>
  withScratch(async (cwd) => {
    const line = `compare --model ${PLAIN_MODEL} --parscale ${MODEL} --beams 2 ${GSM8K} ` +
      "--limit 3 --max-tokens 6 --latency-rows 2 --out table -q";
    const env = { PARSCALE_TOP_P: "0.5" }; // of `eval` alone
    const rows = await rowsOf(line, { cwd, env });
    assertEquals(rows.map(({ label }) => label), ["P=1", "2 beams", "P=2"]);
    const [sample] = parseLines(await Deno.readTextFile(`${cwd}/table/p1/samples.jsonl`));
    assertEquals(sample.temperature, 0);
    for (const row of rows) {
      assertEquals([row.task, row.metric, row.rows], ["gsm8k", "strict_match", 3]);
      assert(row.latency_s > 0 && row.peak_rss_bytes > 1e7, JSON.stringify(row));
      assertEquals(row.difference === null, row.label === "P=1");
    }
    const modified = () => Deno.statSync(`${cwd}/table/p1/samples.jsonl`).mtime;
    const before = modified();
    const again = await succeed(line, { cwd });
    assertEquals(modified(), before);
    const none = "no method differs from the first beyond its 95% interval";
    assertStringIncludes(again, `gsm8k (strict_match, 3 rows): ${none}`);
    assert(/^P or beams +gsm8k ParScale +gsm8k beam/.test(again), again);
  }));

Deno.test("--overwrite compares anew, and fewer rows than are timed are enough", () =>
  withScratch(async (cwd) => {
    const row = jsonLines({ question: "How many?", answer: "Two. #### 2" });
    await Deno.writeTextFile(`${cwd}/one.jsonl`, row);
    const line =
      `compare --model ${PLAIN_MODEL} --beams 2 --tasks gsm8k --shots 0 --data one.jsonl`;
    await succeed(`${line} --max-tokens 3 --out kept -q`, { cwd });
    const samples = () => Deno.readTextFileSync(`${cwd}/kept/p1/samples.jsonl`), before = samples();
    const refused = await runParscale(`${line} --max-tokens 2 --out kept -q`, { cwd });
    assertEquals(refused.code, 2);
    const rows = await rowsOf(`${line} --max-tokens 2 --out kept --overwrite -q`, { cwd });
    assertEquals(rows.map(({ label, rows }) => [label, rows]), [["P=1", 1], ["2 beams", 1]]);
    assert(samples() !== before);
  }));

/** Metrics of 40 rows, of which others are worse or better. */
const BASE = Array.from({ length: 40 }, (_, i) => Number(i % 2 === 0));
const WORSE = BASE.map((value, i) => i < 12 ? 0 : value);
const BETTER = BASE.map((value, i) => i < 20 ? 1 : value);

/** Returns the document of `parscale eval --json` for scores of 0 and 1. */
function evaluated(
  values: readonly number[],
  { streams = 1, out = null as string | null, prompts = "abc" } = {},
): string {
  const n = values.length;
  const value = values.reduce((sum, x) => sum + x, 0) / n;
  const stderr = Math.sqrt(value * (1 - value) / (n - 1));
  const metrics = [{ metric: "strict_match", value, stderr, n }];
  const tasks = [{ task: "gsm8k", metrics, prompts_sha256: prompts }];
  const results = { streams, num_beams: 1, tasks };
  return JSON.stringify({ schema: "parscale.eval/1", config: { out }, results }, null, 2) + "\n";
}

/** Writes the folder of a finished evaluation with these metrics. */
function finish(folder: string, values: readonly number[], streams = 1, num_beams = 1): void {
  Deno.mkdirSync(folder);
  const write = (name: string, text: string) => Deno.writeTextFileSync(`${folder}/${name}`, text);
  write("config.json", JSON.stringify({ streams, num_beams }));
  write("results.json", evaluated(values, { streams }));
  const scores = values.map((value, doc_id) => ({
    task: "gsm8k",
    doc_id,
    group: "",
    request: `${doc_id}`,
    metrics: { strict_match: value },
  }));
  write("scores.jsonl", jsonLines(...scores));
}

Deno.test("one path beside flags of an evaluation is the model", () =>
  withScratch(async (cwd) => {
    const line = `compare ${PLAIN_MODEL} --parscale ${MODEL} --beams 2 ${GSM8K} --dry-run --json`;
    const { results } = JSON.parse((await runParscale(line, { cwd })).stdout);
    assertEquals(results.plan.slice(0, 2), [
      `parscale eval --model ${PLAIN_MODEL}`,
      `parscale eval --model ${PLAIN_MODEL} --num-beams 2`,
    ]);
  }));

Deno.test("folders: differences are paired, and a regression of streams ends with 1", () =>
  withScratch(async (cwd) => {
    finish(`${cwd}/p1`, BASE);
    finish(`${cwd}/p4`, BETTER, 4);
    finish(`${cwd}/bad`, WORSE, 2);
    finish(`${cwd}/beams`, WORSE, 1, 4);
    const [, p4, beams] = await rowsOf("compare p1 p4 beams", { cwd });
    assertEquals([p4.method, p4.scale, p4.value, p4.difference], ["parscale", 4, 0.75, 0.25]);
    const { low, high } = pairedDifference(BETTER, BASE)!;
    assertEquals([p4.difference_low, p4.difference_high], [low, high]);
    assertEquals([beams.method, beams.scale], ["beam", 4]);

    const bad = await runParscale("compare p1 bad", { cwd });
    assertEquals(bad.code, 1);
    assertStringIncludes(bad.stderr, "P=2 is worse than P=1 on gsm8k");
    const table = await succeed("compare p1 p4 beams", { cwd });
    assertStringIncludes(table, "0.750 (+0.250 ± 0.14");
    assertStringIncludes(table, "P=4 better, 4 beams worse");

    finish(`${cwd}/other`, WORSE, 4);
    const twice = await runParscale("compare p4 other", { cwd });
    assert(/^4, "p4" .*0.750/m.test(twice.stdout) && /^4, "other"/m.test(twice.stdout));
    assertStringIncludes(twice.stderr, 'P=4, "other" is worse than P=4, "p4" on gsm8k');

    finish(`${cwd}/a`, [1, 0, 1]);
    finish(`${cwd}/b`, [1, 0], 2);
    const rows = 'error: only one of "b" and "a" has row 2 of gsm8k\n';
    await assertRefusals([["compare a b", 3, rows]], { cwd });
    const closed = "parscale compare p1 p4 --jsonl | head -c 20 >/dev/null; echo ${PIPESTATUS[0]}";
    assertEquals(await runShell(closed, { cwd }), { code: 0, stdout: "0\n", stderr: "" });
  }));

Deno.test("--quantize of eval shows beside exact weights what fewer bits cost", () =>
  withScratch(async (cwd) => {
    const evaluate = `eval --model ${TINY} --tasks perplexity --data book.txt`;
    await Deno.writeTextFile(`${cwd}/book.txt`, "Once upon a time there was a model. ".repeat(9));
    const loss: number[] = [];
    for (const bits of ["none", "q8", "q4"]) {
      const line = `${evaluate} --quantize ${bits} --out ${bits}`;
      const { results } = await documentOf(line, { cwd });
      assertEquals(results.quantize, bits === "none" ? null : bits);
      assertEquals(results.tasks[0].task, "perplexity");
      loss.push(results.tasks[0].metrics.at(-1).value);
    }
    const [exact, q8, q4] = loss as [number, number, number];
    const off = (value: number) => Math.abs(value - exact);
    assert(off(q8) > 0 && off(q8) < 0.1 && off(q4) > off(q8) && off(q4) < 2, loss.join());
    // Samples of exact weights are not gone on with.
    const mixed = await runParscale(`${evaluate} --quantize q4 --out none`, { cwd });
    assertEquals(mixed.code, 2, mixed.stderr);

    const rows = await rowsOf("compare none q8 q4", { cwd });
    const labels = rows.map(({ label, quantize }) => `${label} is ${quantize}`);
    assertEquals(labels, ["P=1 is null", "P=1, q8 is q8", "P=1, q4 is q4"]);
    const table = await succeed("compare none q8 q4", { cwd });
    const found = table.split("\n").map((line) => line.trim().split(/ {2,}/)[0]);
    for (const name of ["1", "1, q8", "1, q4"]) assert(found.includes(name), table);
  }));

Deno.test("stdin: documents give differences of means, rows where their folder is still there", async () => {
  const stdin = evaluated(BASE) + evaluated(BETTER, { streams: 4 });
  const [first, second] = await rowsOf("compare -", { stdin });
  assertEquals([first.label, first.paired], ["P=1", null]);
  assertEquals([second.label, second.paired], ["P=4", false]);
  assertEquals([second.value, second.difference], [0.75, 0.25]);
  // Welch: standard errors 0.0801 and 0.0693, 76 degrees of freedom, t 1.9917.
  assert(Math.abs(second.difference_high - 0.25 - 1.9917 * Math.hypot(0.080064, 0.069338)) < 1e-4);
  const table = await succeed("compare -", { stdin });
  assertStringIncludes(table, "gsm8k (strict_match, 40 rows, means only)");
  assertStringIncludes(table, "P=4 better");

  await withScratch(async (cwd) => {
    finish(`${cwd}/p1`, BASE);
    finish(`${cwd}/p4`, BETTER, 4);
    const last = async (line: string, stdin: string) =>
      (await rowsOf(`compare ${line}`, { cwd, stdin })).at(-1);
    const kept = evaluated(BASE, { out: "p1" });
    const documents = kept + evaluated(BETTER, { streams: 4, out: "p4" });
    for (const line of ["-", "p1 -"]) {
      const { paired, difference_low } = await last(line, documents);
      assertEquals([paired, difference_low], [true, pairedDifference(BETTER, BASE)!.low]);
    }
    // Evaluated anew since the document was written: its rows are no longer the document's.
    const old = kept + evaluated(BASE, { streams: 4, out: "p4" });
    assertEquals((await last("-", old)).paired, false);
    // A folder that is no longer a finished evaluation is as good as none.
    await Deno.remove(`${cwd}/p4/scores.jsonl`);
    assertEquals((await last("-", documents)).paired, false);
  });
});

Deno.test("stdin: a regression ends with 1, and a line that is not a document is refused", async () => {
  const [base, worse] = [[1, 1, 1, 1, 1, 1, 1, 0], [0, 0, 0, 0, 0, 0, 0, 1]];
  const compare = (stdin: string) => runParscale("compare -", { stdin });
  const bad = await compare(evaluated(base) + evaluated(worse, { streams: 2 }));
  assertEquals([bad.code, bad.stderr], [1, "warning: P=2 is worse than P=1 on gsm8k\n"]);
  const one = evaluated(base), other = evaluated(worse, { prompts: "other" });
  const differ = "document 2 of stdin and document 1 of stdin have different prompts for gsm8k";
  await assertRefusals([
    [compare(one), 2, "error: `compare` needs at least two evaluations; there is one\n"],
    [compare(`${one}oops`), 3, 'error: document 2 of stdin is not valid JSON: "oops"\n'],
    [compare(one + other), 3, `error: ${differ}\n`],
  ]);
});

Deno.test("documents whose results and folders whose scores are damaged are refused by name", () =>
  withScratch(async (cwd) => {
    const whole = evaluated(BASE), metric = '"metric": "strict_match"';
    const damaged = (found: string | RegExp, text: string) => whole.replace(found, text);
    const first = "the first metric of gsm8k in document 2 of stdin has";
    const documents = [
      [damaged('"value": 0.5', '"value": "0.5"'), `${first} value "0.5", expected a number`],
      [damaged('"value": 0.5', '"value": null'), `${first} value null, expected a number`],
      [damaged('"n": 40', '"n": -1'), `${first} n -1, expected an integer of at least 0`],
      [damaged(metric, '"metric": 5'), `${first} metric 5, expected text`],
      [damaged(/"stderr": [^,]+/, '"stderr": "x"'), `${first} stderr "x", expected a number`],
      [damaged('"tasks"', '"others"'), "results of document 2 of stdin has tasks nothing"],
    ].map(([document, message]) =>
      [runParscale("compare -", { stdin: whole + document }), 3, `error: ${message}`] as const
    );
    finish(`${cwd}/p1`, BASE);
    finish(`${cwd}/bad`, BASE);
    Deno.writeTextFileSync(`${cwd}/bad/scores.jsonl`, "{bad\n");
    const line = 'error: line 1 of "bad/scores.jsonl" ';
    await assertRefusals([...documents, ["compare p1 bad", 3, line]], { cwd });
  }));

Deno.test("stdin: what eval prints is what compare reads", async () => {
  const asked = `${GSM8K} --limit 2 --max-tokens 4 --json -q`;
  const { stdout, stderr } = await runShell(
    `(parscale eval --model ${PLAIN_MODEL} ${asked}; parscale eval --model ${MODEL} ${asked}) | ` +
      "parscale compare - --jsonl",
  );
  assertEquals(stderr, "");
  const compared = parseLines(stdout).map(({ label, rows }) => [label, rows]);
  assertEquals(compared, [["P=1", 2], ["P=2", 2]]);
});

Deno.test("an evaluation that fails ends the comparison with its own exit code", async () => {
  const compare = `compare --tasks gsm8k --data ${DATA} --limit 1 --model ${PLAIN_MODEL}`;
  await assertRefusals([[
    runProcess(`${compare} --memory-limit 1`),
    4,
    "error: the model exceeds the memory limit of 1 bytes",
    "error: `parscale eval --model",
    "failed with exit code 4\n\nhint: its own error stands above",
  ]]);
});
