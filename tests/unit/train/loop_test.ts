/** The order of things in a training run, with a trainer that computes nothing. */
import { assertAlmostEquals, assertEquals } from "@std/assert";
import type { Batch } from "../../../core/data/batches.ts";
import { type LoopOptions, type StepReport, train } from "../../../core/train/loop.ts";
import type { Trainer } from "../../../core/train/trainer.ts";

const FEED = { next: () => ({ predicted: 8, used: 8 }) as Batch, cursor: {} };
const START = {
  step: 0,
  tokens: 0,
  lossEma: undefined,
  emaTokens: 0,
  firstLoss: undefined,
  cursor: {},
};

/** A trainer that computes nothing, with some parts of its own. */
const trainerWith = (parts: object): Trainer =>
  Object.create({
    streams: 0,
    sums: { loss: 16, predicted: 8, streamWeights: [] },
    collective: { sum: (values: number[]) => Promise.resolve(values) },
    accumulate: () => Promise.resolve(),
    exchangeSums: (values: number[]) => Promise.resolve(values),
    update: () => Promise.resolve({ gradNorm: 1, clipScale: 1 }),
  }, Object.getOwnPropertyDescriptors(parts));

/** Runs four steps that validate every second one, and aborts where it is told; what happened, in order. */
async function log(abortsIn?: string): Promise<string> {
  const events: string[] = [];
  let validations = 0;
  const controller = new AbortController();
  const trainer = trainerWith({
    update(step: number) {
      if (abortsIn === `step ${step}`) controller.abort();
      return Promise.resolve({ gradNorm: 1, clipScale: 1 });
    },
    evaluate() {
      events.push("validate");
      if (abortsIn === `validation ${++validations}`) controller.abort();
      return Promise.resolve({ loss: 16, predicted: 8, streamWeights: [] });
    },
  });
  const options: LoopOptions = {
    schedule: { kind: "constant", steps: 4, warmup: 0, minFactor: 1 },
    rates: { backbone: 1, prefix: 1, aggregator: 1 },
    microBatches: 1,
    evalEvery: 2,
    saveEvery: 3,
    evalFeed: () => {
      const batches = [FEED.next()];
      return { next: () => batches.pop(), cursor: {} };
    },
  };
  await train(trainer, FEED, START, options, {
    signal: controller.signal,
    onStart: () => events.push("start"),
    onStep: ({ step, validation }) =>
      events.push(validation === undefined ? `step ${step}` : `step ${step}: ${validation.loss}`),
    save({ step }) {
      events.push(`save ${step}`);
      return Promise.resolve();
    },
  });
  return events.join();
}

Deno.test("a run validates before its first step and before it reports one, and saves what is left at the end", async () => {
  assertEquals(
    await log(),
    "validate,start,step 1,validate,step 2: 2,step 3,save 3,validate,step 4: 2,save 4",
  );
});

Deno.test("a run that is aborted saves its step and does not validate first", async () => {
  assertEquals(await log("step 2"), "validate,start,step 1,step 2,save 2");
  const last = "validate,start,step 1,validate,step 2: 2,step 3,save 3,step 4,save 4";
  assertEquals(await log("step 4"), last);
});

Deno.test("a validation that is aborted ends without a loss, and its step is saved", async () => {
  assertEquals(await log("validation 1"), "validate");
  assertEquals(await log("validation 2"), "validate,start,step 1,validate,step 2,save 2");
});

Deno.test("a report has means per predicted token, the smoothed loss, and how far a validation is", async () => {
  const losses = [16, 32];
  const validated = [
    { loss: 3, predicted: 2, streamWeights: [1, 1] },
    { loss: 7, predicted: 3, streamWeights: [0.5, 2.5] },
  ];
  let left: typeof validated = [];
  const trainer = trainerWith({
    streams: 2,
    evaluate: () => Promise.resolve(left.pop()!),
    get sums() {
      return { loss: losses.shift()!, predicted: 8, streamWeights: [2, 6] };
    },
  });
  const reports: StepReport[] = [], before: number[] = [], read: number[] = [];
  const options: LoopOptions = {
    schedule: { kind: "constant", steps: 2, warmup: 2, minFactor: 1 },
    rates: { backbone: 1, prefix: 2, aggregator: 4 },
    microBatches: 3,
    evalEvery: 9,
    saveEvery: 9,
    evalFeed: () => {
      left = [...validated];
      return { next: () => left.length > 0 ? FEED.next() : undefined, cursor: {} };
    },
  };
  const state = await train(trainer, FEED, { ...START, tokens: 100 }, options, {
    signal: new AbortController().signal,
    onStart: ({ loss }) => before.push(loss),
    onValidate: (tokens) => read.push(tokens),
    onStep: (report) => reports.push(report),
    save: () => Promise.resolve(),
  });
  assertEquals([before, read], [[2], [0, 8, 16, 0, 8, 16]]);
  const [first, second] = reports as [StepReport, StepReport];
  assertEquals([first.loss, second.loss], [2, 4]);
  assertAlmostEquals(second.lossEma, (0.95 * 2 + 4) / 1.95, 1e-12);
  assertEquals(first.streamWeights, [0.25, 0.75]);
  assertEquals([first.tokens, second.tokens, state.tokens], [124, 148, 148]);
  assertEquals([first.validation, second.validation], [undefined, {
    loss: 2,
    streamWeights: [0.3, 0.7],
  }]);
  assertEquals(first.rates, { backbone: 0.5, prefix: 1, aggregator: 2 });
});
