/**
 * Requests that exceed the model's context score and continue as in lm-evaluation-harness: choices,
 * whole texts in windows, and greedy answers.
 */
import { assert, assertEquals } from "@std/assert";
import { openCheckpoint } from "../../../core/checkpoint/open.ts";
import { RequestEncoder } from "../../../core/eval/harness/encode.ts";
import type { Document } from "../../../core/eval/harness/documents.ts";
import type { Sample } from "../../../core/eval/harness/samples.ts";
import { cutAtStops, type DecodingOptions, predict } from "../../../core/eval/harness/predict.ts";
import { Engine } from "../../../core/generate/engine.ts";
import { scoreBatch } from "../../../core/generate/score.ts";
import type { ScoreSet } from "../../../core/generate/score_sets.ts";
import type { Device } from "../../../core/runtime/device.ts";
import type { Session } from "../../../core/session/session.ts";
import { openTokenizer } from "../../../core/tokenizer/tokenizer.ts";
import { devices } from "../devices.ts";
import { request, scoresOf, tokensOf } from "../engines.ts";
import { FIXTURES, readFixture } from "../../fixtures.ts";

const MODEL = `${FIXTURES}models/tiny-qwen2`;
const GOLDEN = readFixture("golden/eval/context_reached.json");

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

  Deno.test(`${name}: rolling log-likelihoods equal the harness's, last window filled up, a batch at a time`, async () => {
    for (const { max_length, rows } of GOLDEN.rolling) {
      const { engine, encoder } = open(device, max_length);
      const sizes: number[] = [], createCache = engine.createCache.bind(engine);
      engine.createCache = (batch, slots) => createCache(sizes[sizes.length] = batch, slots);
      const plan = rows.map(({ text }: { text: string }, id: number) => {
        const asked = { kind: "loglikelihood_rolling", context: "", continuation: text } as const;
        const document = { task: { name: "text", kind: "perplexity" }, id } as unknown as Document;
        return { document, requests: [asked], hash: String(id) };
      });
      // Told within a long text, so that a caller may stop there.
      const told: (readonly [name: string, done: number, total: number])[] = [];
      const options = {
        batch: 2,
        onRead: (...reading: typeof told[number]) => told.push(reading),
      } as Partial<DecodingOptions> as DecodingOptions;
      const session = { engine, tokenizer } as Session;
      for await (const event of predict({ session, encoder }, plan, options, () => false)) {
        const { doc_id, tokens: count, loglikelihood: [total] = [] } = event as Sample;
        const row = rows[doc_id as number];
        assert(Math.abs(total! / row.loglikelihood - 1) < 1e-6, `${count} tokens`);
        assertEquals(count, row.tokens);
      }
      assert(told.length > rows.length && told.every(([name]) => name === "text"));
      assert(Math.max(...sizes) <= options.batch, `${sizes} windows at once`);
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
