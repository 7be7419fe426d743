/** `parscale visualize` as a black box: every format, statistics, figures, pipes. */
import { assert, assertAlmostEquals, assertEquals, assertStringIncludes } from "@std/assert";
import { assertRefused, EXPECTED, jsonLines, MODEL, rowsOf, succeed } from "./models.ts";
import { runParscale, runShell } from "./run.ts";
import { withScratch } from "../scratch.ts";

const MODEL4 = MODEL.replace("qwen2-p2-tied-f32", "qwen2-p4-untied-f32");
const SHOW = ["visualize", "--model", MODEL4];
const TEXT = "The cat sat on the mat.\nÅngström 日本 😀\tend";

Deno.test("rows: one per token, with winner, weights, entropy and probability", async () => {
  const rows = await rowsOf([...SHOW, "--text", TEXT]);
  const [score] = await rowsOf(["score", "--model", MODEL4, "--stream-weights"], {
    stdin: jsonLines({ tokens: rows.map(({ token }) => token) }),
  });
  assertEquals(rows.map(({ text }) => text).join(""), TEXT);
  assert(rows.some(({ text }) => text === ""), "a character of several tokens");
  rows.forEach((row, t) => {
    assertEquals(Object.keys(row), [
      ...["text_id", "position", "token", "text", "winner"],
      ...["stream", "weights", "entropy", "logprob"],
    ]);
    assertEquals([row.text_id, row.position], [0, t]);
    assertEquals(row.weights, score.weights[t]);
    assertEquals(row.weights[row.stream], Math.max(...row.weights));
    assertEquals(row.winner, "ABCD"[row.stream]);
    const entropy = row.weights.reduce((sum: number, w: number) => sum - w * Math.log(w), 0);
    assertAlmostEquals(row.entropy, entropy, 1e-9);
    assertEquals(row.logprob, t === 0 ? null : score.token_logprobs[t - 1]);
  });
});

Deno.test("the golden weights of a model with two streams", async () => {
  const tokens = EXPECTED.cases.single.ids[0];
  const rows = await rowsOf(["visualize", "--model", MODEL], { stdin: jsonLines({ tokens }) });
  assertEquals(rows.map(({ token }) => token), tokens);
  const sums = rows.map(({ weights: [a, b] }) => a + b);
  for (const sum of sums) assertAlmostEquals(sum, 1, 1e-6);
});

Deno.test("the document has statistics that follow from its rows", async () => {
  const texts = [{ text: "the cat and the dog" }, { id: "b", text: "the mat and the hat" }];
  const stdin = jsonLines(...texts);
  const stdout = await succeed([...SHOW, "--json"], { stdin });
  const { schema, command, device, results } = JSON.parse(stdout);
  assertEquals([schema, command, device], ["parscale.visualize/2", "visualize", "cpu"]);
  const { statistics, agreement, diversity, rows } = results;
  assertEquals([results.streams, results.labels, diversity], [4, ["A", "B", "C", "D"], null]);
  const ids = results.texts.map(({ text_id }: { text_id: unknown }) => text_id);
  assertEquals(ids, [0, "b"]);
  assertEquals(statistics.tokens, rows.length);
  const wins = (p: number) => rows.filter(({ stream }: { stream: number }) => stream === p).length;
  assertEquals(statistics.shares, [0, 1, 2, 3].map((p) => wins(p) / rows.length));
  let runs = 0, last = "";
  for (const { text_id, winner } of rows) {
    const now = `${text_id} ${winner}`;
    if (now !== last) runs++;
    last = now;
  }
  assertEquals(statistics.mean_run_length, rows.length / runs);
  assertAlmostEquals(
    statistics.locality,
    statistics.mean_run_length / statistics.chance_run_length,
    1e-12,
  );
  assertAlmostEquals(statistics.entropy_share, statistics.mean_entropy / Math.log(4), 1e-12);
  assert(agreement.share_overlap > 0 && agreement.share_overlap <= 1);
  assert(agreement.same_token >= 0 && agreement.token_pairs > 0);
});

