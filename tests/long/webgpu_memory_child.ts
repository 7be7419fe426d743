/**
 * Trains 15 million parameters for three steps on webgpu and prints the bytes that `planTraining` had said and
 * those that lavapipe took. Its memory of the GPU is a file of its own in the process, so that compiled shaders
 * and host arrays do not count.
 */
import { elementCount } from "../../core/graph/types.ts";
import { parameterSpecs } from "../../core/model/parameters.ts";
import { openDevice } from "../../core/runtime/mod.ts";
import { trainableSpecs } from "../../core/train/trainable.ts";
import { Trainer, type TrainerOptions } from "../../core/train/trainer.ts";
import { planTraining } from "../../core/train/training_memory.ts";
import { trainingModel } from "../bench/random_model.ts";
import { batchOf, lossesOf, OPTIMIZER, randomRows } from "../device/train/golden_runs.ts";

const CONFIG = trainingModel(2);

const counts = new Map(
  parameterSpecs(CONFIG).map(({ name, shape }) => [name, elementCount(shape)]),
);
const options: TrainerOptions = {
  config: CONFIG,
  trained: trainableSpecs(CONFIG, {
    params: Deno.args[0] as "all" | "introduced",
    aggregation: "dynamic",
  }),
  initial: (name) => new Float32Array(counts.get(name)!).fill(0.01),
  sizes: { batch: 2, tokens: 64 },
  optimizer: OPTIMIZER,
  accumulates: false,
  recompute: false,
};

/** Bytes of memory that lies in files without a name. */
function sharedBytes(): number {
  const status = Deno.readTextFileSync("/proc/self/status");
  return 1024 * Number(/RssShmem:\s+(\d+)/.exec(status)![1]);
}

const device = await openDevice("webgpu");
const before = sharedBytes();
const planned = planTraining(device, options).total;
const trainer = await Trainer.create(device, options);
await lossesOf(trainer, [batchOf(randomRows(1, 2, 64))], 3);
const isLavapipe = Deno.readTextFileSync("/proc/self/maps").includes("libvulkan_lvp");
console.log(JSON.stringify({ planned, used: sharedBytes() - before, isLavapipe }));
Deno.exit(0);
