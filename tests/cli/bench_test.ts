/** `parscale bench` as a black box: rows, turns, comparison of files, and everything refused. */
import { fileURLToPath } from "node:url";
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import {
  assertRefusals,
  assertRefused,
  jsonLines,
  MODEL,
  parseLines,
  PLAIN_MODEL,
  rowsOf,
  succeed,
} from "./models.ts";
import { runParscale, runShell } from "./run.ts";
import { withScratch } from "../scratch.ts";
import { linkSync } from "../links.ts";

const SHORT = ["--context", "8", "--prompt", "9", "--rounds", "3", "--steps", "2", "-j", "1"];
const BENCH = ["bench", "--model", MODEL, ...SHORT];

const KEYS =
  ("model what streams batch context prompt device dtype weights introduced samples_ms " +
    "median_ms spread_ms tokens_per_s ratio threads version deno_version platform").split(" ");

/** A row of an earlier file. */
function timing(changes: Record<string, unknown> = {}) {
  const key = { what: "decode", streams: 2, batch: 1, context: 8, prompt: null };
  return { ...key, device: "cpu", dtype: "f32", weights: "f32", median_ms: 10, ...changes };
}

/** Compares two lists of rows in files of a scratch folder. */
async function compare(now: string, before: string, ...flags: string[]) {
  return await withScratch(async (cwd) => {
    await Deno.writeTextFile(`${cwd}/last.jsonl`, before);
    const args = ["bench", "--compare", "-", "--against", "last.jsonl", ...flags];
    return await runParscale(args, { cwd, stdin: now });
  });
}

Deno.test("a row per kind, streams and batch, with samples and where streams are from", async () => {
  const rows = await rowsOf([...BENCH, "--streams", "1..4*2", "--batch", "1,3"]);
  assertEquals(rows.map((row) => [row.what, row.batch, row.streams, row.introduced]), [
    ...["decode", "prefill"].flatMap((what) =>
      [1, 3].flatMap((batch) => [
        [what, batch, 1, "none"],
        [what, batch, 2, "own"],
        [what, batch, 4, "random"],
      ])
    ),
  ]);
  for (const row of rows) {
    assertEquals(Object.keys(row), KEYS);
    const decodes = row.what === "decode";
    assertEquals([row.context, row.prompt], decodes ? [8, null] : [0, 9]);
    assertEquals(row.samples_ms.length, decodes ? 6 : 3);
    assertEquals([row.device, row.dtype, row.weights, row.threads], ["cpu", "f32", "f32", 1]);
    const sorted = row.samples_ms.toSorted((a: number, b: number) => a - b);
    const median = decodes ? (sorted[2] + sorted[3]) / 2 : sorted[1];
    assert(Math.abs(row.median_ms - median) < 1e-9 && row.spread_ms >= 0);
    const tokens = row.batch * (decodes ? 1 : 9);
    assert(Math.abs(row.tokens_per_s * row.median_ms / 1000 / tokens - 1) < 1e-9);
    const first = rows.find(({ what }) => what === row.what);
    assertEquals(row.ratio, row.median_ms / first.median_ms);
  }
});

Deno.test("devices and kinds of matrices are lists; a plain model grows streams", async () => {
  const plain = ["bench", "--model", PLAIN_MODEL, ...SHORT, "--what", "decode"];
  const kinds = await rowsOf([...plain, "--quantize", "none,q8", "--streams", "1,2"]);
  assertEquals(kinds.map((row) => [row.weights, row.streams, row.introduced]), [
    ["f32", 1, "none"],
    ["f32", 2, "random"],
    ["q8", 1, "none"],
    ["q8", 2, "random"],
  ]);
  const devices = await rowsOf([...plain, "--device", "cpu,reference"]);
  assertEquals(devices.map((row) => [row.device, row.threads]), [["cpu", 1], ["reference", null]]);
});

Deno.test("a document, a table and a file; a run folder is its newest checkpoint", () =>
  withScratch(async (cwd) => {
    await Deno.mkdir(`${cwd}/run`);
    linkSync(MODEL, `${cwd}/run/checkpoint-7`);
    await Deno.writeTextFile(`${cwd}/run/last`, "checkpoint-7\n");
    const bench = ["bench", "--model", "run", ...SHORT];
    const { stdout, stderr, code } = await runParscale([...bench, "--json"], { cwd });
    assertEquals([code, stderr], [0, ""]);
    const { schema, command, device, seed, results } = JSON.parse(stdout);
    assertEquals([schema, command, device, seed], ["parscale.bench/1", "bench", "cpu", 0]);
    assertEquals(results.length, 2);
    const table = (await runParscale([...bench, "--what", "prefill"], { cwd })).stdout.split("\n");
    assertStringIncludes(table[0]!, "medians of 3 rounds");
    assert(/^what +P +introduced .* ratio$/.test(table[1]!), table[1]);
    assert(/^prefill +2 +own .* 1\.00$/.test(table[2]!), table[2]);
    const written = await runParscale([...bench, "--jsonl", "-o", "now.jsonl"], { cwd });
    assertEquals(written, { code: 0, stdout: "", stderr: "" });
    await Deno.writeTextFile(`${cwd}/now.json`, stdout);
    for (const against of ["now.json", "now.jsonl"]) {
      const again = ["bench", "--compare", "now.json", "--against", against];
      const { code, stdout } = await runParscale([...again, "--tolerance", "100000%"], { cwd });
      assertEquals(code, 0, stdout);
    }
  }));

