/** `parscale compare` as a black box: models, folders, the paper's table, regressions, misuse. */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { differenceOfMeans, pairedDifference } from "../../core/eval/harness/paired.ts";
import { DATA, TINY } from "./eval_testing.ts";
import { assertRefusals, jsonLines, MODEL, parseLines, PLAIN_MODEL, rowsOf } from "./models.ts";
import { runParscale, runProcess, runShell } from "./run.ts";
import { withScratch } from "../scratch.ts";

const WORK = [
  ...["--tasks", "gsm8k", "--shots", "0", "--data", DATA],
  ...["--limit", "3", "--max-tokens", "6", "--latency-rows", "2"],
];

Deno.test("models: one evaluation per method, kept, and gone on with", () =>
  withScratch(async (cwd) => {
    const args = [
      ...["compare", "--model", PLAIN_MODEL, "--parscale", MODEL, "--beams", "2,4"],
      ...[...WORK, "--out", "table", "--jsonl", "-q"],
    ];
    const { code, stdout, stderr } = await runParscale(args, { cwd });
    assertEquals([code, stderr], [0, ""]);
    const rows = parseLines(stdout);
    assertEquals(rows.map(({ label }) => label), ["P=1", "2 beams", "4 beams", "P=2"]);
    for (const row of rows) {
      assertEquals([row.task, row.metric, row.rows], ["gsm8k", "strict_match", 3]);
      assert(row.latency_s > 0 && row.peak_rss_bytes > 1e7, JSON.stringify(row));
      assertEquals(row.difference === null, row.label === "P=1");
    }
    const modified = () => Deno.statSync(`${cwd}/table/p1/samples.jsonl`).mtime;
    const before = modified();
    const again = await runParscale(args.filter((arg) => arg !== "--jsonl"), { cwd });
    assertEquals(again.code, 0);
    assertEquals(modified(), before);
    assertStringIncludes(
      again.stdout,
      "gsm8k (strict_match, 3 rows): no method differs from the first beyond its 95% interval",
    );
    assert(/^P or beams +gsm8k ParScale +gsm8k beam/.test(again.stdout), again.stdout);
  }));

/** A finished evaluation with these metrics. */
async function finished(
  folder: string,
  identity: unknown,
  values: readonly number[],
  document = documentOf(values),
) {
  await Deno.mkdir(folder);
  await Deno.writeTextFile(`${folder}/config.json`, JSON.stringify(identity));
  await Deno.writeTextFile(`${folder}/results.json`, document);
  const scores = values.map((value, doc_id) => ({
    task: "gsm8k",
    doc_id,
    group: "",
    request: `${doc_id}`,
    metrics: { strict_match: value },
  }));
  await Deno.writeTextFile(`${folder}/scores.jsonl`, jsonLines(...scores));
}

Deno.test("folders: differences are paired, and a regression of streams ends with 1", () =>
  withScratch(async (cwd) => {
    const base = Array.from({ length: 40 }, (_, i) => Number(i % 2 === 0));
    const worse = base.map((value, i) => i < 12 ? 0 : value);
    const better = base.map((value, i) => i < 20 ? 1 : value);
    await finished(`${cwd}/p1`, { streams: 1, num_beams: 1 }, base);
    await finished(`${cwd}/p4`, { streams: 4, num_beams: 1 }, better);
    await finished(`${cwd}/bad`, { streams: 2, num_beams: 1 }, worse);
    await finished(`${cwd}/beams`, { streams: 1, num_beams: 4 }, worse);
    const run = (...folders: string[]) => runParscale(["compare", ...folders, "--jsonl"], { cwd });

    const good = await run("p1", "p4", "beams");
    assertEquals([good.code, good.stderr], [0, ""]);
    const [, p4, beams] = parseLines(good.stdout);
    assertEquals([p4.method, p4.scale, p4.value, p4.difference], ["parscale", 4, 0.75, 0.25]);
    const { low, high } = pairedDifference(better, base)!;
    assertEquals([p4.difference_low, p4.difference_high], [low, high]);
    assertEquals([beams.method, beams.scale], ["beam", 4]);

    const bad = await run("p1", "bad");
    assertEquals(bad.code, 1);
    assertStringIncludes(bad.stderr, "P=2 is worse than P=1 on gsm8k");
    const table = await runParscale(["compare", "p1", "p4", "beams"], { cwd });
    assertStringIncludes(table.stdout, "0.750 (+0.250 ± 0.14");
    assertStringIncludes(table.stdout, "P=4 better, 4 beams worse");
  }));

