/** Every form of data that `parscale train` takes, through the command. */
import { assert, assertAlmostEquals, assertEquals, assertStringIncludes } from "@std/assert";
import { zstdCompressSync } from "node:zlib";
import { bytesOf, DATA, gzip } from "../unit/data/testing.ts";
import { assertFailed, copyFolder, jsonLines, MODEL, parseLines } from "./models.ts";
import { runShell } from "./run.ts";
import { ROWS, texts, withWorkplace, type Workplace } from "./train_testing.ts";

const CHAT_TEMPLATE = "{% for message in messages %}<|im_start|>{{ message.role }}\n" +
  "{{ message.content }}<|im_end|>\n{% endfor %}" +
  "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

const SHORT = "--seq-len 24 --batch 2 --steps 3 --lr 1e-3";

/** A short packed run, and the losses of its steps. */
async function losses(place: Workplace, data: string, out: string): Promise<number[]> {
  const metrics = await place.trained(`--model p2 --data ${data} ${SHORT} --out ${out}`);
  assertEquals(metrics.length, 3);
  return metrics.map(({ loss }) => loss);
}

Deno.test("text is the same as JSON lines, gzip, zstd, one file of a folder, or stdin", () =>
  withWorkplace(async (place) => {
    const text = place.read("texts.jsonl");
    await Deno.mkdir(`${place.cwd}/folder/deep`, { recursive: true });
    place.write("folder/deep/only.ndjson", text);
    place.write("packed.jsonl.gz", await gzip(text));
    place.write("packed.jsonl.zst", zstdCompressSync(bytesOf(text)));
    const expected = await losses(place, "texts.jsonl", "plain");
    const others = await Promise.all([
      losses(place, "packed.jsonl.gz", "gz"),
      losses(place, "packed.jsonl.zst", "zst"),
      losses(place, "folder", "whole-folder"),
      losses(place, "fold*/**/*.ndjson", "glob"),
    ]);
    for (const other of others) assertEquals(other, expected);
    const command = place.args(`--model p2 --data - ${SHORT} --save-every 2 -q`).join(" ");
    for (const [file, out] of [["texts.jsonl", "stdin"], ["packed.jsonl.gz", "stdin-gz"]]) {
      const piped = await runShell(`cat ${file} | parscale ${command} --out ${out}`, place);
      assertEquals([piped.code, piped.stderr], [0, ""]);
      assertEquals(place.metrics(out!).map(({ loss }) => loss), expected);
    }
    place.write("stdin/last", "checkpoint-000002\n");
    await place.trained("--resume --out stdin");
    assertEquals(place.metrics("stdin").map(({ loss }) => loss), expected, "without stdin");
  }));

Deno.test("a plain text file is one document, a Parquet table is read by its columns", () =>
  withWorkplace(async (place) => {
    const text = texts(20).map(({ text }) => text).join("\n");
    place.write("book.txt", text);
    place.write("book.jsonl", jsonLines({ text }));
    const [plain, json, table] = await Promise.all([
      losses(place, "book.txt", "plain"),
      losses(place, "book.jsonl", "json"),
      losses(place, `${DATA}/text.parquet`, "table"),
    ]);
    assertEquals(plain, json);
    assert(table!.every(Number.isFinite));
  }));

