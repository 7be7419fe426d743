/**
 * AdamW with clipping by the global norm, over tensors that lie end to end.
 *
 * Every group of tensors is a few long arrays (values, gradients, two moments), worked off in pieces
 * of one size: a piece fits into the processor's cache, and one program serves all tensors whatever
 * their shapes. It is a program of its own, after the backward pass: updating weights inside that
 * pass could overwrite what a later node still reads.
 */
import { Builder } from "../graph/builder.ts";
import { add, assign, mul, reshape, sum } from "../graph/primitives.ts";
import type { Program, TensorType } from "../graph/types.ts";
import { adamw, type AdamWConstants } from "../ops/adamw.ts";
import type { Bindings, Device, DeviceTensor, Executable } from "../runtime/device.ts";
import type { Group, RateKind } from "./trainable.ts";

/** Elements worked on at a time. See `tests/bench/train.ts`. */
const PIECE = 1 << 18;

/** The arrays of one group, each [count] f32. */
export interface GroupTensors {
  readonly group: Group;
  readonly values: DeviceTensor;
  readonly gradients: DeviceTensor;
  readonly m: DeviceTensor;
  readonly v: DeviceTensor;
}

/** Choices of the method. */
export interface OptimizerOptions extends AdamWConstants {
  readonly weightDecay: number;
  /** Largest global norm of the mean gradient; Infinity never clips. */
  readonly clip: number;
}

/** What one update did. */
export interface Update {
  /** Global L2 norm of the mean gradient, before clipping. */
  readonly gradNorm: number;
  /** Factor by which it was clipped; 1 where it was not. */
  readonly clipScale: number;
}

const scalar: TensorType = { dtype: "f32", shape: [] };
const vector = (count: number): TensorType => ({ dtype: "f32", shape: [count] });

/** State `values`, `m`, `v` [n]; inputs `gradients` [n] and the four scalars of `adamw`. */
export function buildUpdate(count: number, constants: AdamWConstants): Program {
  const g = new Builder("adamw");
  const [parameter, m, v] = ["values", "m", "v"].map((name) => g.state(name, vector(count)));
  const [scale, decay, stepSize, correction] = ["scale", "decay", "step_size", "correction"]
    .map((name) => g.input(name, scalar));
  const next = adamw(g, {
    parameter: parameter!,
    m: m!,
    v: v!,
    gradient: g.input("gradients", vector(count)),
    scale: scale!,
    decay: decay!,
    stepSize: stepSize!,
    correction: correction!,
  }, constants);
  g.update("values", assign(g, parameter!, next.parameter));
  g.update("m", assign(g, m!, next.m));
  g.update("v", assign(g, v!, next.v));
  return g.build();
}

/** Input `gradients` [n] → output `total` [], the sum of their squares. */
export function buildSquaredNorm(count: number): Program {
  const g = new Builder("squared_norm");
  const x = g.input("gradients", vector(count));
  g.output("total", reshape(g, sum(g, mul(g, x, x), 0), []));
  return g.build();
}

/** State `gradients` [n]; input `more` [n], which is added to it. */
export function buildAccumulate(count: number): Program {
  const g = new Builder("accumulate");
  const sofar = g.state("gradients", vector(count));
  g.update("gradients", assign(g, sofar, add(g, sofar, g.input("more", vector(count)))));
  return g.build();
}

/** One program over one piece of one group. */
interface Job {
  readonly group: Group;
  readonly executable: Executable;
  readonly bindings: Bindings;
}

/** Updates groups of tensors in place. */
export class Optimizer {
  readonly #device: Device;
  readonly #options: OptimizerOptions;
  readonly #scalars: ReadonlyMap<string, DeviceTensor>;
  readonly #total: DeviceTensor;
  readonly #updates: readonly Job[];
  readonly #norms: readonly Job[];

  private constructor(
    device: Device,
    options: OptimizerOptions,
    jobs: { updates: Job[]; norms: Job[]; scalars: Map<string, DeviceTensor>; total: DeviceTensor },
  ) {
    this.#device = device;
    this.#options = options;
    this.#updates = jobs.updates;
    this.#norms = jobs.norms;
    this.#scalars = jobs.scalars;
    this.#total = jobs.total;
  }

