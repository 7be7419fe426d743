/**
 * The device side of training: parameters, gradients and moments, and the programs that work on them.
 *
 * One step is: `accumulate` for each micro-batch (forward and backward pass; gradients are sums over tokens,
 * so those of micro-batches and of processes add up), `exchangeSums`, then `update`. Nothing here knows
 * files, schedules or data.
 */
import { NumericalError } from "../base/errors.ts";
import { ALONE, type Collective } from "../collective/collective.ts";
import { accumulateOutputs } from "../graph/accumulate.ts";
import { differentiate, gradientName } from "../graph/differentiate.ts";
import { countFlops } from "../graph/flops.ts";
import type { Program } from "../graph/program.ts";
import type { ModelConfig } from "../model/config.ts";
import { buildLoss, type LossSizes, type Substitute } from "../model/loss.ts";
import type { ParameterSpec } from "../model/parameters.ts";
import type {
  Bindings,
  Device,
  DeviceTensor,
  Executable,
  HostArray,
  HostTensor,
} from "../runtime/device.ts";
import { type GroupTensors, Optimizer, type OptimizerOptions, type Update } from "./optimizer.ts";
import { type Group, groupTensors, type RateKind } from "./trainable.ts";

/** Rows of tokens as `core/data` makes them; see `buildLoss` for the meaning of each array. */
export interface TrainingBatch {
  readonly ids: ArrayLike<number>;
  readonly positions: ArrayLike<number>;
  readonly targets: ArrayLike<number>;
  /** 1 where the target counts. */
  readonly weights: ArrayLike<number>;
  /** Targets that count. */
  readonly predicted: number;
}

/** Parts of a trainer. */
export interface TrainerOptions {
  readonly config: ModelConfig;
  /** Parameters that learn; everything else the loss reads is frozen. */
  readonly trained: readonly Pick<ParameterSpec, "name" | "shape">[];
  /** First values of a parameter, in f32. */
  readonly initial: (name: string) => ArrayLike<number> | Promise<ArrayLike<number>>;
  /** Size of a micro-batch. */
  readonly sizes: LossSizes;
  readonly optimizer: OptimizerOptions;
  /** True if a step has several micro-batches, each of which adds to the gradients. */
  readonly accumulates: boolean;
  /** True to recompute the activations of a layer in the backward pass. */
  readonly recompute: boolean;
  /** Computes some parameters from others, such as reparameterised prefixes. */
  readonly substitute?: Substitute | undefined;
  /** The processes that train together; this one alone if left out. */
  readonly collective?: Collective;
}

/** Sums over the micro-batches since the last update: of this process, then of all processes. */
export interface StepSums {
  /** Negative log-likelihood of the predicted tokens, in nats. */
  loss: number;
  /** Predicted tokens. */
  predicted: number;
  /** Aggregation weights of each stream over these tokens; empty with one stream. */
  streamWeights: number[];
}

/** The programs of a training step; building them needs no device. */
export function buildPrograms(options: TrainerOptions): { loss: Program; gradients: Program } {
  const loss = buildLoss(options.config, options.sizes, options.substitute);
  const by = options.trained.map(({ name }) => name);
  const gradients = differentiate(loss, { of: "loss", by, recompute: options.recompute });
  if (!options.accumulates) return { loss, gradients };
  return { loss, gradients: accumulateOutputs(gradients, by.map(gradientName)) };
}

/** Floating-point operations of loss and gradients of one micro-batch. */
export function trainingFlops(options: TrainerOptions): number {
  return countFlops(buildPrograms(options).gradients);
}

interface Parts {
  readonly device: Device;
  readonly collective: Collective;
  readonly groups: readonly GroupTensors[];
  /** Frozen parameters where the device keeps them in a type of their own; else among the tensors. */
  readonly frozen: ReadonlyMap<string, HostTensor>;
  readonly tensors: ReadonlyMap<string, DeviceTensor>;
  /** The tensors and the gradients of each. */
  readonly bindings: Bindings;
  readonly optimizer: Optimizer;
  readonly gradients: Executable;
  readonly loss: Executable;
  /** True if the gradient program adds to the gradients instead of overwriting them. */
  readonly accumulates: boolean;
}

