/** `parscale score` as a black box: every format, bad rows, misuse, pipes. */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import {
  assertRefusals,
  copyFolder,
  EXPECTED,
  jsonLines,
  MODEL,
  parseLines,
  PLAIN_MODEL,
  rowsOf,
} from "./models.ts";
import { runParscale, runShell } from "./run.ts";
import { withScratch } from "../scratch.ts";

const SCORE = ["score", "--model", MODEL];

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

Deno.test("--stream-weights adds a row of shares per token; one stream has ones", async () => {
  const stdin = jsonLines({ tokens: [1, 2, 3] });
  for (const [model, P] of [[MODEL, 2], [PLAIN_MODEL, 1]] as const) {
    const [row] = await rowsOf(["score", "--model", model, "--stream-weights"], { stdin });
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
    const rows = await rowsOf([...SCORE, "rows.jsonl"], { cwd });
    assertEquals(await rowsOf([...SCORE, "-"], { cwd, stdin: ROWS }), rows);
    const run = async (...format: string[]) => {
      const result = await runParscale([...SCORE, "rows.jsonl", ...format], { cwd });
      assertEquals([result.code, result.stderr], [0, ""]);
      return result.stdout;
    };
    const document = JSON.parse(await run("--json"));
    assertEquals([document.schema, document.command], ["parscale.score/1", "score"]);
    assertEquals([document.device, document.seed], ["cpu", 0]);
    assertEquals(document.results, rows);
    const csv = (await run("--format", "csv")).trimEnd().split(/\r?\n/);
    assertEquals(csv[0], "id,loglikelihood,is_greedy,error");
    assertEquals(csv[1], `a,${rows[0].loglikelihood},${rows[0].is_greedy},`);
    const rounded = rows[0].loglikelihood.toFixed(4);
    assertStringIncludes(await run(), rounded);
    assertStringIncludes(await run("--format", "md"), `| ${rounded} |`);
  }));

Deno.test("companions and batch size change nothing but the last bits", async () => {
  const [together, alone] = await Promise.all([
    rowsOf(SCORE, { stdin: ROWS }),
    rowsOf([...SCORE, "--batch", "1", "--threads", "1"], { stdin: ROWS }),
  ]);
  together.forEach((row, i) => {
    assert(Math.abs(row.loglikelihood - alone[i].loglikelihood) < 1e-4);
  });
});

Deno.test("a row the model cannot take gets an error, the others continue, exit 1", async () => {
  const stdin = jsonLines(
    { id: "big", tokens: [600] },
    { tokens: [1, 2] },
    { tokens: [] },
    { prompt: "a", continuation: "" },
    { tokens: new Array(2050).fill(1) },
    { tokens: [1.5] },
    { tokens: [3] },
  );
  const { code, stdout, stderr } = await runParscale([...SCORE, "--jsonl"], { stdin });
  assertEquals([code, stderr], [1, ""]);
  const rows = parseLines(stdout);
  assertEquals(rows.map(({ id }) => id), ["big", 1, 2, 3, 4, 5, 6]);
  assertEquals(rows.map(({ error }) => error), [
    "cannot score a sequence: token id 600 at position 0, expected an integer from 0 to 511",
    undefined,
    "cannot score a sequence: there are no tokens",
    "cannot score an empty continuation",
    "cannot score a sequence: 2050 tokens exceed the model's context of 2048 and 1 that is only scored",
    "cannot score a sequence: token id 1.5 at position 0, expected an integer from 0 to 511",
    undefined,
  ]);
  assertEquals([rows[6].token_logprobs, rows[6].loglikelihood], [[], 0]);
  const table = await runParscale(SCORE, { stdin });
  assertEquals(table.code, 1);
  assertStringIncludes(table.stdout, "a sequence: token id 600 at position 0");
});

Deno.test("a line that is no row ends the command with 3 and its number", async () => {
  const good = { tokens: [1, 2] };
  const after = (line: unknown) => runParscale(SCORE, { stdin: jsonLines(good, "", line) });
  const at = "error: line 3 of stdin", pair = '"tokens", "text", or "prompt" and "continuation"';
  const list = "expected a list of numbers", text = "expected text";
  await assertRefusals([
    [after('{"tokens": [1,'), 3, `${at} is not valid JSON: Unexpected end of JSON input\n`],
    [after("[1, 2]"), 3, `${at}: found [1,2], expected a JSON object\n`],
    [after({ prompt: "x", id: 1 }), 3, `${at}: found only "prompt", "id", expected ${pair}\n`],
    [after({ tokens: "1 2" }), 3, `${at}: found "1 2" in "tokens", ${list}\n`],
    [
      after({ prompt: "x", continuation: null }),
      3,
      `${at}: found null in "continuation", ${text}\n`,
    ],
  ]);
});