Deno.test("--quantize of eval shows beside exact weights what fewer bits cost", () =>
  withScratch(async (cwd) => {
    const run = (bits: string, ...more: string[]) =>
      runParscale([
        ...["eval", "--model", TINY, "--tasks", "perplexity", "--data", "book.txt"],
        ...["--quantize", bits, "--out", bits, "--json", ...more],
      ], { cwd });
    await Deno.writeTextFile(`${cwd}/book.txt`, "Once upon a time there was a model. ".repeat(9));
    const loss: number[] = [];
    for (const bits of ["none", "q8", "q4"]) {
      const { code, stdout, stderr } = await run(bits);
      assertEquals([code, stderr], [0, ""]);
      const { results } = JSON.parse(stdout);
      assertEquals(results.quantize, bits === "none" ? null : bits);
      assertEquals(results.tasks[0].task, "perplexity");
      loss.push(results.tasks[0].metrics.at(-1).value);
    }
    const [exact, q8, q4] = loss as [number, number, number];
    const off = (value: number) => Math.abs(value - exact);
    assert(off(q8) > 0 && off(q8) < 0.1 && off(q4) > off(q8) && off(q4) < 2, loss.join());
    // Samples of exact weights are not gone on with.
    const mixed = await run("none", "--quantize", "q4");
    assertEquals(mixed.code, 2, mixed.stderr);

    const rows = await rowsOf(["compare", "none", "q8", "q4"], { cwd });
    assertEquals(rows.map(({ label, quantize }) => [label, quantize]), [
      ["P=1", null],
      ["P=1, q8", "q8"],
      ["P=1, q4", "q4"],
    ]);
    const table = await runParscale(["compare", "none", "q8", "q4"], { cwd });
    for (const name of ["1", "1, q8", "1, q4"]) {
      assert(table.stdout.split("\n").some((line) => line.trim().startsWith(`${name} `)), name);
    }
  }));

