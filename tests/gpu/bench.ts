/**
 * Decoding, prefill and training of real shapes, each beside what the machine could do at best.
 *
 * The share is that of the ceilings measured in the same process. Weights are
 * random. A decoding step counts everything from one token's number on the host to the next one.
 */
import type { ModelConfig } from "../../core/model/config.ts";
import { Engine } from "../../core/generate/engine.ts";
import { timeDecode } from "../../core/generate/timing.ts";
import type { CudaDevice } from "../../core/runtime/cuda/device.ts";
import { batchOf, OPTIMIZER } from "../device/train/golden_runs.ts";
import { trainableSpecs } from "../../core/train/trainable.ts";
import { Trainer, type TrainerOptions } from "../../core/train/trainer.ts";
import type { TrainingBatch } from "../../core/train/trainer.ts";
import { planTraining } from "../../core/train/training_memory.ts";
import type { Ceilings } from "../../core/runtime/cuda/ceilings.ts";
import { medianOf } from "../../core/base/statistics.ts";
import { decodeBytes, prefillFlops, shapeOf, sharedWeights, trainingFlops } from "./shapes.ts";

/** Plan of what is timed. */
export interface BenchPlan {
  readonly shape: string;
  readonly streams: readonly number[];
  readonly batches: readonly number[];
  /** Tokens in the cache while decoding, and of a prompt. */
  readonly context: number;
  readonly steps: number;
  /** Tokens of a training row; undefined leaves training out. */
  readonly trainTokens: number | undefined;
}

/** One measurement. */
export interface Timing {
  readonly what: "decode" | "prefill" | "train" | "peft";
  readonly shape: string;
  readonly streams: number;
  readonly batch: number;
  readonly ms: number;
  /** Share of the ceiling that binds: reading for decoding, products else. */
  readonly share: number;
}

/** Steps that are not timed. */
const WARM = 4;

/** One thing to time, on a device of its own: what another left behind would not be there to fit. */
export interface BenchTask {
  readonly label: string;
  run(device: CudaDevice): Promise<Timing[]>;
}

/** Everything to be timed, one model after the other. */
export function benchTasks(plan: BenchPlan, ceilings: Ceilings): BenchTask[] {
  const inference = plan.streams.map((streams) => ({
    label: `inference of ${plan.shape} with ${streams} streams`,
    run: (device: CudaDevice) => inferenceTimings(device, plan, streams, ceilings),
  }));
  if (plan.trainTokens === undefined) return inference;
  const training = (["peft", "train"] as const).flatMap((what) =>
    plan.streams.filter((streams) => what === "train" || streams > 1).map((streams) => ({
      label: `${what} of ${plan.shape} with ${streams} streams`,
      run: async (device: CudaDevice) => [await trainTiming(device, plan, streams, what, ceilings)],
    }))
  );
  return [...inference, ...training];
}

async function inferenceTimings(
  device: CudaDevice,
  plan: BenchPlan,
  streams: number,
  ceilings: Ceilings,
): Promise<Timing[]> {
  const config = shapeOf(plan.shape, streams);
  const engine = new Engine(device, config, sharedWeights(config));
  const row = { shape: plan.shape, streams };
  const timings: Timing[] = [];
  for (const batch of plan.batches) {
    const cache = engine.createCache(batch, plan.context + plan.steps + WARM);
    const times = await timeDecode(engine, cache, plan.context, plan.steps + WARM);
    const ms = medianOf(times.slice(WARM));
    const floor = decodeBytes(config, batch, plan.context) / ceilings.bandwidth * 1000;
    timings.push({ ...row, what: "decode", batch, ms, share: floor / ms });
  }
  const ms = await prefillMs(engine, plan);
  const floor = prefillFlops(config, plan.context) / ceilings.flopRate * 1000;
  return [...timings, { ...row, what: "prefill", batch: 1, ms, share: floor / ms }];
}

async function prefillMs(engine: Engine, plan: BenchPlan): Promise<number> {
  const cache = engine.createCache(1, plan.context);
  const ids = Array.from({ length: plan.context }, (_, i) => i % 1000);
  const input = { ids: [ids], start: [0], select: [ids.length - 1] };
  return await medianMs(5, () => engine.forward(cache, input, { head: "greedy" }));
}

/** A trainer of a whole model, or of what ParScale introduces, with random weights and a batch for it. */
export async function openBenchTrainer(
  device: CudaDevice,
  config: ModelConfig,
  tokens: number,
  what: "train" | "peft",
): Promise<{ trainer: Trainer; batch: TrainingBatch }> {
  const weights = sharedWeights(config);
  const options: TrainerOptions = {
    config,
    trained: trainableSpecs(config, {
      params: what === "peft" ? "introduced" : "all",
      aggregation: "dynamic",
    }),
    initial: (name) => {
      const { data } = weights.get(name) as { data: Uint16Array };
      const values = new Float32Array(data.length); // `from` with a function boxes them all first
      data.forEach((bits, i) => values[i] = ((bits & 0x7f) - 64) / 4096);
      return values;
    },
    sizes: { batch: 1, tokens },
    optimizer: OPTIMIZER,
    accumulates: false,
    recompute: what === "train" && config.streams > 2, // else the largest shapes do not fit
  };
  const needed = planTraining(device, options).total;
  const { free } = device.work().driver.memoryInfo();
  if (needed > free) {
    throw new Error(`Cannot train: found ${free} bytes free, expected the ${needed} of the plan`);
  }
  const ids = Array.from({ length: tokens }, (_, i) => i * 7919 % config.vocabSize);
  return { trainer: await Trainer.create(device, options), batch: batchOf([ids]) };
}

async function trainTiming(
  device: CudaDevice,
  { shape, trainTokens: tokens }: BenchPlan,
  streams: number,
  what: "train" | "peft",
  ceilings: Ceilings,
): Promise<Timing> {
  const config = shapeOf(shape, streams);
  const { trainer, batch } = await openBenchTrainer(device, config, tokens!, what);
  let step = 0;
  const ms = await medianMs(6, async () => {
    await trainer.accumulate(batch);
    await trainer.update(++step, { backbone: 1e-5, prefix: 1e-4, aggregator: 1e-4 });
  });
  const flops = trainingFlops(config, tokens!, what === "peft");
  const floor = flops / ceilings.flopRate * 1000;
  return { what, shape, streams, batch: 1, ms, share: floor / ms };
}

/** Milliseconds of some work, of which the first two rounds launch and capture. */
async function medianMs(rounds: number, work: () => Promise<unknown>): Promise<number> {
  const times: number[] = [];
  for (let round = 0; round < rounds; round++) {
    const start = performance.now();
    await work();
    times.push(performance.now() - start);
  }
  return medianOf(times.slice(2));
}
