/**
 * GSM8K, 5 shots (4 in the paper), and GSM8K-CoT with 8 fixed ones: exact match of the final number.
 *
 *     {"question": "Janet's ducks lay 16 eggs per day. ...", "answer": "Janet sells 16 - 3 - 4 =
 *      <<16-3-4=9>>9 duck eggs a day.\nShe makes 9 * 2 = $<<9*2=18>>18 every day at the farmer's
 *      market.\n#### 18"}
 *
 * Two ways of finding the answer are reported; the paper does not say which it used. The marks of a
 * calculator stay in the shots.
 */
import { exactMatch, flexibleExtract, strictMatch } from "../grading/math/gsm8k.ts";
import { strip } from "../python/text.ts";
import { eachResponse, type GenerationTask } from "../harness/task.ts";
import cotShots from "./gsm8k_cot_shots.json" with { type: "json" };

const SHARED = {
  kind: "generation",
  version: 1,
  source: "openai/grade-school-math (train.jsonl, test.jsonl), or openai/gsm8k, main",
  folder: "gsm8k",
  rows: ["test", "main/test"],
  metrics: ["strict_match", "flexible_extract"],
  maxTokens: 256,
} as const;

const scorer = (name: "gsm8k" | "gsm8k_cot") =>
  eachResponse(({ target }, text) => {
    const matches = (found: string) => Number(exactMatch(found, target as string));
    return {
      strict_match: matches(strictMatch(text, name)),
      flexible_extract: matches(flexibleExtract(text)),
    };
  });

export const gsm8k: GenerationTask = {
  ...SHARED,
  name: "gsm8k",
  title: "GSM8K",
  size: { rows: 1319, pool: 7473 },
  shots: { count: 5, pool: ["train", "main/train"], order: "random" },
  stops: ["Question:", "</s>", "<|im_end|>"],
  read(row) {
    const answer = row.text("answer");
    return { text: `Question: ${row.text("question")}\nAnswer:`, answer, target: answer };
  },
  openScorer: scorer("gsm8k"),
};

const ask = (question: string) => `Q: ${question}\nA:`;

export const gsm8kCot: GenerationTask = {
  ...SHARED,
  name: "gsm8k_cot",
  title: "GSM8K-CoT",
  size: { rows: 1319 },
  shots: {
    count: 8,
    fixed: cotShots.map(({ question, target }) => ({ text: ask(question), answer: target })),
  },
  stops: ["Q:", "</s>", "<|im_end|>"],
  read(row) {
    const answer = row.text("answer");
    const target = strip(answer.slice(answer.lastIndexOf("####") + 4));
    return { text: ask(row.text("question")), answer, target };
  },
  openScorer: scorer("gsm8k_cot"),
};