Deno.test("misuse: no model, no such model, two files, an unknown flag, a bad value", () => {
  const score = `score --model ${MODEL}`;
  return assertRefusals([
    ["score", 2],
    ["score --model ./none", 3, 'error: no such folder: "./none"'],
    [`${score} --stream-wieghts`, 2, "did you mean `--stream-weights`?"],
    [`${score} --batch 0`, 2, "--batch"],
    [`${score} a b`, 2],
    [`${score} none.jsonl`, 3, 'error: no such file: "none.jsonl"\n'],
  ], { stdin: ROWS });
});

Deno.test("no rows: an empty result and 0, from an empty and from a closed stdin", async () => {
  assertEquals(await rowsOf(SCORE, { stdin: "" }), []);
  const closed = await runShell(`parscale ${SCORE.join(" ")} --jsonl <&-; echo $?`);
  assertEquals(closed.stdout, "0\n");
});

Deno.test("ids need no tokenizer, text does", () =>
  withScratch(async (folder) => {
    const model = await copyFolder(MODEL, `${folder}/m`, {
      "tokenizer.json": undefined,
      "tokenizer_config.json": undefined,
    });
    const run = ["score", "--model", model];
    assertEquals((await rowsOf(run, { stdin: jsonLines({ tokens: [1, 2] }) })).length, 1);
    const text = await runParscale(run, { stdin: jsonLines({ prompt: "a", continuation: "b" }) });
    assertEquals([text.code, text.stdout], [3, ""]);
    assertStringIncludes(text.stderr, `error: "${model}" has no tokenizer: `);
  }));

Deno.test("pipelines: jq reads rows, a reader that leaves ends it quietly", async () => {
  const { stdout, stderr } = await runShell(
    `parscale ${SCORE.join(" ")} --jsonl | jq -c '[.id, (.tokens|length)]'`,
    { stdin: ROWS },
  );
  assertEquals(stdout.split("\n")[0], `["a",${EXPECTED.cases.single.ids[0].length}]`);
  assertEquals(stderr, "");
  const many = `for i in {1..400}; do echo '{"tokens":[1,2,3]}'; done`;
  const gone = await runShell(
    `${many} | parscale ${
      SCORE.join(" ")
    } --jsonl --batch 1 | head -c 40 | wc -c; echo "\${PIPESTATUS[1]}"`,
  );
  assertEquals([gone.stdout.trim(), gone.stderr], ["40\n0", ""]);
});

Deno.test("the memory limit is an environment error before anything is computed", async () => {
  const { code, stderr } = await runParscale([...SCORE, "--memory-limit", "1"], { stdin: ROWS });
  assertEquals(code, 4);
  assert(
    /^error: the model exceeds the memory limit of 1 bytes: it needs \d+ \(\d+ for weights, \d+ for keys and values\)\n/
      .test(stderr),
  );
  assertStringIncludes(stderr, "\nhint: use fewer rows at once");
});

Deno.test("the reference device agrees with the cpu", async () => {
  const [reference] = await rowsOf([...SCORE, "--device", "reference"], {
    stdin: jsonLines({ tokens: [1, 2, 3] }),
  });
  const [cpu] = await rowsOf(SCORE, { stdin: jsonLines({ tokens: [1, 2, 3] }) });
  assert(Math.abs(reference.loglikelihood - cpu.loglikelihood) < 1e-4);
});

Deno.test("-o writes a file whole, and replaces one only with --overwrite", () =>
  withScratch(async (cwd) => {
    const args = [...SCORE, "--jsonl", "-o", "out.jsonl"];
    const first = await runParscale(args, { cwd, stdin: ROWS });
    assertEquals(first, { code: 0, stdout: "", stderr: "" });
    const written = await Deno.readTextFile(`${cwd}/out.jsonl`);
    assertEquals(parseLines(written).length, 4);
    assertEquals((await runParscale(args, { cwd, stdin: ROWS })).code, 2);
    const broken = jsonLines({ tokens: [1, 2] }, "broken");
    const failed = await runParscale([...args, "--overwrite", "--batch", "1"], {
      cwd,
      stdin: broken,
    });
    assertEquals(failed.code, 3);
    assertEquals(await Deno.readTextFile(`${cwd}/out.jsonl`), written, "kept where a run failed");
    const names = [...Deno.readDirSync(cwd)].map(({ name }) => name).sort();
    assertEquals(names, ["out.jsonl", "out.jsonl.partial"], "finished rows are kept");
    const mended = jsonLines({ tokens: [1, 2] }, { tokens: [3, 4] });
    const again = [...args, "--overwrite", "--resume", "--batch", "1"];
    assertEquals((await runParscale(again, { cwd, stdin: mended })).code, 0);
    const ids = parseLines(await Deno.readTextFile(`${cwd}/out.jsonl`)).map(({ id }) => id);
    assertEquals(ids, [0, 1]);
  }));
