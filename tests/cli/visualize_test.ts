/** `parscale visualize` as a black box: input, every format, statistics, figures, pipes. */
import { assert, assertAlmostEquals, assertEquals, assertStringIncludes } from "@std/assert";
import { snakeKeys } from "../../cli/output/document.ts";
import { diversityOf } from "../../core/analysis/diversity.ts";
import { describeStreams } from "../../core/analysis/streams.ts";
import { DATA } from "./eval_testing.ts";
import {
  assertFailed,
  assertRefused,
  copyFolder,
  documentOf,
  jsonLines,
  MODEL4,
  names,
  NO_TOKENIZER,
  parseLines,
  rowsOf,
  succeed,
} from "./models.ts";
import { runParscale, runShell } from "./run.ts";
import { withScratch } from "../scratch.ts";

const SHOW = `visualize --model ${MODEL4}`;
const TEXT = "The cat sat on the mat.\nÅngström 日本 😀\tend";
const SHOWN = `${SHOW} --text '${TEXT}'`;

Deno.test("rows: one per token, with winner, weights, entropy and probability", async () => {
  const rows = await rowsOf(SHOWN);
  const stdin = jsonLines({ tokens: rows.map(({ token }) => token) });
  const [score] = await rowsOf(`score --model ${MODEL4} --stream-weights`, { stdin });
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

// deno-lint-ignore no-explicit-any -- tests look at any field
type Row = any;

Deno.test("the document has the statistics of its rows", async () => {
  const other = { id: "b", text: "the mat and the hat" };
  const stdin = jsonLines({ text: "the cat and the dog" }, other);
  const { schema, command, device, results } = await documentOf(SHOW, { stdin });
  assertEquals([schema, command, device], ["parscale.visualize/2", "visualize", "cpu"]);
  const { statistics, diversity, rows } = results;
  assertEquals([results.streams, results.labels, diversity], [4, ["A", "B", "C", "D"], null]);
  const byText = Map.groupBy<unknown, Row>(rows, ({ text_id }) => text_id);
  const texts = Array.from(byText.values(), (own) => ({
    tokens: own.map(({ token }) => token),
    weights: own.map(({ weights }) => weights),
  }));
  const each = texts.map((text) => snakeKeys(describeStreams([text])));
  assertEquals(results.texts, [{ text_id: 0, ...each[0] }, { text_id: "b", ...each[1] }]);
  assertEquals(statistics, snakeKeys(describeStreams(texts)));
});

Deno.test("for readers: text, letters below, statistics; colour only when asked", async () => {
  const [stdout, rows] = [await succeed(SHOWN), await rowsOf(SHOWN)];
  const [legend, , above, below] = stdout.split("\n");
  assertEquals(legend, "Streams: A B C D");
  assert(above!.startsWith("The cat sat on the mat.↵"));
  const firstLine = rows.slice(0, rows.findIndex(({ text }) => text.endsWith("\n")) + 1);
  assertEquals(below!.replaceAll(" ", ""), firstLine.map(({ winner }) => winner).join(""));
  for (const text of ["share of tokens", "entropy (nats)", "by chance", "→end"]) {
    assertStringIncludes(stdout, text);
  }
  assert(!stdout.includes("\x1b") && stdout.split("\n").every((line) => line.length <= 90));
  const colored = await succeed(`${SHOWN} --color always`);
  assertStringIncludes(colored, "\x1b[48;5;");
  // deno-lint-ignore no-control-regex -- what colours are made of
  const letters = colored.replace(/\x1b\[[\d;]*m/g, "").split("\n")[3];
  assertEquals(letters, below, "letters stay with colour");
  const refused = { NO_COLOR: "1", FORCE_COLOR: "1" };
  assertEquals(await succeed(SHOWN, { env: refused }), stdout);
});

Deno.test("csv and md have a column per weight; -o and --html write a file once", () =>
  withScratch(async (cwd) => {
    const cat = `${SHOW} --text 'a cat'`;
    const rows = await rowsOf(cat);
    const csv = (await succeed(`${cat} --format csv`)).trimEnd().split("\n");
    assertEquals(
      csv[0],
      "text_id,position,token,text,winner,entropy,logprob,weight_A,weight_B,weight_C,weight_D",
    );
    assertEquals(csv.length, rows.length + 1);
    assertStringIncludes(csv[1]!, `,${rows[0].weights.join(",")}`);
    assertStringIncludes(await succeed(`${cat} --format md`), "| weight A |");
    assertEquals(await succeed(`${cat} -o t.txt --color always`, { cwd }), "");
    const text = await Deno.readTextFile(`${cwd}/t.txt`);
    assert(text.startsWith("Streams: A B C D\n") && !text.includes("\x1b"));

    const draw = `${SHOW} --text '<b>cat</b> & co' --html p.html`;
    const { code, stdout, stderr } = await runParscale(draw, { cwd });
    assertEquals([code, stderr], [0, "wrote p.html\n"]);
    assert(!stdout.includes("cat") && stdout.startsWith("Streams\n"), "statistics only");
    const page = Deno.readTextFileSync(`${cwd}/p.html`);
    assert(!/(src|href)="(?!data:,)/.test(page) && !page.includes("<b>cat"));
    assertStringIncludes(page, "default-src 'none'");
    assert(!page.includes(MODEL4), "the page does not tell where the model lies");
    const tokens = await rowsOf(`${SHOW} --text '<b>cat</b> & co'`);
    assertEquals(page.match(/<span class="s\d w\d/g)!.length, tokens.length);
    for (const [line, file] of [[`${cat} -o t.txt`, "t.txt"], [draw, "p.html"]] as const) {
      assertRefused(await runParscale(line, { cwd }), 2, `"${file}" already exists`);
      assertEquals((await runParscale(`${line} --overwrite`, { cwd })).code, 0);
    }
    assertEquals(names(cwd), ["p.html", "t.txt"], "no temporary files are left");
  }));

Deno.test("--diversity: streams alone, rho with its error, and losses", async () => {
  const text = "the cat sat on the mat and the dog ran to the house by the sea. ".repeat(3);
  const line = `${SHOW} --text '${text}' --diversity`;
  const { diversity, rows } = (await documentOf(line)).results;
  assertEquals([rows[0].stream_logprobs, rows[1].stream_logprobs.length], [null, 4]);
  const streams = rows.slice(1).map((row: Row) => row.stream_logprobs);
  const model = rows.slice(1).map((row: Row) => row.logprob);
  assertEquals(diversity, snakeKeys(diversityOf([{ streams, model }])!));
  assertStringIncludes(await succeed(line), `Diversity: rho ${diversity.rho.toFixed(4)} ± `);
  const single = await runParscale(`${SHOW} --diversity`, { stdin: jsonLines({ tokens: [5] }) });
  assertEquals(single.code, 0);
  assertStringIncludes(single.stderr, "warning: no text has two tokens");
});

/** Text of the rows by the name of their text. */
function textsOf(rows: readonly { text_id: unknown; text: string | null }[]) {
  const byText = Map.groupBy(rows, ({ text_id }) => text_id);
  return new Map(Array.from(byText, ([id, of]) => [id, of.map(({ text }) => text).join("")]));
}

Deno.test("every kind of row: text, prompt with answer, messages, tokens; files and stdin", () =>
  withScratch(async (cwd) => {
    const chat = await copyFolder(MODEL4, `${cwd}/chat`, {
      "chat_template.jinja": "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}" +
        "{% if add_generation_prompt %}bot:{% endif %}",
    });
    const messages = [{ role: "user", content: "hi" }];
    const stdin = jsonLines(
      { text: "the cat sat" },
      "",
      { id: "p", prompt: "the cat ", text: "sat" },
      { prompt: "the cat", tokens: [5, 6], text: "ignored" },
      { id: 9, messages, text: " hey" },
      { messages },
      { tokens: [1, 2, 3] },
      { prompt: "the cat" },
    );
    const rows = await rowsOf(`visualize --model ${chat}`, { stdin });
    const texts = textsOf(rows);
    assertEquals([...texts.keys()], [0, "p", 2, 9, 4, 5, 6]);
    for (
      const [id, text] of [
        ...[[0, "the cat sat"], ["p", "the cat sat"], [6, "the cat"]],
        ...[[9, "user: hi\nbot: hey"], [4, "user: hi\n"]],
      ]
    ) assertEquals(texts.get(id), text);
    const tokens = (id: number) =>
      rows.filter(({ text_id }) => text_id === id).map(({ token }) => token);
    assertEquals([tokens(2).slice(-2), tokens(5)], [[5, 6], [1, 2, 3]]);
    await Deno.writeTextFile(`${cwd}/a.txt`, "the cat\r\nsat\n");
    await Deno.writeTextFile(`${cwd}/b.jsonl`, jsonLines({ id: "row", text: "a dog" }));
    const files = textsOf(await rowsOf(`${SHOW} a.txt b.jsonl`, { cwd }));
    assertEquals([files.get("a.txt"), files.get("row")], ["the cat\nsat", "a dog"]);
    const braces = textsOf(await rowsOf(`${SHOW} --input text`, { stdin: "{a}" }));
    assertEquals([...braces.values()], ["{a}"]);
  }));

Deno.test("the rows that generate writes are read", async () => {
  const { stdout, stderr } = await runShell(
    `echo '{"prompt":"a cat"}' | parscale generate --model ${MODEL4} --max-tokens 6 --jsonl | ` +
      `parscale ${SHOW} --jsonl`,
  );
  assertEquals([parseLines(stdout).length, stderr], [6, ""]);
});

Deno.test("rows of a benchmark: the prompt of eval, then the reference answer", async () => {
  const task = async (flags: string) => textsOf(await rowsOf(`${SHOW} --data ${DATA} ${flags}`));
  const texts = await task("--task gsm8k --ids 1,0 --shots 0");
  assertEquals([...texts.keys()], ["gsm8k/0", "gsm8k/1"], "in the order of the file");
  assert(/^Question: .*\nAnswer: .*####/s.test(texts.get("gsm8k/0")!));
  const [choice] = [...(await task("--task piqa --ids 0")).values()];
  assert(choice!.startsWith("Question: "), choice);
});

Deno.test("--max-tokens cuts; a text beyond the context is refused with the remedy", async () => {
  const long = { id: "x", tokens: new Array(2049).fill(1) };
  assertFailed(
    await runParscale(SHOW, { stdin: jsonLines({ text: "short" }, long) }),
    3,
    "error: line 2 of stdin has 2049 tokens, more than the model's context of 2048\n",
    "hint: pass --max-tokens 2048 to truncate it",
  );
  const rows = await rowsOf(`${SHOW} --max-tokens 300`, { stdin: jsonLines(long) });
  assertEquals([rows.length, rows.at(-1).position], [300, 299]);
});

Deno.test("ids need no tokenizer and are shown as numbers", () =>
  withScratch(async (folder) => {
    const model = await copyFolder(MODEL4, `${folder}/m`, NO_TOKENIZER);
    const run = `visualize --model ${model}`, stdin = jsonLines({ tokens: [7, 8] });
    assertStringIncludes(await succeed(run, { stdin }), "<7><8>");
    assertEquals((await rowsOf(run, { stdin })).map(({ text }) => text), [null, null]);
  }));
