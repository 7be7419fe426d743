/** `parscale score` as a black box: every format, bad rows, pipes. */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import {
  copyFolder,
  documentOf,
  EXPECTED,
  jsonLines,
  MODEL,
  names,
  NO_TOKENIZER,
  parseLines,
  PLAIN_MODEL,
  rowsOf,
  succeed,
} from "./models.ts";
import { runParscale, runShell } from "./run.ts";
import { withScratch } from "../scratch.ts";

const LENGTH = EXPECTED.cases.single.ids[0].length;
const SCORE = `score --model ${MODEL}`;

/** Three good rows: ids, text, and text after nothing. */
const ROWS = jsonLines(
  { id: "a", tokens: EXPECTED.cases.single.ids[0] },
  { prompt: "2+2= ", continuation: "4" },
  "",
  { id: 7, prompt: "", continuation: "once" },
  { id: 8, text: "once" },
);

Deno.test("a row has id, tokens, token_logprobs, loglikelihood and is_greedy", async () => {
  const rows = await rowsOf(SCORE, { stdin: ROWS });
  assertEquals(rows.map(({ id }) => id), ["a", 1, 7, 8]);
  for (const row of rows) {
    assertEquals(Object.keys(row).join(" "), "id tokens token_logprobs loglikelihood is_greedy");
    const sum = row.token_logprobs.reduce((a: number, b: number) => a + b, 0);
    assert(Math.abs(sum - row.loglikelihood) < 1e-9);
    assertEquals(typeof row.is_greedy, "boolean");
  }
  const { ids, loss } = EXPECTED.cases.single;
  assertEquals(rows[0].tokens, ids[0]);
  assertEquals(rows[0].token_logprobs.length, ids[0].length - 1);
  assert(Math.abs(-rows[0].loglikelihood / (ids[0].length - 1) - loss) < 1e-5);
  assertEquals(rows[1].token_logprobs.length, 2, "the space moved to the continuation");
  assertEquals(rows[2].tokens.length - rows[2].token_logprobs.length, 1, "after the start token");
  assertEquals({ ...rows[3], id: 7 }, rows[2], "a text continues the start token");
});

Deno.test("--echo repeats the texts of a row", async () => {
  const rows = await rowsOf(`${SCORE} --echo`, { stdin: ROWS });
  const asked = rows.map(({ prompt, continuation, text }) => [prompt, continuation, text]);
  const none = undefined;
  const csv = await succeed(`${SCORE} --echo --format csv`, { stdin: ROWS });
  assertEquals(csv.split("\n")[0], "id,prompt,continuation,text,loglikelihood,is_greedy,error");
  assertEquals(asked, [[none, none, none], ["2+2= ", "4", none], ["", "once", none], [
    none,
    none,
    "once",
  ]]);
});

Deno.test("--stream-weights adds a row of shares per token; one stream has ones", async () => {
  const stdin = jsonLines({ tokens: [1, 2, 3] });
  for (const [model, P] of [[MODEL, 2], [PLAIN_MODEL, 1]] as const) {
    const [row] = await rowsOf(`score --model ${model} --stream-weights`, { stdin });
    assertEquals(row.weights.length, 3);
    for (const shares of row.weights) {
      assertEquals(shares.length, P);
      assert(Math.abs(shares.reduce((a: number, b: number) => a + b, 0) - 1) < 1e-6);
    }
  }
});

Deno.test("table, json, csv and md hold the same numbers; FILE and - are read alike", () =>
  withScratch(async (cwd) => {
    await Deno.writeTextFile(`${cwd}/rows.jsonl`, ROWS);
    const line = `${SCORE} rows.jsonl`;
    const rows = await rowsOf(line, { cwd });
    assertEquals(await rowsOf(`${SCORE} -`, { stdin: ROWS }), rows);
    const { schema, command, device, seed, results } = await documentOf(line, { cwd });
    assertEquals([schema, command], ["parscale.score/1", "score"]);
    assertEquals([device, seed, results], ["cpu", 0, rows]);
    const csv = (await succeed(`${line} --format csv`, { cwd })).trimEnd().split(/\r?\n/);
    assertEquals(csv[0], "id,loglikelihood,is_greedy,error");
    assertEquals(csv[1], `a,${rows[0].loglikelihood},${rows[0].is_greedy},`);
    const rounded = rows[0].loglikelihood.toFixed(4);
    assertStringIncludes(await succeed(line, { cwd }), rounded);
    assertStringIncludes(await succeed(`${line} --format md`, { cwd }), `| ${rounded} |`);
  }));