Deno.test("for readers: text, letters below, statistics; colour only when asked", async () => {
  const stdout = await succeed([...SHOW, "--text", TEXT]);
  const rows = await rowsOf([...SHOW, "--text", TEXT]);
  const [legend, , above, below] = stdout.split("\n");
  assertEquals(legend, "Streams: A B C D");
  assert(above!.startsWith("The cat sat on the mat.↵"));
  const firstLine = rows.slice(0, rows.findIndex(({ text }) => text.endsWith("\n")) + 1);
  assertEquals(below!.replaceAll(" ", ""), firstLine.map(({ winner }) => winner).join(""));
  for (const text of ["share of tokens", "entropy (nats)", "by chance", "→end"]) {
    assertStringIncludes(stdout, text);
  }
  assert(!stdout.includes("\x1b") && stdout.split("\n").every((line) => line.length <= 90));
  const colored = await runParscale([...SHOW, "--text", TEXT, "--color", "always"]);
  assertStringIncludes(colored.stdout, "\x1b[48;5;");
  assertEquals(
    // deno-lint-ignore no-control-regex -- what colours are made of
    colored.stdout.replace(/\x1b\[[\d;]*m/g, "").split("\n")[3],
    below,
    "letters stay with colour",
  );
  const refused = { NO_COLOR: "1", FORCE_COLOR: "1" };
  const plain = await runParscale([...SHOW, "--text", TEXT], { env: refused });
  assertEquals(plain.stdout, stdout);
});

Deno.test("csv and md have a column per weight; -o writes a file once", () =>
  withScratch(async (cwd) => {
    const run = (...args: string[]) => runParscale([...SHOW, "--text", "a cat", ...args], { cwd });
    const rows = await rowsOf([...SHOW, "--text", "a cat"], { cwd });
    const csv = (await run("--format", "csv")).stdout.trimEnd().split("\n");
    assertEquals(
      csv[0],
      "text_id,position,token,text,winner,entropy,logprob,weight_A,weight_B,weight_C,weight_D",
    );
    assertEquals(csv.length, rows.length + 1);
    assertStringIncludes(csv[1]!, `,${rows[0].weights.join(",")}`);
    assertStringIncludes((await run("--format", "md")).stdout, "| weight A |");
    assertEquals((await run("-o", "t.txt", "--color", "always")).stdout, "");
    const text = await Deno.readTextFile(`${cwd}/t.txt`);
    assert(text.startsWith("Streams: A B C D\n") && !text.includes("\x1b"));
    const again = await run("-o", "t.txt");
    assertRefused(again, 2, '"t.txt" already exists');
    assertEquals((await run("-o", "t.txt", "--overwrite")).code, 0);
  }));

Deno.test("an existing page is only replaced when told", () =>
  withScratch(async (cwd) => {
    const args = [...SHOW, "--text", "<b>cat</b> & co", "--html", "p.html"];
    const { code, stdout, stderr } = await runParscale(args, { cwd });
    assertEquals([code, stderr], [0, "wrote p.html\n"]);
    assert(!stdout.includes("cat") && stdout.startsWith("Streams\n"), "statistics only");
    const page = Deno.readTextFileSync(`${cwd}/p.html`);
    assert(!/(src|href)="(?!data:,)/.test(page) && !page.includes("<b>cat"));
    assertStringIncludes(page, "default-src 'none'");
    assert(!page.includes(MODEL4), "the page does not tell where the model lies");
    const rows = await rowsOf([...SHOW, "--text", "<b>cat</b> & co"], { cwd });
    assertEquals(page.match(/<span class="s\d w\d/g)!.length, rows.length);
    const again = await runParscale([...SHOW, "--text", "a", "--html", "p.html"], { cwd });
    assertRefused(again, 2, '"p.html" already exists');
    assertEquals((await runParscale([...args, "--overwrite"], { cwd })).code, 0);
    assertEquals([...Deno.readDirSync(cwd)].length, 1, "no temporary files are left");
  }));

/** Pearson's correlation. */
function correlation(xs: readonly number[], ys: readonly number[]): number {
  const mean = (values: readonly number[]) => values.reduce((a, b) => a + b, 0) / values.length;
  const [mx, my] = [mean(xs), mean(ys)];
  const covariance = (as: readonly number[], ma: number, bs: readonly number[], mb: number) =>
    mean(as.map((a, i) => (a - ma) * (bs[i]! - mb)));
  return covariance(xs, mx, ys, my) /
    Math.sqrt(covariance(xs, mx, xs, mx) * covariance(ys, my, ys, my));
}

Deno.test("--diversity: streams alone, rho with its error, and losses", async () => {
  const text = "the cat sat on the mat and the dog ran to the house by the sea. ".repeat(3);
  const args = [...SHOW, "--text", text, "--diversity"];
  const document = JSON.parse((await runParscale([...args, "--json"])).stdout).results;
  const { diversity, rows } = document;
  assertEquals(diversity.tokens, rows.length - 1);
  assertEquals([rows[0].stream_logprobs, rows[1].stream_logprobs.length], [null, 4]);
  const columns = [0, 1, 2, 3].map((p) =>
    rows.slice(1).map((row: { stream_logprobs: number[] }) => row.stream_logprobs[p]!)
  );
  columns.forEach((column, p) => {
    const loss = -column.reduce((a: number, b: number) => a + b, 0) / column.length;
    assertAlmostEquals(diversity.stream_losses[p], loss, 1e-9);
  });
  const pairs = [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]] as const;
  const residuals = columns.map((column: number[]) => column.map((x) => Math.exp(x) - 1));
  const mean = pairs.reduce((sum, [i, j]) => sum + correlation(residuals[i]!, residuals[j]!), 0) /
    6;
  assertAlmostEquals(diversity.rho, mean, 1e-9);
  assert(diversity.rho_standard_error > 0);
  assert(diversity.mean_mixture_loss <= Math.max(...diversity.stream_losses));
  const model =
    -rows.slice(1).reduce((sum: number, { logprob }: { logprob: number }) => sum + logprob, 0) /
    (rows.length - 1);
  assertAlmostEquals(diversity.model_loss, model, 1e-9);
  const table = await runParscale(args);
  assertStringIncludes(table.stdout, `Diversity: rho ${diversity.rho.toFixed(4)} ± `);
  const single = await runParscale([...SHOW, "--diversity"], { stdin: jsonLines({ tokens: [5] }) });
  assertEquals(single.code, 0);
  assertStringIncludes(single.stderr, "warning: no text has two tokens");
});

Deno.test("a reader that leaves ends it quietly", async () => {
  const rows = `for i in {1..300}; do echo '{"tokens":[1,2,3,4,5,6,7,8]}'; done`;
  for (const format of ["--jsonl", "--format table"]) {
    const { stdout, stderr } = await runShell(
      `${rows} | parscale ${SHOW.join(" ")} ${format} --batch 1 | head -c 40 | wc -c; ` +
        `echo "\${PIPESTATUS[1]}"`,
    );
    assertEquals([stdout.trim(), stderr], ["40\n0", ""]);
  }
});