Deno.test("of prompts with completions and of messages only the answers are trained", () =>
  withWorkplace(async (place) => {
    await copyFolder(MODEL, `${place.cwd}/talker`, {
      "tokenizer_config.json": JSON.stringify({ chat_template: CHAT_TEMPLATE }),
    });
    const question = "two and three is", answer = "five";
    place.write("pairs.jsonl", jsonLines({ prompt: `${question} `, completion: answer }));
    const messages = [{ role: "user", content: question }, { role: "assistant", content: answer }];
    place.write("chat.jsonl", jsonLines({ messages }));
    const rendered = `<|im_start|>user\n${question}<|im_end|>\n<|im_start|>assistant\n`;
    const ids = "--batch 1 --steps 1 --no-pack";
    const [pairs, chat] = await Promise.all([
      place.trained(`--model p2 --data pairs.jsonl ${ids} --out pairs`),
      place.trained(`--model talker --data chat.jsonl ${ids} --out chat`),
    ]);
    const after = (text: string) => score(place, { prompt: "", continuation: text });
    const [pair, begun, whole] = await Promise.all([
      score(place, { prompt: question, continuation: ` ${answer}<|endoftext|>` }),
      after(rendered),
      after(`${rendered}${answer}<|im_end|>`),
    ]);
    assertAlmostEquals(pairs![0].loss, meanLoss(pair.token_logprobs), 1e-5);
    const { token_logprobs } = await score(place, { tokens: whole.tokens.slice(1) });
    const answered = token_logprobs.slice(begun.tokens.length - whole.tokens.length);
    assertAlmostEquals(chat![0].loss, meanLoss(answered), 1e-5);
    const none = await place.train(`--model p2 --data chat.jsonl ${ids} --out none`);
    assertFailed(none, 3, 'cannot tokenize row 1 of "chat.jsonl": ', "chat template");
  }));

// deno-lint-ignore no-explicit-any -- tests look at any field
async function score(place: Workplace, row: unknown): Promise<any> {
  return parseLines((await place.run("score --model p2 --jsonl", jsonLines(row))).stdout)[0];
}

function meanLoss(logprobs: number[]): number {
  return -logprobs.reduce((sum, value) => sum + value, 0) / logprobs.length;
}

Deno.test("weighted sources keep their shares at all times", () =>
  withWorkplace(async (place) => {
    // Sources of one token each, so that a batch's aggregate shows what it is made of.
    const rows = (token: number, length: number) => ({ tokens: Array(length).fill(token) });
    place.write("a.jsonl", jsonLines(rows(1, 8), rows(1, 8)));
    place.write("b.jsonl", jsonLines(rows(2, 4)));
    const metrics = await place.trained(
      "--model p2 --data a.jsonl=3 --data b.jsonl=1 --no-pack --batch 4 --steps 5 --out run",
    );
    assertEquals(metrics.map(({ tokens }) => tokens), [28, 56, 84, 112, 140], "3 · 8 + 4 a step");
  }));

Deno.test("validation: a file or a share, at the asked steps and at the end", () =>
  withWorkplace(async (place) => {
    const line = `--model p2 ${ROWS} --lr 3e-3 --schedule constant --warmup 0`;
    const curve = line.replace("rows", "one");
    place.write("one.jsonl", place.read("rows.jsonl").split("\n").slice(0, 4).join("\n"));
    place.write("other.jsonl", place.read("rows.jsonl").split("\n").slice(4, 8).join("\n"));
    const [file, share, overfit] = await Promise.all([
      place.trained(`${line} --eval-data rows.jsonl --eval-every 2 --steps 5 --out file`),
      place.trained(`${line} --eval-split 0.2 --eval-every 1 --epochs 1 --out share`),
      place.trained(`${curve} --epochs 15 --eval-data other.jsonl --eval-every 5 --out curve`),
    ]);
    const present = file!.map(({ eval_loss }) => eval_loss !== null);
    assertEquals(present, [false, true, false, true, true]);
    const [before] = place.metrics("file");
    assertEquals([before.step, before.loss, typeof before.eval_loss], [0, null, "number"]);
    assertEquals(share!.map(({ tokens }) => tokens), [64, 128, 192, 256], "16 of 20 rows");
    const told = overfit!.filter(({ eval_loss }) => eval_loss !== null);
    assertEquals(told.map(({ step }) => step), [5, 10, 15]);
    assert(overfit!.at(-1).loss < 0.5, "learns the rows it sees");
    assert(told[2].eval_loss > told[0].eval_loss, "and forgets the others");
  }));

