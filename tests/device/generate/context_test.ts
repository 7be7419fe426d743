/**
 * Requests that exceed the model's context score and continue as in lm-evaluation-harness: choices,
 * whole texts in windows, and greedy answers.
 */
import { fileURLToPath } from "node:url";
import { assert, assertEquals } from "@std/assert";
import { openCheckpoint } from "../../../core/checkpoint/open.ts";
import { RequestEncoder } from "../../../core/eval/harness/encode.ts";
import { cutAtStops } from "../../../core/eval/harness/predict.ts";
import { Engine } from "../../../core/generate/engine.ts";
import { scoreBatch } from "../../../core/generate/score.ts";
import type { ScoreSet } from "../../../core/generate/score_sets.ts";
import type { Device } from "../../../core/runtime/device.ts";
import { openTokenizer } from "../../../core/tokenizer/tokenizer.ts";
import { devices } from "../devices.ts";
import { request, scoresOf, tokensOf } from "../engines.ts";

const FIXTURES = fileURLToPath(new URL("../../../fixtures/", import.meta.url));
const MODEL = `${FIXTURES}models/tiny-qwen2`;
const GOLDEN = JSON.parse(Deno.readTextFileSync(`${FIXTURES}golden/eval/context_reached.json`));

const tokenizer = await openTokenizer(MODEL);
const { config, tensors } = await openCheckpoint(MODEL);
const [startToken] = config.eosTokenIds;

/** The model with a context of exactly this many tokens, so that one token more is an error. */
function open(device: Device, maxLength: number) {
  const engine = new Engine(device, { ...config, maxPositionEmbeddings: maxLength }, tensors);
  return { engine, encoder: new RequestEncoder({ tokenizer, maxLength, startToken }) };
}

function assertClose(actual: number, expected: number): void {
  assert(Math.abs(actual - expected) < 1e-3, `${actual}, expected ${expected}`);
}

for (const { name, device } of devices) {
  Deno.test(`${name}: choices beyond the context keep its last tokens`, async () => {
    const { max_length, rows } = GOLDEN.choices;
    const { engine, encoder } = open(device, max_length);
    const sets: ScoreSet[] = rows.map(
      ({ context, continuations }: { context: string; continuations: string[] }) =>
        encoder.pairs(
          continuations.map((continuation) => ({ kind: "loglikelihood", context, continuation })),
        ),
    );
    const scores = await scoresOf(engine, sets, { batch: 4 });
    // The last token of a sequence is scored and not read: one more than the context fits.
    assertEquals(Math.max(...sets.flat().map(({ tokens }) => tokens.length)), max_length + 1);
    for (const [i, { loglikelihood, is_greedy }] of rows.entries()) {
      scores[i]!.forEach((score, j) => assertClose(score.loglikelihood, loglikelihood[j]));
      assertEquals(scores[i]!.map(({ isGreedy }) => isGreedy), is_greedy);
      const alone = await scoreBatch(engine, sets[i]!);
      alone.forEach((score, j) => assertClose(score.loglikelihood, loglikelihood[j]));
    }
  });

  Deno.test(`${name}: rolling log-likelihoods equal the harness's, last window filled up`, async () => {
    for (const { max_length, rows } of GOLDEN.rolling) {
      const { engine, encoder } = open(device, max_length);
      for (const { text, loglikelihood, tokens } of rows) {
        const request = { kind: "loglikelihood_rolling", context: "", continuation: text } as const;
        const [scores] = await scoresOf(engine, [encoder.windows(request)], { batch: 4 });
        const total = scores!.reduce((sum, score) => sum + score.loglikelihood, 0);
        assert(Math.abs(total / loglikelihood - 1) < 1e-6, `${tokens} tokens: ${total}`);
        assertEquals(scores!.reduce((sum, one) => sum + one.tokenLogprobs.length, 0), tokens);
      }
    }
  });

  Deno.test(`${name}: greedy answers to prompts beyond the context`, async () => {
    const { max_length, max_tokens, until, rows } = GOLDEN.generation;
    const { engine, encoder } = open(device, max_length);
    const options = { maxTokens: max_tokens, eosTokenIds: config.eosTokenIds };
    const requests = rows.map(({ context }: { context: string }) => {
      const asked = { kind: "generate_until", context, stop: until } as const;
      return request(encoder.prompt({ ...asked, maxTokens: max_tokens }), options);
    });
    const answers = await tokensOf(engine, requests, 2);
    assertEquals(
      answers.map((tokens) => cutAtStops(tokenizer.decode(tokens, { skipSpecial: true }), until)),
      rows.map(({ text }: { text: string }) => text),
    );
    assertEquals(encoder.truncated, 2);
  });
}
