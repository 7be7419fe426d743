/** Memory of a training step, known before anything is allocated. */
import { paddedCount } from "../collective/slices.ts";
import type { MemoryPlan } from "../graph/memory_plan.ts";
import type { Program } from "../graph/program.ts";
import type { Device, Weights } from "../runtime/device.ts";
import { buildUpdate, largestRun } from "./optimizer.ts";
import { groupTensors } from "./trainable.ts";
import { buildPrograms, type TrainerOptions } from "./trainer.ts";

/** Bytes by what they are for. */
export interface TrainingMemory {
  readonly parameters: number;
  readonly gradients: number;
  readonly moments: number;
  readonly activations: number;
  /** The process and its allocator, where the device lies in its memory. */
  readonly runtime: number;
  readonly total: number;
}

/** What training will need on the device of each rank; `world` replaces the number of ranks. */
export function planTraining(
  device: Device,
  options: TrainerOptions,
  world = options.collective?.world ?? 1,
): TrainingMemory {
  const { gradients: program } = buildPrograms(options);
  const { sections }: MemoryPlan = device.plan(program, frozenTypes(device, program, options));
  const shards = options.shardsOptimizer ? world : 1;
  const counts = groupTensors(options.trained).map(({ count }) => count);
  const padded = counts.map((count) => paddedCount(count, shards));
  const bytes = (sizes: readonly number[]) => 4 * sizes.reduce((total, size) => total + size, 0);
  const slices = padded.map((count) => count / shards);
  const update = device.plan(
    buildUpdate(largestRun(device, slices), options.optimizer),
    new Map(),
  );
  const gradients = bytes(padded);
  const activations = Math.max(sections.temporaries, update.sections.temporaries) +
    sections.inputs;
  const parameters = sections.parameters + bytes(padded) - bytes(counts);
  const moments = 2 * bytes(slices);
  const { processBytes, allocatorShare } = device.traits;
  const runtime = Math.ceil(processBytes + allocatorShare * activations);
  const total = parameters + gradients + moments + activations + runtime;
  return { parameters, gradients, moments, activations, runtime, total };
}

/** What will be constant weights where the device freezes them; types only. */
function frozenTypes(
  device: Device,
  program: Program,
  { trained }: Pick<TrainerOptions, "trained">,
): Weights {
  if (!device.traits.freezesWeights) return new Map();
  const learns = new Set(trained.map(({ name }) => name));
  const frozen = [...program.parameters].filter(([name]) => !learns.has(name));
  return new Map(frozen.map(([name, type]) => [name, { ...type, path: "", offset: 0 }]));
}
