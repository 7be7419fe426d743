/** Streams that start from text: a new model that begins as good as its source. */
import { fileURLToPath } from "node:url";
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { copyFolder, succeed } from "./models.ts";
import { runParscale } from "./run.ts";
import { withScratch } from "../scratch.ts";

const MODEL = fileURLToPath(new URL("../../fixtures/models/qwen2-p1-tied-f32", import.meta.url));

Deno.test("prefixes from text equal that text put before", () =>
  withScratch(async (cwd) => {
    const before = "The streams of a model are mixed per token.";
    const ids = JSON.parse(
      (await runParscale(["inspect", "--model", MODEL, "--tokenize", before], { cwd })).stdout,
    ) as number[];
    await Deno.writeTextFile(`${cwd}/text.txt`, before);
    // With one segment as long as the text, every stream starts from the whole of it.
    const made = await runParscale([
      ...["convert", "--model", MODEL, "--streams", "2", "--out", "p2"],
      ...["--prefix-tokens", String(ids.length), "--prefix-init", "text"],
      ...["--prefix-text", "text.txt"],
    ], { cwd });
    assertEquals(made.stderr, "");
    assertEquals(made.code, 0);

    const score = async (model: string, tokens: number[]) => {
      const stdin = JSON.stringify({ tokens });
      const { stdout } = await runParscale(["score", "--model", model, "--jsonl"], { cwd, stdin });
      return JSON.parse(stdout).token_logprobs as number[];
    };
    const text = [9, 12, 200, 31, 64];
    const parallel = await score("p2", text);
    const plain = (await score(MODEL, [...ids, ...text])).slice(-parallel.length);
    parallel.forEach((logprob, i) => assert(Math.abs(logprob - plain[i]!) < 1e-4));
  }));

Deno.test("prefix text that is missing, too short or unasked for is refused", () =>
  withScratch(async (cwd) => {
    await Deno.writeTextFile(`${cwd}/short.txt`, "short");
    const base = ["convert", "--model", MODEL, "--streams", "2", "--out", "p2"];
    const short = await runParscale(
      [...base, "--prefix-init", "text", "--prefix-text", "short.txt"],
      { cwd },
    );
    assertEquals(short.code, 3);
    assertStringIncludes(short.stderr, "fewer than `--prefix-tokens 48`");
    const absent = await runParscale(
      [...base, "--prefix-init", "text", "--prefix-text", "absent.txt"],
      { cwd },
    );
    assertEquals(absent.code, 3);
    const both = ["--prefix-init", "normal", "--prefix-text", "short.txt"];
    assertEquals((await runParscale([...base, ...both], { cwd })).code, 2);
    assertEquals([...Deno.readDirSync(cwd)].map((entry) => entry.name), ["short.txt"]);
  }));

/** Mean log-probability that a model gives some ids. */
async function meanLogprob(model: string[], cwd: string): Promise<number> {
  const stdin = JSON.stringify({ tokens: [9, 12, 200, 31, 64, 5, 17, 100, 42, 8, 300, 77] });
  const { stdout } = await runParscale(["score", ...model, "--jsonl"], { cwd, stdin });
  const logprobs = JSON.parse(stdout).token_logprobs as number[];
  return logprobs.reduce((sum, value) => sum + value, 0) / logprobs.length;
}

Deno.test("streams start as the average of text prefixes by default, and at random on request", () =>
  withScratch(async (cwd) => {
    const convert = async (out: string, ...flags: string[]) => {
      const args = ["convert", "--model", MODEL, "--streams", "4", "--out", out, ...flags];
      await succeed(args, { cwd });
    };
    await convert("text");
    await convert("same");
    await convert("adapter", "--introduced-only");
    await convert("random", "--prefix-init", "normal");
    const model = (name: string) => Deno.readFile(`${cwd}/${name}/model.safetensors`);
    assertEquals(await model("text"), await model("same"));
    const text = await meanLogprob(["--model", "text"], cwd);
    assertEquals(await meanLogprob(["--model", MODEL, "--adapter", "adapter"], cwd), text);
    const stdin = '{"tokens":[9,12,200,31,64]}\n';
    const args = ["score", "--model", "text", "--stream-weights", "--jsonl"];
    const { stdout } = await runParscale(args, { cwd, stdin });
    const { weights } = JSON.parse(stdout);
    for (const row of weights) {
      row.forEach((w: number) => assert(Math.abs(w - 0.25) < 1e-6, `${w}`));
    }
    assert(text !== await meanLogprob(["--model", "random"], cwd));
  }));

Deno.test("train --streams starts from the same text, but for --prefix-init normal", () =>
  withScratch(async (cwd) => {
    await Deno.writeTextFile(
      `${cwd}/rows.jsonl`,
      '{"tokens":[5,17,100,42,8,300,77,9]}\n'.repeat(8),
    );
    const train = async (out: string, ...flags: string[]) => {
      const args = ["train", "--model", MODEL, "--streams", "4", "--data", "rows.jsonl"];
      const size = ["--steps", "1", "--batch", "2", "--seq-len", "8", "--lr", "0", "--out", out];
      await succeed([...args, ...size, "-q", ...flags], { cwd });
      const [row] = (await Deno.readTextFile(`${cwd}/${out}/metrics.jsonl`)).split("\n");
      return JSON.parse(row!);
    };
    const text = await train("text"), random = await train("random", "--prefix-init", "normal");
    assert(text.loss !== random.loss);
    for (const weight of text.stream_weights) assert(Math.abs(weight - 0.25) < 1e-6);
    const convert = ["convert", "--model", MODEL, "--streams", "4", "--out", "converted"];
    assertEquals((await runParscale(convert, { cwd })).code, 0);
    const own = ["--model", "text"], converted = ["--model", "converted"];
    const [a, b] = [await meanLogprob(own, cwd), await meanLogprob(converted, cwd)];
    assert(Math.abs(a - b) < 1e-5, `${a}, ${b}`);
  }));

Deno.test("without a tokenizer prefixes are random, and a text is refused", () =>
  withScratch(async (cwd) => {
    const bare = { "tokenizer.json": undefined, "vocab.json": undefined, "merges.txt": undefined };
    await copyFolder(MODEL, `${cwd}/bare`, bare);
    const args = ["convert", "--model", "bare", "--streams", "2", "--out", "p2"];
    const { code, stderr } = await runParscale(args, { cwd });
    assertEquals(code, 0);
    assertStringIncludes(stderr, "without a tokenizer prefixes are random");
    const refused = await runParscale([...args, "--prefix-init", "text", "--overwrite"], { cwd });
    assertEquals(refused.code, 2);
    assertStringIncludes(refused.stderr, '"bare" has no tokenizer');
  }));
