/** A training run of a small model, twice: the loss falls, and both are equal bit for bit. */
import { fileURLToPath } from "node:url";
import { assert, assertEquals } from "@std/assert";
import { openCheckpoint } from "../../core/checkpoint/open.ts";
import { RandomStream } from "../../core/base/random.ts";
import type { Device } from "../../core/runtime/device.ts";
import { weightValues } from "../../core/runtime/weights.ts";
import { trainableSpecs } from "../../core/train/trainable.ts";
import { Trainer } from "../../core/train/trainer.ts";

const MODEL = fileURLToPath(new URL("../../fixtures/models/qwen2-p4-untied-f32", import.meta.url));
const [ROWS, TOKENS] = [4, 32];

/** Losses of `steps` steps on rows that repeat every 16 steps. */
async function losses(device: Device, steps: number): Promise<number[]> {
  const { config, tensors } = await openCheckpoint(MODEL);
  const trainer = await Trainer.create(device, {
    config,
    trained: trainableSpecs(config, { params: "all", aggregation: "dynamic" }),
    initial: (name) => weightValues(tensors.get(name)!),
    sizes: { batch: ROWS, tokens: TOKENS },
    optimizer: { beta1: 0.9, beta2: 0.95, epsilon: 1e-8, weightDecay: 0.1, clip: 1 },
    accumulates: false,
    recompute: false,
  });
  const random = new RandomStream(5, "rows");
  const batches = Array.from({ length: 16 }, () => {
    const ids = Array.from({ length: ROWS * TOKENS }, () => random.integer(config.vocabSize));
    const last = (i: number) => i % TOKENS === TOKENS - 1;
    return {
      ids,
      positions: ids.map((_, i) => i % TOKENS),
      targets: ids.map((_, i) => ids[i + 1] ?? 0),
      weights: ids.map((_, i) => last(i) ? 0 : 1),
      predicted: ROWS * (TOKENS - 1),
    };
  });
  const found: number[] = [];
  for (let step = 1; step <= steps; step++) {
    await trainer.accumulate(batches[step % batches.length]!);
    found.push(trainer.sums.loss);
    await trainer.update(step, { backbone: 1e-3, prefix: 1e-3, aggregator: 1e-3 });
  }
  return found;
}

/** Throws unless training is what it should be; `open` gives a new device for each run. */
export async function trainTwice(open: () => Device, steps: number): Promise<void> {
  const runs: number[][] = [];
  for (let run = 0; run < 2; run++) {
    const device = open();
    runs.push(await losses(device, steps));
    device.close();
  }
  const [first, second] = runs as [number[], number[]];
  assertEquals(first, second, "two runs differ");
  assert(first.at(-1)! < first[0]!, `the loss went from ${first[0]} to ${first.at(-1)}`);
}
