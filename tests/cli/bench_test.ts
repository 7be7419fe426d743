/** `parscale bench` as a black box: rows, turns, training steps, comparison of files and bad rows. */
import { fileURLToPath } from "node:url";
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import {
  assertFailed,
  assertRefused,
  documentOf,
  jsonLines,
  linkRun,
  MODEL,
  parseLines,
  PLAIN_MODEL,
  rowsOf,
  succeed,
} from "./models.ts";
import { runParscale, runShell } from "./run.ts";
import { withScratch } from "../scratch.ts";

const SHORT = "--context 8 --prompt 9 --rounds 3 --steps 2 -j 1";
const BENCH = `bench --model ${MODEL} ${SHORT}`;

const KEYS =
  ("model what train_params streams batch context prompt device dtype weights introduced samples_ms " +
    "median_ms spread_ms tokens_per_s ratio threads version deno_version platform").split(" ");

/** A row of an earlier file. */
function timing(changes: Record<string, unknown> = {}) {
  const work = { what: "decode", train_params: null, streams: 2, batch: 1 };
  const key = { ...work, context: 8, prompt: null, device: "cpu", dtype: "f32", weights: "f32" };
  return { ...key, median_ms: 10, ...changes };
}

/** Compares two lists of rows in files of a scratch folder. */
function compare(now: string, before: string, flags = "") {
  return withScratch(async (cwd) => {
    await Deno.writeTextFile(`${cwd}/last.jsonl`, before);
    const line = `bench --compare - --against last.jsonl ${flags}`;
    return await runParscale(line, { cwd, stdin: now });
  });
}

