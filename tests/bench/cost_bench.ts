/** The cost model: ten thousand configurations per call; the budget is a second for each. */
import type { CostQuestion } from "../../core/analysis/cost.ts";
import { exactCost } from "../../core/analysis/cost_exact.ts";
import { findSize } from "../../core/analysis/cost_family.ts";
import { paperCost } from "../../core/analysis/cost_paper.ts";
import { trainCost } from "../../core/analysis/cost_train.ts";
import { DEFAULT_DEVICE, findDevice, ratesOf } from "../../core/analysis/devices.ts";

const rates = ratesOf(findDevice(DEFAULT_DEVICE)!, { flops: 0.7, memory: 0.9 }, 16);
const base = {
  shape: findSize("1.6B")!.shape,
  rates,
  bytes: { weight: 2, activation: 2, cache: 2 },
};
const questions = Array.from({ length: 10_000 }, (_, i): CostQuestion => ({
  ...base,
  work: {
    streams: 1 << i % 4,
    prefixTokens: 48,
    batch: 1 + i % 7,
    input: 64 + i % 448,
    output: 64 + i % 448,
  },
}));

function all(cost: (question: CostQuestion) => unknown): () => void {
  return () => questions.forEach((question) => void cost(question));
}

Deno.bench({ name: "exact, 10,000", group: "cost", baseline: true, fn: all(exactCost) });
Deno.bench({ name: "paper, 10,000", group: "cost", fn: all(paperCost) });
Deno.bench({
  name: "train, 10,000",
  group: "cost",
  fn: all((question) =>
    trainCost({
      ...question,
      rows: 8,
      microBatch: 8,
      seqLen: 2048,
      params: "all",
      recompute: false,
    })
  ),
});
