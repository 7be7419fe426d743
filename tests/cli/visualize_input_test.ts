/**
 * Input of `parscale visualize`: rows, files, benchmarks, bad data, misuse.
 */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { DATA } from "./eval_testing.ts";
import {
  assertRefusals,
  assertRefused,
  copyFolder,
  jsonLines,
  MODEL,
  parseLines,
  PLAIN_MODEL,
  rowsOf,
} from "./models.ts";
import { runParscale, runShell } from "./run.ts";
import { withScratch } from "../scratch.ts";

const MODEL4 = MODEL.replace("qwen2-p2-tied-f32", "qwen2-p4-untied-f32");
const SHOW = ["visualize", "--model", MODEL4];

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
    const rows = await rowsOf(["visualize", "--model", chat], { cwd, stdin });
    const byText = Map.groupBy(rows, ({ text_id }) => text_id);
    assertEquals([...byText.keys()], [0, "p", 2, 9, 4, 5, 6]);
    const textOf = (id: unknown) => byText.get(id)!.map(({ text }) => text).join("");
    assertEquals([textOf(0), textOf("p"), textOf(6)], ["the cat sat", "the cat sat", "the cat"]);
    assertEquals([textOf(9), textOf(4)], ["user: hi\nbot: hey", "user: hi\n"]);
    assertEquals(byText.get(2)!.slice(-2).map(({ token }) => token), [5, 6]);
    assertEquals(byText.get(5)!.map(({ token }) => token), [1, 2, 3]);
    await Deno.writeTextFile(`${cwd}/a.txt`, "the cat\r\nsat\n");
    await Deno.writeTextFile(`${cwd}/b.jsonl`, jsonLines({ id: "row", text: "a dog" }));
    const files = await rowsOf([...SHOW, "a.txt", "b.jsonl"], { cwd });
    const joined = (id: string) =>
      files.filter(({ text_id }) => text_id === id).map(({ text }) => text).join("");
    assertEquals([joined("a.txt"), joined("row")], ["the cat\nsat", "a dog"]);
    const braces = await rowsOf([...SHOW, "--input", "text"], { cwd, stdin: "{a}" });
    assertEquals(braces.map(({ text }) => text).join(""), "{a}");
  }));

Deno.test("the rows that generate writes are read", async () => {
  const { stdout, stderr } = await runShell(
    `echo '{"prompt":"a cat"}' | parscale generate --model ${MODEL4} --max-tokens 6 --jsonl | ` +
      `parscale ${SHOW.join(" ")} --jsonl`,
  );
  assertEquals([parseLines(stdout).length, stderr], [6, ""]);
});

Deno.test("rows of a benchmark: the prompt of eval, then the reference answer", async () => {
  const task = (name: string, ids: string, ...more: string[]) =>
    rowsOf([...SHOW, "--task", name, "--data", DATA, "--ids", ids, ...more]);
  const rows = await task("gsm8k", "1,0", "--shots", "0");
  const byText = Map.groupBy(rows, ({ text_id }) => text_id);
  assertEquals([...byText.keys()], ["gsm8k/0", "gsm8k/1"], "in the order of the file");
  const text = byText.get("gsm8k/0")!.map((row) => row.text).join("");
  assert(/^Question: .*\nAnswer: .*####/s.test(text), text);
  const [choice] = [(await task("piqa", "0")).map((row) => row.text).join("")];
  assert(choice.startsWith("Question: "), choice);
});

Deno.test("--max-tokens cuts; a text beyond the context is refused with the remedy", async () => {
  const long = { id: "x", tokens: new Array(2049).fill(1) };
  const stdin = jsonLines({ text: "short" }, long);
  const refused = await runParscale(SHOW, { stdin });
  assertRefused(
    refused,
    3,
    "line 2 of stdin has 2049 tokens, more than the model's context of 2048",
  );
  assertStringIncludes(refused.stderr, "hint: pass --max-tokens 2048 to read its beginning");
  const rows = await rowsOf([...SHOW, "--max-tokens", "300"], { stdin: jsonLines(long) });
  assertEquals([rows.length, rows.at(-1).position], [300, 299]);
});

Deno.test("ids need no tokenizer and are shown as numbers", () =>
  withScratch(async (folder) => {
    const model = await copyFolder(MODEL4, `${folder}/m`, {
      "tokenizer.json": undefined,
      "tokenizer_config.json": undefined,
    });
    const run = ["visualize", "--model", model];
    const stdin = jsonLines({ tokens: [7, 8] });
    const { stdout } = await runParscale(run, { stdin });
    assertStringIncludes(stdout, "<7><8>");
    assertEquals((await rowsOf(run, { stdin })).map(({ text }) => text), [null, null]);
  }));

Deno.test("bad data: nothing to show, broken rows, ids, files, one stream", async () => {
  const given = (stdin: string, ...args: string[]) => runParscale([...SHOW, ...args], { stdin });
  const line = "error: line 1 of stdin";
  await assertRefusals([
    [given(""), 3, "error: stdin is empty\n"],
    [given(jsonLines({ text: "" })), 3, `${line} is empty\n`],
    [given("", "--input", "jsonl"), 3, "error: stdin holds no rows\n"],
    [
      given(jsonLines({ text: "a" }, "", '{"text": ')),
      3,
      "error: line 3 of stdin is not valid JSON: Unexpected end of JSON input\n",
    ],
    [
      given(jsonLines({ id: 1 })),
      3,
      `${line}: found only "id", expected "text", "prompt", "messages" or "tokens"\n`,
    ],
    [given(jsonLines({ text: 5 })), 3, `${line}: found 5 in "text", expected text\n`],
    [
      given(jsonLines({ tokens: [600] })),
      3,
      "error: cannot visualize line 1 of stdin: token id 600 at position 0, expected an integer " +
      "from 0 to 511\n",
    ],
    [given("", "none.txt"), 3, 'error: no such file: "none.txt"\n'],
    [
      `visualize --model ${PLAIN_MODEL} --text a`,
      3,
      `error: "${PLAIN_MODEL}" has one stream, which always has the whole weight\n`,
      "hint: `parscale convert --streams 4` gives it streams",
    ],
  ]);
});

Deno.test("misuse: two sources, flags without a task, figures on stdout or in one", async () => {
  const show = SHOW.join(" ");
  await assertRefusals([
    [`${show} a.txt --text a`, 2, "error: `--text` cannot be combined with FILE\n"],
    [`${show} --ids 1`, 2, "error: `--ids` needs `--task`\n"],
    [`${show} --html -`, 2, "error: `--html` cannot be written to stdout\n"],
    [`${show} --html a --out a`, 2, 'error: `--html` and `--out` both name "a"\n'],
    [`${show} --task gsm8k`, 2, "error: `--task gsm8k` needs `--data`\n"],
    ["visualize --text a", 2],
    [`${show} --task gsm8`, 2, "hint: did you mean `gsm8k`?"],
    [`${show} --hmtl a`, 2, "did you mean `--html`?"],
  ]);
});
