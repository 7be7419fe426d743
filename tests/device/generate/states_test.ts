/**
 * Sequences of a model with delta nets, whatever they share a batch, a cache or a prompt with: each gives what
 * it gives alone.
 */
import { assert, assertEquals } from "@std/assert";
import { beamSearch } from "../../../core/generate/beam_search.ts";
import type { Engine } from "../../../core/generate/engine.ts";
import type { TokenConstraint } from "../../../core/generate/logit_rules.ts";
import type { GenerationRequest } from "../../../core/generate/request.ts";
import { Scheduler } from "../../../core/generate/scheduler.ts";
import { scoreBatch } from "../../../core/generate/score.ts";
import { scoreSets } from "../../../core/generate/score_sets.ts";
import { CpuDevice } from "../../../core/runtime/onnxruntime/cpu.ts";
import { prompt, request, scheduled, tokensOf } from "../engines.ts";
import { maxDifference, openGolden } from "../goldens.ts";

const MODELS = ["qwen35-p1-tied-f32", "qwen35-p4-untied-f32"] as const;

/** Answers to requests, each alone on an engine of its own. */
async function alone(model: string, requests: readonly GenerationRequest[]): Promise<number[][]> {
  const results: number[][] = [];
  for (const each of requests) {
    results.push(...await tokensOf(await openGolden(model, new CpuDevice()), [each]));
  }
  return results;
}

/** Masks that allow every token and take `ms` milliseconds. */
function allowsAllAfter({ config }: Engine, ms: number): TokenConstraint {
  const mask = new Int32Array(Math.ceil(config.vocabSize / 32)).fill(-1);
  return { first: mask, after: () => new Promise((resolve) => setTimeout(resolve, ms, mask)) };
}

for (const model of MODELS) {
  Deno.test(`${model}: prompts that part keep what they share from the second one on`, async () => {
    const shared = prompt(1, 40);
    const prompts = [2, 3, 4, 5].map((index) => [...shared, ...prompt(index, 9)]);
    const requests = [...prompts, prompt(6, 30)].map((tokens) => request(tokens));
    const engine = await openGolden(model, new CpuDevice());
    const { tokens, cached } = await scheduled(engine, requests, { batch: 3 });
    assertEquals(tokens, await alone(model, requests));
    assertEquals(cached, [0, 0, 40, 40, 0]);
  });

  Deno.test(`${model}: the next turn of a chat continues behind the answer`, async () => {
    const engine = await openGolden(model, new CpuDevice());
    const first = request(prompt(1, 30));
    const options = { batch: 2, prefixCacheBytes: 1e8, keepsAnswers: true };
    using scheduler = new Scheduler(engine, options);
    const run = (each: GenerationRequest) => scheduled(scheduler, [each]);
    const { tokens: [answer] } = await run(first);
    const next = request([...first.tokens, ...answer!, ...prompt(2, 12)]);
    const turn = await run(next);
    assertEquals(turn.cached, [30 + answer!.length - 1]);
    assertEquals(turn.tokens, await alone(model, [next]));
    // A prompt that ends within what is known finds no state there.
    const within = request(first.tokens.slice(0, 25));
    assertEquals((await run(within)).tokens, await alone(model, [within]));
  });

  Deno.test(`${model}: a prompt of several chunks gives what one pass gives`, async () => {
    const engine = await openGolden(model, new CpuDevice());
    const tokens = prompt(1, 300);
    const whole = await scoreBatch(await openGolden(model, new CpuDevice()), [{ tokens, from: 1 }]);
    const [pieces] = await scoreBatch(engine, [{ tokens, from: 250 }, {
      tokens: tokens.slice(0, 70),
      from: 1,
    }]);
    const error = maxDifference(pieces!.tokenLogprobs, whole[0]!.tokenLogprobs.slice(249));
    assert(error < 1e-4, `${error}`);
  });

  Deno.test(`${model}: choices behind a shared question score as they do alone`, async () => {
    const engine = await openGolden(model, new CpuDevice());
    const root = prompt(1, 40);
    const sets = [2, 3, 4].map((index) => {
      const question = [...root, ...prompt(index, 6 + index)];
      return [5, 6, 7].map((choice) => ({
        tokens: [...question, ...prompt(choice, 1 + choice % 3)],
        from: question.length,
      }));
    });
    for await (const { index, scores } of scoreSets(engine, sets, { batch: 6 })) {
      for (const [i, { loglikelihood }] of scores.entries()) {
        const [own] = await scoreBatch(engine, [sets[index]![i]!]);
        const error = Math.abs(loglikelihood - own!.loglikelihood);
        assert(error < 1e-5 * Math.max(1, Math.abs(own!.loglikelihood)), `${index}: ${error}`);
      }
    }
  });

  Deno.test(`${model}: beams continue the states of the beams they come from`, async () => {
    const engine = await openGolden(model, new CpuDevice());
    const tokens = prompt(3, 20);
    const options = { beams: 3, maxTokens: 12, lengthPenalty: 1, eosTokenIds: [] };
    const results = await beamSearch(engine, tokens, options);
    for (const { tokens: found, score } of results) {
      const all = [...tokens, ...found];
      const [own] = await scoreBatch(engine, [{ tokens: all, from: tokens.length }]);
      const error = Math.abs(own!.loglikelihood / found.length - score);
      assert(error < 1e-5 * Math.abs(score), `${error}`);
    }
    const [one] = await beamSearch(engine, tokens, { ...options, beams: 1 });
    assertEquals([one!.tokens], await tokensOf(engine, [request(tokens, { maxTokens: 12 })]));
  });

  Deno.test(`${model}: a mask that comes late changes nothing`, async () => {
    const engine = await openGolden(model, new CpuDevice());
    const tokens = prompt(4, 12);
    const others = [request(prompt(5, 9), { maxTokens: 20 })];
    const masked = (ms: number) => request(tokens, { constraint: allowsAllAfter(engine, ms) });
    const { tokens: [late] } = await scheduled(engine, [masked(60), ...others], { batch: 3 });
    const { tokens: [early] } = await scheduled(engine, [masked(0)]);
    assertEquals(late, early);
  });
}