Deno.test("a row per kind, streams and batch, with samples and where streams are from", async () => {
  const rows = await rowsOf(`${BENCH} --streams 1..4*2 --batch 1,3`);
  assertEquals(
    rows.map((row) => [row.what, row.batch, row.streams, row.introduced]),
    ["decode", "prefill"].flatMap((what) =>
      [1, 3].flatMap((batch) => [
        [what, batch, 1, "none"],
        [what, batch, 2, "own"],
        [what, batch, 4, "random"],
      ])
    ),
  );
  for (const row of rows) {
    assertEquals(Object.keys(row), KEYS);
    const decodes = row.what === "decode";
    assertEquals([row.train_params, row.context, row.prompt], [
      null,
      ...(decodes ? [8, null] : [0, 9]),
    ]);
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

Deno.test("train: a row per set of parameters, streams and device, in turns with the others", async () => {
  const train = `${BENCH} --what train,decode --train-params all,introduced`;
  const rows = await rowsOf(`${train} --streams 2,4 --batch 3 --device cpu,reference`);
  const [cpu, reference] = ["cpu", "reference"].map((device) =>
    rows.filter((row) => row.device === device).map((row) =>
      [row.what, row.train_params, row.streams, row.introduced].join(" ")
    )
  );
  assertEquals(cpu, [
    "train all 2 own",
    "train all 4 random",
    "train introduced 2 own",
    "train introduced 4 random",
    "decode  2 own",
    "decode  4 random",
  ]);
  assertEquals(reference, cpu);
  for (const row of rows.slice(0, 8)) {
    assertEquals(Object.keys(row), KEYS);
    assertEquals([row.batch, row.context, row.prompt], [3, 0, 9]);
    assertEquals([row.dtype, row.weights, row.samples_ms.length], ["f32", "f32", 3]);
    assert(Math.abs(row.tokens_per_s * row.median_ms / 1000 / 27 - 1) < 1e-9);
    assertEquals(row.ratio, row.median_ms / rows[0].median_ms);
  }
});

Deno.test("train: a backbone without streams, an adapter, and a table that names the parameters", () =>
  withScratch(async (cwd) => {
    await succeed(`convert --model ${PLAIN_MODEL} -P 4 --introduced-only --out p4`, { cwd });
    const plain = `bench --model ${PLAIN_MODEL} ${SHORT} --what train`;
    const [row] = await rowsOf(plain, { cwd });
    assertEquals([row.streams, row.train_params, row.introduced], [1, "all", "none"]);
    const table = await succeed(`${plain} --adapter p4 --train-params introduced`, { cwd });
    assert(/^train +introduced +4 +own .* 1\.00$/m.test(table), table);
    const other = await succeed(`${plain.replace("train", "decode")}`, { cwd });
    assert(!other.includes("trains"), other);
  }));

Deno.test("train: the plan counts a trainer for every row, and the process once", async () => {
  const bytes = async (flags: string) => {
    const line = `${BENCH} --what train --device cpu --dry-run --json ${flags}`;
    return JSON.parse(await succeed(line)).results.memory_bytes;
  };
  const [one, four, both] = [await bytes("-P 2"), await bytes("-P 4"), await bytes("-P 2,4")];
  assertEquals(both, one + four - 140e6);
  assert(await bytes("--train-params introduced") < one);
});

Deno.test("train: a pipe that closes ends it quietly", async () => {
  const { stdout, stderr } = await runShell(`parscale ${BENCH} --what train | head -c 1 | wc -c`);
  assertEquals([stdout.trim(), stderr], ["1", ""]);
});

Deno.test("devices and kinds of matrices are lists; streams are grown, or those of an adapter", () =>
  withScratch(async (cwd) => {
    await succeed(`convert --model ${PLAIN_MODEL} -P 4 --introduced-only --out p4`, { cwd });
    const plain = `bench --model ${PLAIN_MODEL} ${SHORT} --what decode`;
    for (
      const [flags, expected] of [
        ["--quantize none,q8 --streams 1", "f32 1 none, q8 1 none"],
        ["--adapter p4 --streams 1,2,4", "f32 1 none, f32 2 random, f32 4 own"],
      ] as const
    ) {
      const rows = await rowsOf(`${plain} ${flags}`, { cwd });
      const found = rows.map((row) => `${row.weights} ${row.streams} ${row.introduced}`);
      assertEquals(found.join(", "), expected);
    }
    const devices = await rowsOf(`${plain} --device cpu,reference`);
    assertEquals(devices.map((row) => [row.device, row.threads]), [["cpu", 1], [
      "reference",
      null,
    ]]);
  }));

Deno.test("a document, a table and a file; a run folder is its newest checkpoint", () =>
  withScratch(async (cwd) => {
    linkRun(MODEL, `${cwd}/run`);
    const bench = `bench --model run ${SHORT}`;
    const document = await documentOf(bench, { cwd });
    const { schema, command, device, seed, results } = document;
    assertEquals([schema, command, device, seed], ["parscale.bench/1", "bench", "cpu", 0]);
    assertEquals(results.length, 2);
    const table = (await succeed(`${bench} --what prefill`, { cwd })).split("\n");
    assertStringIncludes(table[0]!, "medians of 3 rounds");
    assert(/^what +P +introduced .* ratio$/.test(table[1]!), table[1]);
    assert(/^prefill +2 +own .* 1\.00$/.test(table[2]!), table[2]);
    assertEquals(await succeed(`${bench} --jsonl -o now.jsonl`, { cwd }), "");
    await Deno.writeTextFile(`${cwd}/now.json`, JSON.stringify(document));
    for (const against of ["now.json", "now.jsonl"]) {
      const again = `bench --compare now.json --against ${against} --tolerance 100000%`;
      assertEquals((await runParscale(again, { cwd })).code, 0);
    }
    const plan = await succeed("bench --compare - --against now.json --dry-run", { cwd });
    assertStringIncludes(plan, "compares stdin with now.json\n");
  }));

Deno.test("a dry run names what would be timed, with the memory it takes", async () => {
  const plan = await succeed(`${BENCH} --streams 2,4 --dry-run`);
  const [head, ...cells] = plan.trimEnd().split("\n\n")[0]!.split("\n");
  assert(
    /^times 4 rows in turns, 1 round to warm up and 3 timed, in [\d.]+ MB:$/.test(head!),
    head,
  );
  const random = ", random prefixes and aggregator";
  assertEquals(cells, [
    "decode, P = 2, batch 1, 8 cached, cpu f32",
    `decode, P = 4, batch 1, 8 cached, cpu f32${random}`,
    "prefill, P = 2, batch 1, 9 tokens, cpu f32",
    `prefill, P = 4, batch 1, 9 tokens, cpu f32${random}`,
  ]);
  // Default lengths fit a model with a short context.
  const model = fileURLToPath(new URL("../../fixtures/models/word-problems", import.meta.url));
  const short = await succeed(`bench --model ${model} --steps 12 --dry-run`);
  assertStringIncludes(short, "500 cached");
  assertStringIncludes(short, "512 tokens");
});

Deno.test("compare: the same, faster, within and beyond the tolerance", async () => {
  const before = jsonLines(timing(), timing({ streams: 4 }));
  const at = (ms: number) => jsonLines(timing({ median_ms: ms }), timing({ streams: 4 }));
  const cases: [number, string, number, string][] = [
    [10, "", 0, "same"],
    [10.4, "", 0, "same"],
    [10.6, "", 1, "slower"],
    [10.6, "--tolerance 10%", 0, "same"],
    [10.6, "--tolerance 0.05", 1, "slower"],
    [5, "", 0, "faster"],
  ];
  for (const [ms, flags, code, result] of cases) {
    const ended = await compare(at(ms), before, `${flags} --json`);
    assertEquals([ended.code, ended.stderr], [code, ""], `${ms} ${flags}`);
    const { schema, results } = JSON.parse(ended.stdout);
    assertEquals(schema, "parscale.bench_compare/2");
    const compared = { against_ms: 10, median_ms: ms, ratio: ms / 10, result };
    assertEquals(results[0], { ...timing(), ...compared });
    assertEquals(results[1].result, "same");
  }
  const table = await compare(at(12), before);
  assertEquals(table.code, 1);
  assertStringIncludes(table.stdout, "1 of 2 pairs slower by more than 5%\n");
  assert(/ 10\.00 +12\.00 +1\.200 +slower$/m.test(table.stdout), table.stdout);
});

Deno.test("compare: training has partners with the same parameters", async () => {
  const train = (train_params: string, ms: number) =>
    timing({ what: "train", train_params, context: 0, prompt: 9, median_ms: ms });
  const before = jsonLines(train("all", 20), train("introduced", 10));
  const ended = await compare(jsonLines(train("introduced", 10), train("all", 30)), before);
  assertEquals(ended.code, 1);
  assertEquals(
    ended.stdout.split("\n").slice(2, 4).map((line) => line.split(/ +/)).map((line) =>
      [line[1], line.at(-1)].join(" ")
    ),
    ["introduced same", "all slower"],
  );
});

Deno.test("compare: noise within the recorded spread is not a regression", async () => {
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

Deno.test("compare: a line that is not a row is bad data", async () => {
  const good = jsonLines(timing());
  const { median_ms: _, ...without } = timing();
  const cases: [string, string, string][] = [
    ["", good, "stdin holds no rows of `bench`"],
    ["{", good, "line 1 of stdin is not valid JSON"],
    [good + "[]", good, "line 2 of stdin: found [], expected a JSON object"],
    [good, '{"what":"decode"}', 'line 1 of "last.jsonl": found no "train_params"'],
    [jsonLines(without), good, "line 1 of stdin: found median_ms undefined, expected"],
    [jsonLines(timing({ median_ms: 0 })), good, "found median_ms 0, expected a positive number"],
    [good + good, good, "stdin holds two rows with what decode, streams 2, batch 1"],
    ['{"schema":"parscale.cost/1"}', good, 'schema "parscale.cost/1", expected "parscale.bench'],
  ];
  for (const [now, before, words] of cases) assertFailed(await compare(now, before), 3, words);
});
