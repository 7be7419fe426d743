/** Early stopping of beam search and repetition penalty equal those of Hugging Face transformers. */
import { assert, assertEquals } from "@std/assert";
import { beamSearch } from "../../../core/generate/beam_search.ts";
import { applyLogitRules, SeenTokens } from "../../../core/generate/logit_rules.ts";
import { GREEDY, sample } from "../../../core/base/sampling.ts";
import { devices } from "../devices.ts";
import { logitsOf, request, tokensOf } from "../engines.ts";
import { openGolden, TOLERANCE } from "../goldens.ts";
import { readFixture } from "../../fixtures.ts";

const MODEL = "qwen2-p1-tied-f32";
const GOLDEN = readFixture("golden/decoding.json");

/** Meanings of the names under which outputs are kept. */
const EARLY_STOPPING = { "false": false, "true": true, "never": "never" } as const;

interface Output {
  readonly ids: number[];
  readonly score: number;
}

interface GreedyCase {
  readonly prompt: number[];
  readonly repetition_penalty: number;
  readonly max_new_tokens: number;
}

for (const { name, device } of devices) {
  for (const [at, search] of GOLDEN.beam.entries()) {
    const { beams, length_penalty: lengthPenalty, repetition_penalty: repetitionPenalty } = search;
    const what = `${beams} beams, length penalty ${lengthPenalty}, repetition ${repetitionPenalty}`;
    // Slow devices share the code that decides; two searches show that it is reached.
    if (/emulated|tfjs|reference/.test(name) && at % 4 !== 1) continue;
    Deno.test(`${name}: early stopping of ${what}`, async () => {
      const engine = await openGolden(MODEL, device);
      for (const [label, earlyStopping] of Object.entries(EARLY_STOPPING)) {
        const results = await beamSearch(engine, search.prompt, {
          beams,
          maxTokens: search.max_new_tokens,
          lengthPenalty,
          repetitionPenalty,
          earlyStopping,
          eosTokenIds: search.eos,
        });
        const expected: Output[] = search.outputs[label];
        assertEquals(results.map(({ tokens }) => tokens), expected.map(({ ids }) => ids), label);
        results.forEach(({ score }, i) => {
          const { score: wanted } = expected[i]!;
          const apart = Math.abs(score - wanted) / Math.max(1, Math.abs(wanted));
          assert(apart < TOLERANCE.beamScore, `${label} ${i}: ${score}, expected ${wanted}`);
        });
      }
    });
  }

  Deno.test(`${name}: greedy tokens under a repetition penalty, side by side`, async () => {
    const engine = await openGolden(MODEL, device);
    const requests = (GOLDEN.greedy as GreedyCase[]).map((one) => {
      const sampling = { ...GREEDY, repetitionPenalty: one.repetition_penalty };
      return request(one.prompt, { maxTokens: one.max_new_tokens, sampling });
    });
    const expected = GOLDEN.greedy.map(({ output }: { output: number[] }) => output);
    assertEquals(await tokensOf(engine, requests, 3), expected);
  });
}

Deno.test("sampling draws from the penalized and filtered probabilities of transformers", async () => {
  const engine = await openGolden(MODEL, devices[0]!.device);
  for (const { prompt, probabilities, ...options } of GOLDEN.sampling) {
    const logits = await logitsOf(engine, [prompt], [prompt.length - 1]);
    const { repetition_penalty, temperature, top_k: topK, top_p: topP, min_p: minP } = options;
    const rules = { repetitionPenalty: repetition_penalty };
    const penalized = applyLogitRules(logits, rules, new SeenTokens(prompt));
    // Evenly spaced draws give every token its share, but for one draw at each end.
    const draws = 4000;
    const counts = new Map<number, number>();
    for (let i = 0; i < draws; i++) {
      const random = { uniform: () => (i + 0.5) / draws };
      const token = sample(penalized, { temperature, topK, topP, minP }, random);
      counts.set(token, (counts.get(token) ?? 0) + 1);
    }
    for (const token of counts.keys()) assert(`${token}` in probabilities, `token ${token}`);
    for (const [token, share] of Object.entries(probabilities as Record<string, number>)) {
      const found = (counts.get(Number(token)) ?? 0) / draws;
      assert(Math.abs(found - share) < 2 / draws, `token ${token}: ${found}, expected ${share}`);
    }
  }
});