/** Parameters, gradients and moments on a device, and the programs that work on them. */
export class Trainer {
  readonly sums: StepSums = { loss: 0, predicted: 0, streamWeights: [] };

  readonly device: Device;
  readonly collective: Collective;
  readonly groups: readonly GroupTensors[];
  readonly #parts: Parts;

  private constructor(parts: Parts) {
    this.device = parts.device;
    this.collective = parts.collective;
    this.groups = parts.groups;
    this.#parts = parts;
  }

  /** Allocates everything, reads the first values, telling how many bytes so far, and compiles the programs. */
  static async create(
    device: Device,
    options: TrainerOptions,
    onRead: (bytes: number) => void = () => {},
  ): Promise<Trainer> {
    const { collective = ALONE, accumulates } = options;
    const groups = groupTensors(options.trained, { apart: !device.traits.partialViews }).map(
      (group): GroupTensors => {
        const slice = collective.slice(group.count);
        const array = (count: number) => device.allocate({ dtype: "f32", shape: [count] });
        const [values, gradients] = [array(slice.total), array(slice.total)];
        return { group, values, gradients, slice, m: array(slice.count), v: array(slice.count) };
      },
    );
    const { loss, gradients } = buildPrograms(options);
    const tensors = new Map<string, DeviceTensor>();
    for (const { group, values } of groups) viewsInto(tensors, device, group, values, (n) => n);
    const frozen = new Map<string, HostTensor>();
    let read = 0;
    for (const [name, type] of gradients.parameters) {
      const values = await options.initial(name);
      onRead(read += 4 * values.length);
      if (!tensors.has(name) && device.traits.freezesWeights) {
        frozen.set(name, { ...type, data: Float32Array.from(values) });
        continue;
      }
      if (!tensors.has(name)) tensors.set(name, device.allocate(type));
      device.write(tensors.get(name)!, values);
    }
    for (const [name, type] of [...gradients.inputs, ...loss.outputs]) {
      tensors.set(name, device.allocate(type));
    }
    const bindings = new Map(tensors);
    for (const { group, gradients } of groups) {
      viewsInto(bindings, device, group, gradients, gradientName);
    }
    return new Trainer({
      device,
      collective,
      groups,
      frozen,
      tensors,
      bindings,
      optimizer: await Optimizer.create(device, groups, options.optimizer, collective),
      gradients: await device.compile(gradients, frozen, { fixedSizes: true }),
      loss: await device.compile(loss, frozen, { fixedSizes: true }),
      accumulates,
    });
  }