Deno.test("a dry run names what would be timed, with the memory it takes", async () => {
  const plan = await succeed([...BENCH, "--streams", "2,4", "--dry-run"]);
  const [head, ...cells] = plan.trimEnd().split("\n\n")[0]!.split("\n");
  assert(
    /^times 4 rows in turns, 1 round to warm up and 3 timed, in [\d.]+ MB:$/.test(head!),
    head,
  );
  assertEquals(cells, [
    "decode, P = 2, batch 1, 8 cached, cpu f32",
    "decode, P = 4, batch 1, 8 cached, cpu f32, random prefixes and aggregator",
    "prefill, P = 2, batch 1, 9 tokens, cpu f32",
    "prefill, P = 4, batch 1, 9 tokens, cpu f32, random prefixes and aggregator",
  ]);
  const pair = await runParscale(["bench", "--compare", "-", "--against", "a", "--dry-run"]);
  assertStringIncludes(pair.stdout, "compares stdin with a\n");
});

Deno.test("compare: the same, faster, within and beyond the tolerance", async () => {
  const before = jsonLines(timing(), timing({ streams: 4 }));
  const at = (ms: number) => jsonLines(timing({ median_ms: ms }), timing({ streams: 4 }));
  const cases: [number, string[], number, string][] = [
    [10, [], 0, "same"],
    [10.4, [], 0, "same"],
    [10.6, [], 1, "slower"],
    [10.6, ["--tolerance", "10%"], 0, "same"],
    [10.6, ["--tolerance", "0.05"], 1, "slower"],
    [5, [], 0, "faster"],
  ];
  for (const [ms, flags, code, result] of cases) {
    const ended = await compare(at(ms), before, ...flags, "--json");
    assertEquals([ended.code, ended.stderr], [code, ""], `${ms} ${flags}`);
    const { schema, results } = JSON.parse(ended.stdout);
    assertEquals(schema, "parscale.bench_compare/2");
    assertEquals(results[0], {
      ...timing(),
      against_ms: 10,
      median_ms: ms,
      ratio: ms / 10,
      result,
    });
    assertEquals(results[1].result, "same");
  }
  const table = await compare(at(12), before);
  assertEquals(table.code, 1);
  assertStringIncludes(table.stdout, "1 of 2 pairs slower by more than 5%\n");
  assert(/ 10\.00 +12\.00 +1\.200 +slower$/m.test(table.stdout), table.stdout);
});

Deno.test("compare: noise within the recorded spread is no regression", async () => {
  const noisy = (median: number, least: number, spread: number) =>
    jsonLines(timing({ median_ms: median, samples_ms: [least, median], spread_ms: spread }));
  const cases: [string, string, string][] = [
    [noisy(12, 9, 1), noisy(10, 9, 1), "same"], // the fastest sample is as fast
    [noisy(12, 11, 3), noisy(10, 9, 1), "same"], // the samples spread further
    [noisy(12, 11, 1), noisy(10, 9, 1), "slower"],
    [noisy(10, 9, 1), noisy(12, 11, 1), "faster"],
  ];
  for (const [now, before, result] of cases) {
    const [row] = parseLines((await compare(now, before, "--jsonl")).stdout);
    assertEquals(row.result, result);
  }
});

Deno.test("compare: a machine that was busy during other rows bounds what a row can tell", async () => {
  const rows = (median: number, spread: number) =>
    jsonLines(timing({ median_ms: median }), timing({ streams: 4, spread_ms: spread }));
  const busy = await compare(rows(12, 4), rows(10, 4));
  assertEquals(busy.code, 0);
  assertStringIncludes(
    busy.stdout,
    "0 of 2 pairs slower by more than 40%, the spread of the samples",
  );
  assertEquals((await compare(rows(12, 0.1), rows(10, 0.1))).code, 1);
});

Deno.test("compare: rows without a partner are named and decide nothing", async () => {
  const now = jsonLines(timing(), timing({ batch: 8, median_ms: 99 }));
  const before = jsonLines(timing({ context: 9 }), timing());
  const result = await compare(now, before);
  const warning = "warning: 2 rows without a partner decided nothing\n";
  assertEquals([result.code, result.stderr], [0, warning]);
  const words = result.stdout.split("\n").slice(2, 5).map((line) => line.split(/ +/));
  assertEquals(words.map((line) => [line[2], line[3], line.at(-1)]), [
    ["1", "8", "same"],
    ["8", "8", "new"],
    ["1", "9", "gone"],
  ]);
  assertRefused(
    await compare(jsonLines(timing()), jsonLines(timing({ device: "cuda" }))),
    3,
    'stdin and "last.jsonl" have no row in common',
  );
});

