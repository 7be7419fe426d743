import { assertEquals } from "@std/assert";
import {
  applyLogitRules,
  applyMask,
  hasLogitRules,
  SeenTokens,
} from "../../../core/generate/logit_rules.ts";

const LOGITS = [2, -1, 0.5, 3, 0];

Deno.test("the repetition penalty comes first, others count the answer alone, biases come last", () => {
  const logitBias = new Map([[1, 10], [4, -100]]);
  const cases = [
    [{ frequencyPenalty: 0.5, presencePenalty: 0.25 }, [0, 1], [3, 3, 2], [2, -1, -0.25, 1.75, 0]],
    [{ repetitionPenalty: 2, presencePenalty: 1, logitBias }, [1], [3], [2, 8, 0.5, 0.5, -100]],
  ] as const;
  for (const [rules, prompt, answer, expected] of cases) {
    assertEquals([...applyLogitRules(LOGITS, rules, new SeenTokens(prompt, answer))], [
      ...expected,
    ]);
  }
});

Deno.test("rules of beam search penalize log-probabilities", () => {
  const zero = Math.log(LOGITS.reduce((sum, logit) => sum + Math.exp(logit), 0));
  const rules = { repetitionPenalty: 2 };
  const [first, ...others] = applyLogitRules(LOGITS, rules, new SeenTokens([0]), zero);
  assertEquals(first! - zero, 2 * (2 - zero));
  assertEquals(others, LOGITS.slice(1));
});

Deno.test("rules at their defaults are off", () => {
  const neutral = { repetitionPenalty: 1, frequencyPenalty: 0, logitBias: new Map() };
  assertEquals(hasLogitRules(neutral), false);
  for (const rules of [{ presencePenalty: -1 }, { logitBias: new Map([[0, 1]]) }]) {
    assertEquals(hasLogitRules(rules), true);
  }
});

Deno.test("a mask leaves the logits of its tokens and takes those behind its end for forbidden", () => {
  const logits = Array.from({ length: 70 }, (_, i) => i);
  const mask = Int32Array.of(1 << 31 | 1, 2);
  const kept = [...applyMask(logits, mask)].flatMap((logit, id) => logit === -Infinity ? [] : [id]);
  assertEquals(kept, [0, 31, 33]);
});