  /** Compiles the programs and binds every piece. */
  static async create(
    device: Device,
    groups: readonly GroupTensors[],
    options: OptimizerOptions,
  ): Promise<Optimizer> {
    const names = ["scale", "decay", "step_size", "correction"];
    const scalars = new Map(names.map((name) => [name, device.allocate(scalar)]));
    const total = device.allocate(scalar);
    const { beta1, beta2, epsilon } = options;
    const updates = await overPieces(
      device,
      groups,
      (count) => buildUpdate(count, { beta1, beta2, epsilon }),
      ({ values, m, v, gradients }) =>
        new Map([["values", values], ["m", m], ["v", v], ["gradients", gradients]]),
      scalars,
    );
    const norms = await overPieces(
      device,
      groups,
      buildSquaredNorm,
      ({ gradients }) => new Map([["gradients", gradients]]),
      new Map([["total", total]]),
    );
    return new Optimizer(device, options, { updates, norms, scalars, total });
  }

  /**
   * One step, counted from 1, with gradients that are sums over `tokens` tokens. When the norm is not
   * finite nothing is changed.
   */
  async step(
    step: number,
    tokens: number,
    rates: Readonly<Record<RateKind, number>>,
  ): Promise<Update> {
    const { beta1, beta2, clip, weightDecay } = this.#options;
    const gradNorm = Math.sqrt(await this.#squaredNorm()) / tokens;
    const clipScale = Math.min(1, clip / (gradNorm + 1e-6));
    if (!Number.isFinite(gradNorm)) return { gradNorm, clipScale };
    this.#write("scale", clipScale / tokens);
    this.#write("correction", 1 / (1 - beta2 ** step));
    let current: Group | undefined;
    for (const { group, executable, bindings } of this.#updates) {
      if (group !== current) {
        const rate = rates[group.rate];
        this.#write("decay", group.decayed ? 1 - rate * weightDecay : 1);
        this.#write("step_size", rate / (1 - beta1 ** step));
        current = group;
      }
      await executable.run(bindings);
    }
    return { gradNorm, clipScale };
  }

  async #squaredNorm(): Promise<number> {
    let sum = 0;
    for (const { executable, bindings } of this.#norms) {
      await executable.run(bindings);
      sum += this.#device.read(this.#total)[0]!;
    }
    return sum;
  }

  #write(name: string, value: number): void {
    this.#device.write(this.#scalars.get(name)!, [value]);
  }
}

/** Adds gradients of one more micro-batch to those so far. */
export class Accumulator {
  readonly #jobs: readonly Job[];

  private constructor(jobs: readonly Job[]) {
    this.#jobs = jobs;
  }

  /** `more` holds an array beside the gradients of each group. */
  static async create(
    device: Device,
    groups: readonly GroupTensors[],
    more: ReadonlyMap<Group, DeviceTensor>,
  ): Promise<Accumulator> {
    const tensors = ({ group, gradients }: GroupTensors) =>
      new Map([["gradients", gradients], ["more", more.get(group)!]]);
    return new Accumulator(await overPieces(device, groups, buildAccumulate, tensors, new Map()));
  }

  /** Adds all of it. */
  async run(): Promise<void> {
    for (const { executable, bindings } of this.#jobs) await executable.run(bindings);
  }
}

/** A program for every piece of every group, bound to views of the group's arrays. */
async function overPieces(
  device: Device,
  groups: readonly GroupTensors[],
  build: (count: number) => Program,
  tensors: (group: GroupTensors) => ReadonlyMap<string, DeviceTensor>,
  shared: ReadonlyMap<string, DeviceTensor>,
): Promise<Job[]> {
  const jobs: Job[] = [];
  const executables = new Map<number, Executable>();
  const weights = new Map();
  for (const arrays of groups) {
    const { group } = arrays;
    for (let start = 0; start < group.count; start += PIECE) {
      const count = Math.min(PIECE, group.count - start);
      const executable = executables.get(count) ?? await device.compile(build(count), weights);
      executables.set(count, executable);
      const bindings = new Map(shared);
      for (const [name, tensor] of tensors(arrays)) {
        bindings.set(name, device.view(tensor, start, vector(count)));
      }
      jobs.push({ group, executable, bindings });
    }
  }
  return jobs;
}
