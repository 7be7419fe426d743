/** `parscale bench` as a black box: rows, turns, training steps, comparison of files and bad rows. */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { documentOf, linkRun, MODEL, PLAIN_MODEL, rowsOf, succeed } from "./models.ts";
import { withScratch } from "../scratch.ts";
import { FIXTURES } from "../fixtures.ts";

const SHORT = "--context 8 --prompt 9 --rounds 3 --steps 2 -j 1";
const BENCH = `bench --model ${MODEL} ${SHORT}`;

const KEYS =
  ("model what train_params streams batch context prompt device dtype weights introduced samples_ms " +
    "median_ms spread_ms tokens_per_s ratio threads version deno_version platform").split(" ");

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
  const train = `${BENCH} --what train,decode --train-params all,introduced --rounds 1`;
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
    assertEquals([row.dtype, row.weights, row.samples_ms.length], ["f32", "f32", 1]);
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
  }));

Deno.test("a dry run names what would be timed, with the memory it takes", async () => {
  const plan = await succeed(`${BENCH} --streams 2,4 --dry-run`);
  const [head, ...cells] = plan.trimEnd().split("\n\n")[0]!.split("\n");
  assert(/^would time 4 rows in [\d.]+ MB:$/.test(head!), head);
  assertEquals(cells, [
    "decode, P = 2, batch 1, 8 cached, cpu f32",
    `decode, P = 4, batch 1, 8 cached, cpu f32`,
    "prefill, P = 2, batch 1, 9 tokens, cpu f32",
    `prefill, P = 4, batch 1, 9 tokens, cpu f32`,
  ]);
  // Default lengths fit a model with a short context.
  const model = `${FIXTURES}models/word-problems`;
  const short = await succeed(`bench --model ${model} --steps 12 --dry-run`);
  assertStringIncludes(short, "500 cached");
  assertStringIncludes(short, "512 tokens");
});
