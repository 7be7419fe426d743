/** Memory of a training step, known before anything is allocated. */
import { ALONE } from "../collective/collective.ts";
import type { MemoryPlan } from "../graph/memory_plan.ts";
import type { Program } from "../graph/program.ts";
import { elementCount } from "../graph/types.ts";
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

/** Memory that training takes on the device of each process. */
export function planTraining(device: Device, options: TrainerOptions): TrainingMemory {
  const { collective = ALONE } = options;
  const { gradients: program } = buildPrograms(options);
  const frozen = frozenTypes(device, program, options);
  const { sections, placements }: MemoryPlan = device.plan(program, frozen);
  const counts = groupTensors(options.trained, { apart: !device.traits.partialViews })
    .map(({ count }) => count);
  const slices = counts.map((count) => collective.slice(count));
  const bytes = (sizes: readonly number[]) => 4 * sizes.reduce((total, size) => total + size, 0);
  const updated = slices.map(({ count }) => count);
  const update = device.plan(
    buildUpdate(largestRun(device, updated), options.optimizer),
    new Map(),
  );
  const gradients = bytes(slices.map(({ total }) => total));
  const activations = Math.max(sections.temporaries, update.sections.temporaries) +
    sections.inputs;
  const parameters = sections.parameters + gradients - bytes(counts);
  const moments = 2 * bytes(updated);
  const { processBytes, allocatorShare, allocatorHoles } = device.traits;
  const largest = placements.values().filter(({ section }) => section === "temporaries")
    .reduce((most, { bytes }) => Math.max(most, bytes), 0);
  const arrays = [
    ...slices.flatMap(({ total, count }) => [total, total, count, count]),
    ...frozen.values().map(({ shape }) => elementCount(shape)),
  ];
  const rounded = arrays.reduce((sum, count) => sum + roundingOf(device, 4 * count), 0);
  const allocator = allocatorShare * activations + allocatorHoles * largest;
  const runtime = Math.ceil(processBytes + allocator + rounded);
  const total = parameters + gradients + moments + activations + runtime;
  return { parameters, gradients, moments, activations, runtime, total };
}

/** Bytes that the device's allocator adds to an array of `bytes` bytes. */
function roundingOf({ traits: { bufferSizes } }: Device, bytes: number): number {
  if (bytes < (bufferSizes[0] ?? Infinity)) return 0;
  return (bufferSizes.find((size) => size >= bytes) ?? bytes) - bytes;
}

/** Ways to train with the same result, of which one is chosen by its memory. */
export interface TrainingChoices {
  /** Sizes of a micro-batch, the largest first. */
  readonly batches: readonly number[];
  /** True to recompute activations; in the order of preference. */
  readonly recompute: readonly boolean[];
  /** Bytes that training may take. */
  readonly limit: number;
}

/**
 * The first way that fits the limit: with as many rows at a time as do, and activations recomputed only
 * where a single row needs it. Where none fits, the last one.
 */
export function fitTraining(
  device: Device,
  optionsOf: (batch: number, recompute: boolean) => TrainerOptions,
  { batches, recompute, limit }: TrainingChoices,
): { readonly options: TrainerOptions; readonly memory: TrainingMemory } {
  const ways = recompute.flatMap((again) => batches.map((batch) => optionsOf(batch, again)));
  for (const options of ways) {
    const memory = planTraining(device, options);
    if (memory.total <= limit || options === ways.at(-1)) return { options, memory };
  }
  throw new TypeError("cannot choose among no ways to train");
}

/** Returns the types of the constant weights of a device that freezes them. */
function frozenTypes(
  device: Device,
  program: Program,
  { trained }: Pick<TrainerOptions, "trained">,
): Weights {
  if (!device.traits.freezesWeights) return new Map();
  const learns = new Set(trained.map(({ name }) => name));
  const frozen = [...program.parameters].filter(([name]) => !learns.has(name));
  const types = { dtype: "f32", path: "", offset: 0 } as const;
  return new Map(frozen.map(([name, { shape }]) => [name, { ...types, shape }]));
}
