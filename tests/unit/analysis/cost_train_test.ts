/** Protects the training estimate: its parts against sums by hand, and what each choice changes. */
import { assert, assertAlmostEquals, assertEquals } from "@std/assert";
import { countShape } from "../../../core/analysis/cost.ts";
import { findSize } from "../../../core/analysis/cost_family.ts";
import { trainCost, type TrainQuestion } from "../../../core/analysis/cost_train.ts";
import type { ModelConfig } from "../../../core/model/config.ts";
import { ReferenceDevice } from "../../../core/runtime/reference/device.ts";
import { trainableSpecs } from "../../../core/train/trainable.ts";
import { shapeOf } from "../../gpu/shapes.ts";
import { planTraining } from "../../../core/train/training_memory.ts";

const { shape } = findSize("0.5B")!;
const WORK = { streams: 4, prefixTokens: 48, batch: 8, input: 0, output: 0 };

function cost(over: Partial<TrainQuestion> = {}) {
  return trainCost({
    shape,
    work: WORK,
    rates: { flops: 1e14, bytes: 1e12 },
    bytes: { weight: 4, activation: 4, cache: 4 },
    rows: 8,
    microBatch: 8,
    seqLen: 512,
    params: "all",
    recompute: false,
    ...over,
  });
}

Deno.test("weights, gradients and two moments in float32 are 16 bytes per trained parameter", () => {
  const { total, prefix, aggregator } = countShape(shape, 4, 48);
  const all = cost(), introduced = cost({ params: "introduced" });
  assertEquals([all.trainedParams, introduced.trainedParams], [total, prefix + aggregator]);
  assertEquals(all.weightBytes + all.gradientBytes + all.momentBytes, 16 * total);
  const bytes = introduced.weightBytes + introduced.gradientBytes + introduced.momentBytes;
  assertEquals(bytes, 4 * total + 12 * (prefix + aggregator));
  const half = cost({ bytes: { weight: 2, activation: 2, cache: 2 } });
  assertEquals(half.weightBytes, 6 * total);
});

Deno.test("kept activations are what the header lists", () => {
  const [h, f, d, q, v, L] = [896, 4864, 56, 16, 2, 36];
  const rows = 8 * 4 * 512;
  const tail = 8 * 8 * 512 * 151936 + 4 * 8 * 512 * 5 * h;
  const kept = 4 * h + (q + 2 * v) * d + q * d + 3 * f;
  assertEquals(cost().activationBytes, rows * 4 * L * kept + tail);
  const less = 2 * h + (q + 2 * v) * d + q * d + 2 * f;
  const redone = cost({ params: "introduced", recompute: true });
  assertEquals(redone.activationBytes, rows * 4 * (L * h + less) + tail);
});

Deno.test("forward and backward are three passes, two for introduced, one more if redone", () => {
  const full = cost(), introduced = cost({ params: "introduced" });
  const redone = cost({ recompute: true });
  assertAlmostEquals(full.backwardS / full.forwardS, 2);
  assertAlmostEquals(introduced.backwardS / introduced.forwardS, 1);
  assertAlmostEquals(full.flops / introduced.flops, 1.5);
  assert(redone.backwardS > 2.5 * redone.forwardS && redone.backwardS < 3 * redone.forwardS);
  assertAlmostEquals(full.stepS, full.forwardS + full.backwardS + full.optimizerS);
  assertAlmostEquals(full.optimizerS, 28 * full.trainedParams / 1e12);
  // 6 N operations per token and stream, plus attention and head.
  const tokens = 8 * 512, perToken = 6 * countShape(shape, 4, 48).backbone * 4;
  assert(full.flops > tokens * perToken && full.flops < 1.6 * tokens * perToken);
});

Deno.test("micro-batches take less memory and as many operations", () => {
  const whole = cost(), parts = cost({ microBatch: 2 });
  assertEquals(parts.flops, whole.flops);
  assertEquals(parts.activationBytes * 4, whole.activationBytes);
  assert(parts.stepS >= whole.stepS);
});

Deno.test("memory is near the exact plans of our own trainer", () => {
  const config: ModelConfig = {
    ...shapeOf("0.5B", 2),
    vocabSize: 2048,
    hiddenSize: 256,
    intermediateSize: 704,
    numHiddenLayers: 4,
    numAttentionHeads: 4,
    numKeyValueHeads: 2,
    headDim: 64,
    prefixTokens: 16,
    dtype: "f32",
  };
  const device = new ReferenceDevice("f32");
  for (const params of ["all", "introduced"] as const) {
    for (const recompute of [false, true]) {
      const plan = planTraining(device, {
        config,
        trained: trainableSpecs(config, { params, aggregation: "dynamic" }),
        initial: () => [],
        sizes: { batch: 2, tokens: 64 },
        optimizer: { beta1: 0.9, beta2: 0.95, epsilon: 1e-8, weightDecay: 0.1, clip: 1 },
        accumulates: false,
        recompute,
      });
      const estimate = cost({
        shape: config,
        work: { ...WORK, streams: 2, prefixTokens: 16 },
        rows: 2,
        microBatch: 2,
        seqLen: 64,
        params,
        recompute,
      });
      const ratio = plan.total / estimate.memoryBytes;
      assert(ratio > 0.75 && ratio < 1.35, `${params}, recompute ${recompute}: ${ratio}`);
    }
  }
});