Deno.test("companions, batch size and the device change nothing but the last bits", async () => {
  const few = jsonLines({ tokens: [1, 2, 3] });
  for (const [how, stdin] of [["--batch 1 --threads 1", ROWS], ["--device reference", few]]) {
    const rows = await rowsOf(`${SCORE} ${how}`, { stdin });
    (await rowsOf(SCORE, { stdin })).forEach(({ loglikelihood }, i) => {
      assert(Math.abs(rows[i].loglikelihood - loglikelihood) < 1e-4, how);
    });
  }
});

Deno.test("a row the model cannot take gets an error, the others continue, exit 1", async () => {
  const sequence = "cannot score a sequence:",
    id = "at position 0, expected an integer from 0 to 511";
  const cases: readonly [row: Record<string, unknown>, error?: string][] = [
    [{ id: "big", tokens: [600] }, `${sequence} token id 600 ${id}`],
    [{ tokens: [1, 2] }],
    [{ tokens: [] }, `${sequence} there are no tokens`],
    [{ prompt: "a", continuation: "" }, "cannot score an empty continuation"],
    [
      { tokens: new Array(2050).fill(1) },
      `${sequence} 2050 tokens exceed the model's context of 2048 and 1 that is only scored`,
    ],
    [{ tokens: [1.5] }, `${sequence} token id 1.5 ${id}`],
    [{ tokens: [3] }],
  ];
  const stdin = jsonLines(...cases.map(([row]) => row));
  const { code, stdout, stderr } = await runParscale(`${SCORE} --jsonl`, { stdin });
  assertEquals([code, stderr], [1, ""]);
  const rows = parseLines(stdout);
  assertEquals(rows.map(({ id }) => id), ["big", 1, 2, 3, 4, 5, 6]);
  assertEquals(rows.map(({ error }) => error), cases.map(([, error]) => error));
  assertEquals([rows[6].token_logprobs, rows[6].loglikelihood], [[], 0]);
  const table = await runParscale(SCORE, { stdin });
  assertEquals(table.code, 1);
  assertStringIncludes(table.stdout, "a sequence: token id 600 at position 0");
});

Deno.test("ids need no tokenizer", () =>
  withScratch(async (folder) => {
    const model = await copyFolder(MODEL, `${folder}/m`, NO_TOKENIZER);
    const stdin = jsonLines({ tokens: [1, 2] });
    assertEquals((await rowsOf(`score --model ${model}`, { stdin })).length, 1);
  }));

Deno.test("pipelines: no rows, and jq reads rows", async () => {
  const empty = await runParscale(`${SCORE} --jsonl`, { stdin: "" });
  assertEquals([empty.code, empty.stdout], [0, ""]);
  const line = `parscale ${SCORE} --jsonl`;
  for (
    const [script, expected, said = ""] of [
      [`${line} <&-; echo $?`, "0", "warning: there are no rows in the input\n"],
      [`${line} | jq -c '[.id, (.tokens|length)]' | head -1`, `["a",${LENGTH}]`],
    ] as const
  ) {
    const { stdout, stderr } = await runShell(script, { stdin: ROWS });
    assertEquals([stdout.trim(), stderr], [expected, said]);
  }
});

Deno.test("-o writes a file whole, and replaces one only with --overwrite", () =>
  withScratch(async (cwd) => {
    const line = `${SCORE} --jsonl -o out.jsonl`;
    const written = async () => await Deno.readTextFile(`${cwd}/out.jsonl`);
    assertEquals(await succeed(line, { cwd, stdin: ROWS }), "");
    const first = await written();
    assertEquals(parseLines(first).length, 4);
    assertEquals((await runParscale(line, { cwd, stdin: ROWS })).code, 2);
    const broken = { cwd, stdin: jsonLines({ tokens: [1, 2] }, "broken") };
    assertEquals((await runParscale(`${line} --overwrite --batch 1`, broken)).code, 3);
    assertEquals(await written(), first, "kept where a run failed");
    assertEquals(names(cwd), ["out.jsonl", "out.jsonl.partial"], "finished rows are kept");
    const mended = { cwd, stdin: jsonLines({ tokens: [1, 2] }, { tokens: [3, 4] }) };
    const again = await runParscale(`${line} --overwrite --resume --batch 1`, mended);
    assertEquals([again.code, parseLines(await written()).map(({ id }) => id)], [0, [0, 1]]);
  }));

Deno.test("a shard is not resumed with batches of another size, by which rows are dealt", () =>
  withScratch(async (cwd) => {
    await Deno.writeTextFile(`${cwd}/rows.jsonl`, jsonLines({ tokens: [1, 2] }, "broken"));
    const line = `score rows.jsonl --model ${MODEL} --shard 1/2 --json -o part.json`;
    assertEquals((await runParscale(`${line} --batch 1`, { cwd })).code, 3);
    const other = await runParscale(`${line} --batch 2 --resume`, { cwd });
    assertEquals(other.code, 2);
    assertStringIncludes(other.stderr, "belongs to a run that differs in batch");
  }));
