/** Input of `parscale visualize`: rows, files and benchmarks. */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { DATA } from "./eval_testing.ts";
import {
  assertFailed,
  copyFolder,
  jsonLines,
  MODEL4,
  parseLines,
  rowsOf,
  succeed,
} from "./models.ts";
import { runParscale, runShell } from "./run.ts";
import { withScratch } from "../scratch.ts";

const SHOW = `visualize --model ${MODEL4}`;

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
    "hint: pass --max-tokens 2048 to read its beginning",
  );
  const rows = await rowsOf(`${SHOW} --max-tokens 300`, { stdin: jsonLines(long) });
  assertEquals([rows.length, rows.at(-1).position], [300, 299]);
});

Deno.test("ids need no tokenizer and are shown as numbers", () =>
  withScratch(async (folder) => {
    const model = await copyFolder(MODEL4, `${folder}/m`, {
      "tokenizer.json": undefined,
      "tokenizer_config.json": undefined,
    });
    const run = `visualize --model ${model}`, stdin = jsonLines({ tokens: [7, 8] });
    assertStringIncludes(await succeed(run, { stdin }), "<7><8>");
    assertEquals((await rowsOf(run, { stdin })).map(({ text }) => text), [null, null]);
  }));