Deno.test("compare: what is no row is bad data", async () => {
  const good = jsonLines(timing());
  const { median_ms: _, ...without } = timing();
  const cases: [string, string, string][] = [
    ["", good, "stdin holds no rows of `bench`"],
    ["{", good, "line 1 of stdin is not valid JSON"],
    [good + "[]", good, "line 2 of stdin: found [], expected a JSON object"],
    [good, '{"what":"decode"}', 'line 1 of "last.jsonl": found no "streams"'],
    [jsonLines(without), good, "line 1 of stdin: found median_ms undefined, expected"],
    [jsonLines(timing({ median_ms: 0 })), good, "found median_ms 0, expected a positive number"],
    [good + good, good, "stdin holds two rows with what decode, streams 2, batch 1"],
    [
      '{"schema":"parscale.cost/1"}',
      good,
      'stdin has schema "parscale.cost/1", expected "parscale.bench',
    ],
  ];
  const results = await Promise.all(cases.map(([now, before]) => compare(now, before)));
  results.forEach(({ code, stdout, stderr }, i) => {
    assertEquals([code, stdout], [3, ""], stderr);
    assertStringIncludes(stderr, cases[i]![2]);
  });
});

Deno.test("default lengths fit a model with a short context", async () => {
  const model = fileURLToPath(new URL("../../fixtures/models/word-problems", import.meta.url));
  const args = ["bench", "--model", model, "--steps", "12", "--dry-run"];
  const stdout = await succeed(args);
  assertStringIncludes(stdout, "500 cached");
  assertStringIncludes(stdout, "512 tokens");
});

Deno.test("misuse is refused with a way out", async () => {
  const bench = BENCH.join(" "), model = `bench --model ${MODEL}`;
  await assertRefusals([
    ["bench", 2, "`bench` needs `--model` or `--compare`"],
    ["bench --compare -", 2, "`--compare -` needs `--against`"],
    ["bench --against x", 2, "`--against x` needs `--compare`"],
    [`${bench} --compare - --against x`, 2, "cannot be combined with `--compare`"],
    ["bench --compare - --against -", 2, "`--compare -` cannot be combined with `--against -`"],
    ["bench --compare - --against none.jsonl", 3, 'error: no such file: "none.jsonl"\n'],
    ["bench --model ./none", 3, 'no such folder: "./none"'],
    [`${bench} --streams 0`, 2, 'invalid value "0" for `--streams`'],
    [`${bench} --rounds 0`, 2, "for `--rounds`"],
    [`${bench} --what train`, 2, "must be one of decode, prefill"],
    [`${bench} --tolerance -1%`, 2, "must be a share such as 5% of at least 0%"],
    [`${bench} --tolerance 5%%`, 2, 'invalid value "5%%" for `--tolerance`'],
    [`${model} --context 2048`, 2, "`--context 2048` with 8 steps exceeds", "short"],
    [`${model} --prompt 4k`, 2, "`--prompt 4000` exceeds the model", "short"],
    [
      `${bench} --quantize q8 --device reference`,
      2,
      "the reference device cannot use q8 weights",
      "--device cpu",
    ],
    [`${bench} --quantize q8 --block-size 48`, 2, "invalid value 48 for `--block-size`"],
    [`${bench} --memory-limit 1`, 4, "the model exceeds the memory limit of 1 bytes: it needs "],
    // More than the free memory, found before anything is loaded.
    [
      `${model} --batch 1000..1024 --context 2000 --streams 64 --quantize none,q8 --what decode`,
      4,
      "error: timing 50 rows in turns needs ",
      "hint: time fewer --streams",
    ],
  ], { stdin: jsonLines(timing()) });
});

Deno.test("one run feeds a comparison", () =>
  withScratch(async (cwd) => {
    const bench = `parscale ${BENCH.join(" ")} --jsonl`;
    const first = await runShell(`${bench} > last.jsonl; wc -l < last.jsonl`, { cwd });
    assertEquals([first.stdout.trim(), first.stderr], ["2", ""]);
    const again = await runShell(
      `${bench} | parscale bench --compare - --against last.jsonl --tolerance 100000% --jsonl`,
      { cwd },
    );
    assertEquals([again.code, again.stderr], [0, ""]);
    assertEquals(parseLines(again.stdout).map(({ what }) => what), ["decode", "prefill"]);
  }));

Deno.test("an adapter is timed beside other streams over its backbone", () =>
  withScratch(async (cwd) => {
    const convert = ["convert", "--model", PLAIN_MODEL, "--streams", "4", "--introduced-only"];
    assertEquals((await runParscale([...convert, "--out", "p4"], { cwd })).code, 0);
    const rows = await rowsOf([
      ...["bench", "--model", PLAIN_MODEL, "--adapter", `${cwd}/p4`, "--streams", "1,2,4"],
      ...["--what", "decode", "--context", "8", "--rounds", "1", "--steps", "2"],
    ]);
    assertEquals(rows.map(({ streams, introduced }) => [streams, introduced]), [
      [1, "none"],
      [2, "random"],
      [4, "own"],
    ]);
  }));