Deno.test("the share set aside is decided by the seed and does not train", () =>
  withWorkplace(async (place) => {
    const line = "--model p2 --data texts.jsonl --seq-len 24 --batch 2 --eval-split 0.5";
    const evalLoss = async (seed: number, out: string) =>
      (await place.trained(`${line} --steps 1 --lr 0 --seed ${seed} --out ${out}`))[0].eval_loss;
    const [one, same, other] = await Promise.all([
      evalLoss(1, "one"),
      evalLoss(1, "same"),
      evalLoss(2, "other"),
    ]);
    assertEquals(one, same);
    assert(one !== other);
  }));

Deno.test("stdin holds either training or validation data, and both survive a break", () =>
  withWorkplace(async (place) => {
    const line = "--model p2 --seq-len 24 --batch 2 --steps 3 --save-every 2";
    const stdin = place.read("texts.jsonl");
    await place.trained(`${line} --data texts.jsonl --eval-data - --out run`, { stdin });
    const before = place.steady("run");
    place.write("run/last", "checkpoint-000002\n");
    await place.trained("--resume --out run");
    assertEquals(place.steady("run"), before);
  }));

Deno.test("empty files are left out with one note, and unreadable ones with --skip-bad-files", () =>
  withWorkplace(async (place) => {
    await Deno.mkdir(`${place.cwd}/code`);
    for (const [i, { text }] of texts(6).entries()) place.write(`code/${i}.py`, text);
    place.write("code/empty.py", "");
    place.write("code/none.py", "");
    const train = (out: string, flags: string) =>
      place.train(`--model p2 --seq-len 24 --batch 2 --steps 3 --out ${out} --data ${flags}`);
    const plain = await train("plain", "code/*.py");
    assertEquals(plain.code, 0, plain.stderr);
    const empty = 'left out 2 empty files, such as "code/empty.py"';
    assertEquals(plain.stderr.match(/left out.*/g), [empty]);
    place.write("code/image.py", new Uint8Array([0xff, 0xfe, 0xff]));
    const hint = "hint: pass --skip-bad-files to leave such files out";
    assertFailed(await train("refused", "code/*.py"), 3, hint);
    const files = [...Array(6).keys(), "image", "none"].map((name) => `code/${name}.py`);
    const skipped = await train("skipped", `${files.join(" ")} --skip-bad-files`);
    assertEquals(skipped.code, 0, skipped.stderr);
    assertStringIncludes(skipped.stderr, 'left out 1 unreadable file: "code/image.py"');
    const losses = (out: string) => place.metrics(out).map(({ loss }) => loss);
    assertEquals(losses("skipped"), losses("plain"));
    assertFailed(await train("alone", "code/empty.py"), 3, '"code/empty.py" has no rows');
  }));

Deno.test("rows that do not fit may be cut or left out", () =>
  withWorkplace(async (place) => {
    place.write("lengths.jsonl", jsonLines({ tokens: [1, 2, 3] }, { tokens: [4, 5, 6, 7, 8, 9] }));
    const line = "--model p2 --data lengths.jsonl --no-pack --no-shuffle --seq-len 4 --batch 2";
    const cases = [["truncate", 7, "cut short"], ["drop", 3, "left out"]] as const;
    for (const [how, tokens, what] of cases) {
      const { code, stderr } = await place.train(
        `${line} --long-rows ${how} --epochs 1 --out ${how}`,
      );
      assertEquals(code, 0, stderr);
      assertStringIncludes(stderr, `1 document longer than a row ${what}\n`);
      const metrics = place.metrics(how);
      assertEquals([metrics.length, metrics[0].tokens], [1, tokens]);
    }
  }));

Deno.test("train notes once that tables in text form are read as plain text", () =>
  withWorkplace(async (place) => {
    for (const name of ["a.csv", "b.TSV"]) place.write(name, "one,two\nthree,four\n".repeat(9));
    const line = "--model p2 --batch 1 --seq-len 8 --steps 1 --data a.csv b.TSV --out run";
    const { code, stderr } = await place.train(line);
    assertEquals(code, 0, stderr);
    assertEquals(stderr.split("reading tables as plain text").length, 2, stderr);
    assertStringIncludes(stderr, '"a.csv" and 1 more; rows are read from JSON lines and Parquet');
  }));
