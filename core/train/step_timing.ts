/** A training step on made-up tokens, to be timed: forward, backward, clipping and AdamW. */
import type { Checkpoint } from "../checkpoint/open.ts";
import { readTensor } from "../checkpoint/read.ts";
import { introducedValues } from "../model/init.ts";
import { parameterSpecs } from "../model/parameters.ts";
import type { Device } from "../runtime/device.ts";
import { type TrainableOptions, trainableSpecs } from "./trainable.ts";
import { Trainer, type TrainerOptions, type TrainingBatch } from "./trainer.ts";

const OPTIMIZER = { beta1: 0.9, beta2: 0.95, epsilon: 1e-8, weightDecay: 0.1, clip: 1 };

/** Options of a trainer; parameters that the checkpoint lacks in this shape are random. */
export function stepOptions(
  { tensors }: Checkpoint,
  { config, sizes }: Pick<TrainerOptions, "config" | "sizes">,
  params: TrainableOptions["params"],
  seed: number,
): TrainerOptions {
  const specs = new Map(parameterSpecs(config).map((spec) => [spec.name, spec]));
  return {
    config,
    trained: trainableSpecs(config, { params, aggregation: config.aggregator }),
    initial(name) {
      const spec = specs.get(name)!, stored = tensors.get(name);
      if (stored && stored.shape.join() === spec.shape.join()) return readTensor(stored);
      return introducedValues(spec, seed);
    },
    sizes,
    optimizer: OPTIMIZER,
    accumulates: false,
    recompute: false,
  };
}

/** Rows of tokens, of which as many are predicted as the sizes allow. */
function madeUpRows({ config, sizes }: TrainerOptions): TrainingBatch {
  const { batch, tokens, counted = batch * tokens } = sizes;
  const slots = Array.from({ length: batch * tokens }, (_, i) => i);
  const ids = slots.map((i) => 31 * i % config.vocabSize);
  const positions = slots.map((i) => i % tokens);
  const weights = slots.map((i) => Number(i < counted));
  return { ids, positions, targets: ids, weights, predicted: counted };
}

/** Allocates and compiles everything; the function it returns gives the milliseconds of a step. */
export async function stepTimer(
  device: Device,
  options: TrainerOptions,
): Promise<() => Promise<number>> {
  const trainer = await Trainer.create(device, options), batch = madeUpRows(options);
  return async () => {
    const began = performance.now();
    await trainer.accumulate(batch);
    // With rates of zero an update takes as long, and the weights stay.
    await trainer.update(1, { backbone: 0, prefix: 0, aggregator: 0 });
    return performance.now() - began;
  };
}
