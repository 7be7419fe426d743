/** Streams that start from text: a new model that begins as good as its source. */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { assertFailed, copyFolder, jsonLines, PLAIN_MODEL, rowsOf, succeed } from "./models.ts";
import { runParscale } from "./run.ts";
import { withScratch } from "../scratch.ts";

const CONVERT = `convert --model ${PLAIN_MODEL} --streams`;

/** Log-probabilities that a model gives some ids. */
async function logprobsOf(model: string, cwd: string, tokens: number[]): Promise<number[]> {
  const stdin = jsonLines({ tokens });
  return (await rowsOf(`score --model ${model}`, { cwd, stdin }))[0].token_logprobs;
}

async function meanLogprob(model: string, cwd: string): Promise<number> {
  const tokens = [9, 12, 200, 31, 64, 5, 17, 100, 42, 8, 300, 77];
  const logprobs = await logprobsOf(model, cwd, tokens);
  return logprobs.reduce((sum, value) => sum + value, 0) / logprobs.length;
}

Deno.test("prefixes from text equal that text put before", () =>
  withScratch(async (cwd) => {
    const before = "The streams of a model are mixed per token.";
    const inspect = `inspect --model ${PLAIN_MODEL} --tokenize '${before}'`;
    const ids: number[] = JSON.parse(await succeed(inspect));
    await Deno.writeTextFile(`${cwd}/text.txt`, before);
    // With one segment as long as the text, every stream starts from the whole of it.
    const prefix = `--prefix-tokens ${ids.length} --prefix-init text --prefix-text text.txt`;
    await succeed(`${CONVERT} 2 --out p2 ${prefix}`, { cwd });
    const text = [9, 12, 200, 31, 64];
    const parallel = await logprobsOf("p2", cwd, text);
    const plain = await logprobsOf(PLAIN_MODEL, cwd, [...ids, ...text]);
    const end = plain.slice(-parallel.length);
    parallel.forEach((logprob, i) => assert(Math.abs(logprob - end[i]!) < 1e-4));
  }));

Deno.test("streams start as the average of text prefixes by default, and at random on request", () =>
  withScratch(async (cwd) => {
    for (
      const out of ["text", "same", "adapter --introduced-only", "random --prefix-init normal"]
    ) await succeed(`${CONVERT} 4 --out ${out}`, { cwd });
    const model = (name: string) => Deno.readFile(`${cwd}/${name}/model.safetensors`);
    assertEquals(await model("text"), await model("same"));
    const text = await meanLogprob("text", cwd);
    assertEquals(await meanLogprob(`${PLAIN_MODEL} --adapter adapter`, cwd), text);
    assert(text !== await meanLogprob("random", cwd));
    const stdin = jsonLines({ tokens: [9, 12, 200, 31, 64] });
    const [{ weights }] = await rowsOf("score --model text --stream-weights", { cwd, stdin });
    for (const weight of weights.flat()) assert(Math.abs(weight - 0.25) < 1e-6, `${weight}`);

    // So does train --streams.
    const rows = jsonLines({ tokens: [5, 17, 100, 42, 8, 300, 77, 9] }).repeat(8);
    await Deno.writeTextFile(`${cwd}/rows.jsonl`, rows);
    const train = async (out: string, flags = "") => {
      const size = "--steps 1 --batch 2 --seq-len 8 --lr 0 -q";
      const line = `train --model ${PLAIN_MODEL} --streams 4 --data rows.jsonl ${size}`;
      return (await rowsOf(`${line} --out ${out} ${flags}`, { cwd }))[0];
    };
    const own = await train("trained"), random = await train("other", "--prefix-init normal");
    assert(own.loss !== random.loss);
    for (const weight of own.stream_weights) assert(Math.abs(weight - 0.25) < 1e-6);
    const trained = await meanLogprob("trained", cwd);
    assert(Math.abs(trained - text) < 1e-5, `${trained}, ${text}`);
  }));

Deno.test("without a tokenizer prefixes are random, and a text is refused", () =>
  withScratch(async (cwd) => {
    const bare = { "tokenizer.json": undefined, "vocab.json": undefined, "merges.txt": undefined };
    await copyFolder(PLAIN_MODEL, `${cwd}/bare`, bare);
    const line = "convert --model bare --streams 2 --out p2";
    const { code, stderr } = await runParscale(line, { cwd });
    assertEquals(code, 0);
    assertStringIncludes(stderr, "without a tokenizer prefixes are random");
    const refused = await runParscale(`${line} --prefix-init text --overwrite`, { cwd });
    assertFailed(refused, 2, '"bare" has no tokenizer');
  }));
