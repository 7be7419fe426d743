/** Scoring: company, padding and chunks change nothing but the last bits. */
import {
  assert,
  assertAlmostEquals,
  assertEquals,
  assertRejects,
  assertStringIncludes,
  assertThrows,
} from "@std/assert";
import { openCheckpoint } from "../../../core/checkpoint/open.ts";
import { DataError, NumericalError } from "../../../core/base/errors.ts";
import { RandomStream } from "../../../core/base/random.ts";
import { largestBatch } from "../../../core/generate/batch_size.ts";
import { Engine } from "../../../core/generate/engine.ts";
import { tokenLogprobs } from "../../../core/generate/logprobs.ts";
import { SCORE_CHUNK, scoreBatch, type ScoreRequest } from "../../../core/generate/score.ts";
import { CpuDevice } from "../../../core/runtime/onnxruntime/cpu.ts";
import { largest, logitsOf, prompt } from "../../device/engines.ts";
import { maxDifference, modelFolder, openGolden, withNaN } from "../../device/goldens.ts";

const CLOSE = 1e-5;

const text = (length: number) => prompt(length, length);

/** log p of every token but the first, straight from the logits of one pass. */
async function direct(engine: Engine, tokens: number[]): Promise<number[]> {
  const V = engine.config.vocabSize;
  const logits = await logitsOf(engine, [tokens]);
  return tokens.slice(1).map((token, t) => {
    const row = Array.from(logits.subarray(t * V, (t + 1) * V));
    const peak = Math.max(...row);
    const total = row.reduce((sum, x) => sum + Math.exp(x - peak), 0);
    return row[token]! - peak - Math.log(total);
  });
}

const engine = await openGolden("qwen2-p4-untied-f32", new CpuDevice({ threads: 1 }));

Deno.test("rows of different length give the same side by side as alone", async () => {
  const requests: ScoreRequest[] = [5, 31, 32, 33, 100, 2].map((length, i) => ({
    tokens: text(length),
    from: i === 4 ? 90 : 1,
  }));
  const together = await scoreBatch(engine, requests, { weights: true });
  for (const [i, request] of requests.entries()) {
    const [alone] = await scoreBatch(engine, [request], { weights: true });
    const scores = [together[i]!, alone!];
    const [a, b] = scores.map(({ tokenLogprobs }) => tokenLogprobs);
    assertEquals(a!.length, request.tokens.length - request.from);
    assert(maxDifference(a!, b!) < CLOSE, `logprobs of row ${i}`);
    const [v, w] = scores.map(({ weights }) => weights!.flatMap((row) => Array.from(row)));
    assert(maxDifference(v!, w!) < CLOSE, `weights of row ${i}`);
    assertEquals(scores[0]!.isGreedy, scores[1]!.isGreedy);
  }
});

Deno.test("texts of several chunks equal one pass; a part equals the end of the whole", async () => {
  for (const length of [255, 256, 257, 258, 300, 513, 600]) {
    const tokens = text(length);
    const expected = await direct(engine, tokens);
    const [whole, part] = await scoreBatch(engine, [
      { tokens, from: 1 },
      { tokens, from: length - 3 },
    ]);
    assert(maxDifference(whole!.tokenLogprobs, expected) < CLOSE, `${length} tokens`);
    assert(maxDifference(part!.tokenLogprobs, expected.slice(-3)) < CLOSE, `end of ${length}`);
    const sum = expected.reduce((a, b) => a + b, 0);
    assert(Math.abs(whole!.loglikelihood - sum) < CLOSE * length);
  }
});

Deno.test("is_greedy says whether greedy decoding gives these tokens", async () => {
  const tokens = text(4);
  for (let i = 0; i < 6; i++) {
    tokens.push(largest(await logitsOf(engine, [tokens], [tokens.length - 1])));
  }
  const other = tokens.with(7, (tokens[7]! + 1) % 512);
  const scores = await scoreBatch(engine, [
    { tokens, from: 4 },
    { tokens: other, from: 4 },
    { tokens: other, from: 8 },
  ]);
  assertEquals(scores.slice(0, 2).map(({ isGreedy }) => isGreedy), [true, false]);
});

Deno.test("a single token has nothing to score, and the weights of one token", async () => {
  const [score] = await scoreBatch(engine, [{ tokens: [5], from: 1 }], { weights: true });
  assertEquals([score!.tokenLogprobs.length, score!.loglikelihood, score!.isGreedy], [0, 0, true]);
  assertEquals(score!.weights!.length, 1);
  const [plain] = await scoreBatch(engine, [{ tokens: [5], from: 1 }]);
  assertEquals([plain!.loglikelihood, plain!.weights], [0, undefined]);
});

Deno.test("a text may exceed the context by the last token, which is scored and not read", async () => {
  const limit = engine.config.maxPositionEmbeddings;
  const tokens = text(limit + 1);
  const [score] = await scoreBatch(engine, [{ tokens, from: limit }]);
  assertEquals(score!.tokenLogprobs.length, 1);
  const refused = (tokens: number[], options = {}) =>
    assertRejects(() => scoreBatch(engine, [{ tokens, from: 1 }], options), DataError);
  assertStringIncludes((await refused([...tokens, 1])).message, "2050 tokens exceed");
  // Weights are wanted at the last token too, so it has to be read.
  assertStringIncludes((await refused(tokens, { weights: true })).message, "2049 tokens exceed");
  await assertRejects(() => scoreBatch(engine, [{ tokens: [], from: 1 }]), DataError, "no tokens");
});

Deno.test("numbers that are not finite are a numerical error", async () => {
  const { config, device } = engine;
  const { tensors } = await openCheckpoint(modelFolder("qwen2-p4-untied-f32"));
  const ill = new Engine(device, config, withNaN(tensors, "model.norm.weight", 0));
  await assertRejects(() => scoreBatch(ill, [{ tokens: [1, 2], from: 1 }]), NumericalError);
});

Deno.test("the batch that fits a limit counts the logits of every token that is scored", async () => {
  const { config, tensors } = await openCheckpoint(modelFolder("tiny-qwen2"));
  const engine = new Engine(new CpuDevice(), config, tensors);
  const sizes = { batch: 8, tokens: SCORE_CHUNK, capacity: 512, selected: 8 * SCORE_CHUNK };
  const { totalBytes } = engine.plan(sizes, { head: "score" });
  const batchOf = (limit: number) =>
    largestBatch(engine, { use: "score", most: 8, slots: 512, limit });
  assertEquals([batchOf(totalBytes), batchOf(totalBytes - 1)], [8, 4]);
});

Deno.test("log-probabilities on the host are exact to eleven digits; NaN and infinity are refused", () => {
  const random = new RandomStream(1, "logits");
  for (const spread of [0, 1, 30]) {
    const logits = Float32Array.from({ length: 5000 }, () => spread * (random.uniform() - 0.5));
    logits[7] = -Infinity;
    const sum = logits.reduce((sum, x) => sum + Math.exp(x - logits[0]!), 0);
    const { logprob } = tokenLogprobs(logits, 0, 0);
    assertAlmostEquals(logprob, -Math.log(sum), 1e-11);
    for (const bad of [NaN, Infinity]) {
      logits[7] = bad;
      assertThrows(() => tokenLogprobs(logits, 0, 0), NumericalError);
    }
  }
});