  /** Forward and backward pass over one micro-batch; its sums and gradients are added up. */
  async accumulate(batch: TrainingBatch): Promise<void> {
    if (this.#parts.accumulates && this.sums.predicted === 0) this.#clearGradients();
    this.#write(batch);
    await this.#parts.gradients.run(this.#parts.bindings);
    this.#read(batch, this.sums);
  }

  /**
   * Makes `sums` those of all processes; numbers of the caller travel along and come back added up. A
   * process without a counted micro-batch contributes zeros.
   */
  async exchangeSums(more: readonly number[] = []): Promise<number[]> {
    const { sums } = this;
    if (sums.predicted === 0) this.#clearGradients();
    const { streams } = this;
    const weights = Array.from({ length: streams }, (_, p) => sums.streamWeights[p] ?? 0);
    const all = await this.collective.sum([sums.loss, sums.predicted, ...weights, ...more]);
    sums.loss = all[0]!;
    sums.predicted = all[1]!;
    sums.streamWeights = all.slice(2, 2 + streams);
    return all.slice(2 + streams);
  }

  /**
   * Updates the parameters and starts a new step.
   * @throws {NumericalError} when loss or gradient are not finite; the parameters are as before
   */
  async update(step: number, rates: Readonly<Record<RateKind, number>>): Promise<Update> {
    const { loss, predicted } = this.sums;
    if (!Number.isFinite(loss)) throw notFinite("loss", loss, step);
    for (const { gradients } of this.groups) await this.collective.sumGradients(gradients);
    const update = await this.#parts.optimizer.step(step, predicted, rates);
    if (!Number.isFinite(update.gradNorm)) throw notFinite("gradient norm", update.gradNorm, step);
    Object.assign(this.sums, { loss: 0, predicted: 0, streamWeights: [] });
    for (const { values } of this.groups) await this.collective.gather(values);
    return update;
  }

  /** The sums of one batch, without gradients. */
  async evaluate(batch: TrainingBatch): Promise<StepSums> {
    const sums: StepSums = { loss: 0, predicted: 0, streamWeights: [] };
    this.#write(batch);
    await this.#parts.loss.run(this.#parts.tensors);
    this.#read(batch, sums);
    return sums;
  }

  /** Number of streams whose weights are summed; 0 where there is one. */
  get streams(): number {
    return this.#parts.tensors.get("weight_sums")?.shape[0] ?? 0;
  }

  /** Returns whether the loss reads a parameter of this name. */
  has(name: string): boolean {
    return this.#parts.frozen.has(name) || this.#parts.tensors.has(name);
  }

  /** Values of a parameter, trained or frozen; a view that the next update changes. */
  values(name: string): HostArray {
    return this.#parts.frozen.get(name)?.data ?? this.device.read(this.#parts.tensors.get(name)!);
  }

  /** Zeroes the gradients, which until then are those of the step before. */
  #clearGradients(): void {
    for (const { gradients } of this.groups) this.device.clear(gradients);
  }

  #write({ ids, positions, targets, weights }: TrainingBatch): void {
    const { tensors } = this.#parts, counted = tensors.get("slots")?.shape[0];
    const slots = counted === undefined ? undefined : chooseSlots(weights, counted);
    const pick = (data: ArrayLike<number>) => slots?.map((slot) => data[slot]!) ?? data;
    const inputs = { ids, positions, targets: pick(targets), predicted: pick(weights) };
    for (const [name, data] of Object.entries({ ...inputs, ...(slots && { slots }) })) {
      this.device.write(tensors.get(name)!, data);
    }
  }

  #read(batch: TrainingBatch, sums: StepSums): void {
    sums.loss += this.device.read(this.#parts.tensors.get("loss")!)[0]!;
    sums.predicted += batch.predicted;
    const streams = this.#parts.tensors.get("weight_sums");
    if (!streams) return;
    const weights = Array.from(this.device.read(streams));
    sums.streamWeights = weights.map((weight, p) => weight + (sums.streamWeights[p] ?? 0));
  }
}

/** The slots that count, filled up to `size` with others. */
function chooseSlots(weights: ArrayLike<number>, size: number): number[] {
  const slots = Array.from(weights, (_, slot) => slot);
  const counted = slots.filter((slot) => weights[slot] !== 0);
  if (counted.length > size) throw new TypeError(`${counted.length} slots count, of ${size}`);
  return [...counted, ...slots.filter((slot) => weights[slot] === 0)].slice(0, size);
}

/** Enters a view of `array` for every tensor of a group. */
function viewsInto(
  tensors: Map<string, DeviceTensor>,
  device: Device,
  group: Group,
  array: DeviceTensor,
  nameOf: (name: string) => string,
): void {
  for (const { name, shape, start } of group.tensors) {
    tensors.set(nameOf(name), device.view(array, start, { dtype: "f32", shape }));
  }
}

function notFinite(what: string, value: number, step: number): NumericalError {
  return new NumericalError(`training diverged at step ${step}: ${what} is ${value}`, {
    hints: ["lower `--lr` or `--clip`, or raise `--warmup`"],
  });
}