/** Returns the document of `parscale eval --json` for scores of 0 and 1. */
function documentOf(
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

Deno.test("stdin: documents give differences of means, rows where their folder is still there", async () => {
  const base = Array.from({ length: 40 }, (_, i) => Number(i % 2 === 0));
  const better = base.map((value, i) => i < 20 ? 1 : value);
  const stdin = documentOf(base) + documentOf(better, { streams: 4 });
  const { code, stdout, stderr } = await runParscale(["compare", "-", "--jsonl"], { stdin });
  assertEquals([code, stderr], [0, ""]);
  const [first, second] = parseLines(stdout);
  assertEquals([first.label, first.paired], ["P=1", null]);
  assertEquals([second.label, second.paired], ["P=4", false]);
  assertEquals([second.value, second.difference], [0.75, 0.25]);
  // Welch: standard errors 0.0801 and 0.0693, 76 degrees of freedom, t 1.9917.
  assert(Math.abs(second.difference_high - 0.25 - 1.9917 * Math.hypot(0.080064, 0.069338)) < 1e-4);
  const table = await runParscale(["compare", "-"], { stdin });
  assertStringIncludes(table.stdout, "gsm8k (strict_match, 40 rows, means only)");
  assertStringIncludes(table.stdout, "P=4 better");

  await withScratch(async (cwd) => {
    await finished(`${cwd}/p1`, { streams: 1 }, base, documentOf(base));
    await finished(`${cwd}/p4`, { streams: 4 }, better, documentOf(better, { streams: 4 }));
    const { low } = pairedDifference(better, base)!;
    const documents = documentOf(base, { out: "p1" }) +
      documentOf(better, { streams: 4, out: "p4" });
    for (const [args, text] of [[["-"], documents], [["p1", "-"], documents]] as const) {
      const run = await runParscale(["compare", ...args, "--jsonl"], { cwd, stdin: text });
      const p4 = parseLines(run.stdout).at(-1)!;
      assertEquals([p4.paired, p4.difference_low], [true, low]);
    }
    // Evaluated anew since the document was written: its rows are no longer the document's.
    const old = documentOf(base, { out: "p1" }) + documentOf(base, { streams: 4, out: "p4" });
    const run = await runParscale(["compare", "-", "--jsonl"], { cwd, stdin: old });
    assertEquals(parseLines(run.stdout)[1].paired, false);
    // A folder that is no longer a finished evaluation is as good as none.
    await Deno.remove(`${cwd}/p4/scores.jsonl`);
    const gone = await runParscale(["compare", "-", "--jsonl"], { cwd, stdin: documents });
    assertEquals([gone.code, parseLines(gone.stdout)[1].paired], [0, false]);
  });
});

Deno.test("differences of means: two rows each have at least one degree of freedom", () => {
  const mean = (value: number, stderr: number) => ({ value, stderr, n: 2 });
  for (const [a, b] of [[0.1, 0], [0.1, 0.3], [0.1, 0.1]] as const) {
    const { low, high } = differenceOfMeans(mean(1, a), mean(0, b))!;
    const times = (high - low) / 2 / Math.hypot(a, b);
    assert(Math.abs(times - (a === b ? 4.303 : 12.706)) < 1e-9, `${times}`);
  }
  const { low, high } = differenceOfMeans(mean(1, 0), mean(0, 0))!;
  assertEquals([low, high], [1, 1]);
  assertEquals(differenceOfMeans({ ...mean(1, 0), stderr: undefined }, mean(0, 0)), undefined);
});

Deno.test("stdin: a regression ends with 1, and what is no document is refused", async () => {
  const [base, worse] = [[1, 1, 1, 1, 1, 1, 1, 0], [0, 0, 0, 0, 0, 0, 0, 1]];
  const compare = (stdin: string, ...args: string[]) =>
    runParscale(["compare", "-", ...args], { stdin });
  const bad = await compare(documentOf(base) + documentOf(worse, { streams: 2 }));
  assertEquals([bad.code, bad.stderr], [1, "warning: P=2 is worse than P=1 on gsm8k\n"]);
  const needs = "error: `compare` needs at least two evaluations; there is ";
  const one = documentOf(base), other = documentOf(worse, { prompts: "other" });
  await assertRefusals([
    [compare(""), 2, `${needs}none\n`],
    [compare(one), 2, `${needs}one\n`],
    [compare(one, "-"), 2, "error: `-` is given twice; stdin can be read once\n"],
    [compare(`${one}oops`), 3, 'error: document 2 of stdin is not valid JSON: "oops"\n'],
    [
      compare('{"schema":"parscale.cost/1"}'),
      3,
      'error: document 1 of stdin is no evaluation: its schema is "parscale.cost/1", expected "parscale.eval/1"\n',
    ],
    [
      compare(one + other),
      3,
      "error: document 2 of stdin and document 1 of stdin have different prompts for gsm8k\n",
    ],
  ]);
});

Deno.test("stdin: what eval prints is what compare reads", async () => {
  const asked = `--tasks gsm8k --shots 0 --data ${DATA} --limit 2 --max-tokens 4 --json -q`;
  const { stdout, stderr } = await runShell(
    `(parscale eval --model ${PLAIN_MODEL} ${asked}; parscale eval --model ${MODEL} ${asked}) | ` +
      "parscale compare - --jsonl",
  );
  assertEquals(stderr, "");
  const compared = parseLines(stdout).map(({ label, rows }) => [label, rows]);
  assertEquals(compared, [["P=1", 2], ["P=2", 2]]);
});

Deno.test("intervals are Student's: ten rows, known values", () => {
  const a = [1.2, 0.8, 1.9, 1.1, 0.4, 1.6, 0.9, 1.3, 0.7, 1.1];
  const zero = a.map(() => 0);
  // Mean 1.1, standard deviation 0.43716, t(9) 2.26216.
  const { difference, low, high, n } = pairedDifference(a, zero)!;
  assertEquals([difference.toFixed(4), n], ["1.1000", 10]);
  assert(Math.abs(high - low - 2 * 2.26216 * 0.43716 / Math.sqrt(10)) < 1e-4);
  assertEquals(pairedDifference([1], [0]), undefined);
});

Deno.test("folders that do not fit are refused", () =>
  withScratch(async (cwd) => {
    await finished(`${cwd}/a`, { streams: 1 }, [1, 0, 1]);
    await finished(`${cwd}/b`, { streams: 2 }, [1, 0]);
    await Deno.mkdir(`${cwd}/empty`);
    await assertRefusals([
      ["compare a b", 3, 'error: only one of "b" and "a" has row 2 of gsm8k\n'],
      ["compare a empty", 3, 'error: "empty" is no finished evaluation: it has no config.json\n'],
      ["compare a", 2, "error: `compare` needs at least two evaluations; there is one\n"],
    ], { cwd });
  }));

Deno.test("choice tasks are refused with the reason, and nothing to compare is misuse", () =>
  assertRefusals([
    [
      `compare --model ${PLAIN_MODEL} --tasks piqa --data ${DATA}`,
      2,
      "error: `compare` cannot use piqa: its answers are given choices\n",
    ],
    ["compare", 2, "error: `compare` needs `--model` or FOLDER\n"],
  ]));

Deno.test("an evaluation that fails ends the comparison with its own exit code", async () => {
  const compare = ["compare", "--tasks", "gsm8k", "--data", DATA, "--limit", "1", "--model"];
  await assertRefusals([
    [
      runProcess([...compare, "./none"]),
      3,
      'error: no such folder: "./none"',
      "error: `parscale eval --model ./none",
      "failed with exit code 3\n\nhint: its own error stands above",
    ],
    [[...compare, PLAIN_MODEL, "--memory-limit", "1"], 4],
  ]);
});

Deno.test("a closed pipe ends quietly with 0", () =>
  withScratch(async (cwd) => {
    await finished(`${cwd}/a`, { streams: 1 }, [1, 0, 1]);
    await finished(`${cwd}/b`, { streams: 2 }, [1, 0, 1]);
    const script = `parscale compare a b --jsonl | head -c 20 >/dev/null; echo "\${PIPESTATUS[0]}"`;
    const { stdout, stderr } = await runShell(script, { cwd });
    assertEquals([stdout, stderr], ["0\n", ""]);
  }));
