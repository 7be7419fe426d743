/**
 * AdamW with clipping by the global norm, over tensors that lie end to end.
 *
 * Every group of tensors is a few long arrays (values, gradients, two moments), processed in pieces
 * of one size: a piece fits into the processor's cache, and one program serves all tensors whatever
 * their shapes. It is a program of its own, after the backward pass: updating weights inside that
 * pass could overwrite what a later node still reads.
 */
import type { Collective, Slice } from "../collective/collective.ts";
import { Builder } from "../graph/builder.ts";
import type { Value } from "../graph/value.ts";
import type { Program } from "../graph/program.ts";
import type { TensorType } from "../graph/types.ts";
import { adamw, type AdamWConstants } from "../ops/adamw.ts";
import type { Bindings, Device, DeviceTensor, Executable } from "../runtime/device.ts";
import type { Group, RateKind } from "./trainable.ts";

/** Pieces per program, which saves starting one for each. */
const PIECES_PER_RUN = 16;

/** Programs that run at the same time, rather than every small operation on all threads. */
const WORKERS = 2;

/** The arrays of one group, each flat f32. */
export interface GroupTensors {
  readonly group: Group;
  /** [slice.total] All parameters of the group. */
  readonly values: DeviceTensor;
  /** [slice.total] */
  readonly gradients: DeviceTensor;
  /** The part of both that this process updates. */
  readonly slice: Slice;
  /** [slice.count] */
  readonly m: DeviceTensor;
  /** [slice.count] */
  readonly v: DeviceTensor;
}

/** Choices of the method. */
export interface OptimizerOptions extends AdamWConstants {
  readonly weightDecay: number;
  /** Largest global norm of the mean gradient; Infinity never clips. */
  readonly clip: number;
}

/** Report of one update. */
export interface Update {
  /** Global L2 norm of the mean gradient, before clipping. */
  readonly gradNorm: number;
  /** Factor by which it was clipped; 1 where it was not. */
  readonly clipScale: number;
}

/** Scalars that change from step to step; see `adamw`. */
const SCALARS = ["scale", "decay", "stepSize", "correction"] as const;

const scalar: TensorType = { dtype: "f32", shape: [] };
const vector = (count: number): TensorType => ({ dtype: "f32", shape: [count] });

/** Sizes of the pieces that the largest program works on, for arrays of these sizes. */
export function largestRun(device: Device, counts: readonly number[]): number[] {
  return piecesOf(device, Math.max(0, ...counts));
}

/**
 * State `values.<i>`, `m.<i>`, `v.<i>` and inputs `gradients.<i>`, of `counts[i]` elements each, and
 * the four scalars of `adamw` as inputs.
 */
export function buildUpdate(counts: readonly number[], constants: AdamWConstants): Program {
  const g = new Builder("adamw");
  const inputs = SCALARS.map((name) => [name, g.input(name, scalar)]);
  const scalars: Record<typeof SCALARS[number], Value> = Object.fromEntries(inputs);
  counts.forEach((count, i) => {
    const state = (name: string) => g.state(`${name}.${i}`, vector(count));
    const [parameter, m, v] = [state("values"), state("m"), state("v")];
    const gradient = g.input(`gradients.${i}`, vector(count));
    const next = adamw.all({ parameter, m, v, gradient, ...scalars }, { ...constants });
    const update = (name: string, old: Value, at: number) =>
      g.update(`${name}.${i}`, old.assign(next[at]!));
    update("values", parameter, 0);
    update("m", m, 1);
    update("v", v, 2);
  });
  return g.build();
}

/** Inputs `gradients.<i>` → output `total` [], the sum of their squares. */
export function buildSquaredNorm(counts: readonly number[]): Program {
  const g = new Builder("squared_norm");
  const squares = counts.map((count, i) => {
    const x = g.input(`gradients.${i}`, vector(count));
    return x.mul(x).sum(0);
  });
  g.output("total", squares.reduce((total, square) => total.add(square)).reshape([]));
  return g.build();
}

/** One program over a few pieces of one group. */
interface Job {
  readonly group: Group;
  readonly executable: Executable;
  readonly bindings: Bindings;
}

/** Runs jobs, every worker its own one after the other. */
async function runJobs(jobs: readonly Job[]): Promise<void> {
  const workers = Array.from({ length: WORKERS }, async (_, worker) => {
    for (let i = worker; i < jobs.length; i += WORKERS) {
      await jobs[i]!.executable.run(jobs[i]!.bindings);
    }
  });
  await Promise.all(workers);
}

/** Updates groups of tensors in place. */
export class Optimizer {
  private constructor(
    private readonly device: Device,
    private readonly options: OptimizerOptions,
    private readonly collective: Collective,
    private readonly scalars: ReadonlyMap<string, DeviceTensor>,
    private readonly updates: ReadonlyMap<Group, readonly Job[]>,
    private readonly norms: readonly Job[],
  ) {}

  /** Compiles the programs and binds every piece of the slices. */
  static async create(
    device: Device,
    groups: readonly GroupTensors[],
    options: OptimizerOptions,
    collective: Collective,
  ): Promise<Optimizer> {
    const scalars = new Map(SCALARS.map((name) => [name, device.allocate(scalar)]));
    const { beta1, beta2, epsilon } = options;
    const own = (array: DeviceTensor, { start, count }: Slice) =>
      device.view(array, start, vector(count));
    const updates = await overPieces(
      device,
      groups.map(({ group, slice, values, gradients, m, v }) => ({
        group,
        count: slice.count,
        arrays: { values: own(values, slice), m, v, gradients: own(gradients, slice) },
      })),
      (counts) => buildUpdate(counts, { beta1, beta2, epsilon }),
      () => scalars,
    );
    const norms = await overPieces(
      device,
      groups.map(({ group, slice, gradients }) => ({
        group,
        count: slice.count,
        arrays: { gradients: own(gradients, slice) },
      })),
      buildSquaredNorm,
      () => new Map([["total", device.allocate(scalar)]]),
    );
    const byGroup = Map.groupBy(updates, ({ group }) => group);
    return new Optimizer(device, options, collective, scalars, byGroup, norms);
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
    const { beta1, beta2, clip, weightDecay } = this.options;
    const gradNorm = Math.sqrt(await this.#squaredNorm()) / tokens;
    const clipScale = Math.min(1, clip / (gradNorm + 1e-6));
    if (!Number.isFinite(gradNorm)) return { gradNorm, clipScale };
    this.#write("scale", clipScale / tokens);
    this.#write("correction", 1 / (1 - beta2 ** step));
    for (const [group, jobs] of this.updates) {
      const rate = rates[group.rate];
      this.#write("decay", group.decayed ? 1 - rate * weightDecay : 1);
      this.#write("stepSize", rate / (1 - beta1 ** step));
      await runJobs(jobs);
    }
    return { gradNorm, clipScale };
  }

  async #squaredNorm(): Promise<number> {
    await runJobs(this.norms);
    const squares = this.norms.map(({ bindings }) => this.device.read(bindings.get("total")!)[0]!);
    return await this.collective.sumOfSlices(squares.reduce((sum, square) => sum + square, 0));
  }

  #write(name: typeof SCALARS[number], value: number): void {
    this.device.write(this.scalars.get(name)!, [value]);
  }
}

/** Arrays of equal length that a program works on, by the name it has for them. */
interface FlatArrays {
  readonly group: Group;
  readonly count: number;
  readonly arrays: Readonly<Record<string, DeviceTensor>>;
}

/** Programs for all pieces of the arrays, bound to views of them. */
async function overPieces(
  device: Device,
  flat: readonly FlatArrays[],
  build: (counts: readonly number[]) => Program,
  others: () => ReadonlyMap<string, DeviceTensor>,
): Promise<Job[]> {
  const jobs: Job[] = [];
  const executables = new Map<string, Executable>();
  const weights = new Map();
  for (const { group, count, arrays } of flat) {
    for (let start = 0; start < count;) {
      const counts = piecesOf(device, count - start);
      const key = `${jobs.length % WORKERS}: ${counts}`;
      const executable = executables.get(key) ?? await device.compile(build(counts), weights);
      executables.set(key, executable);
      const bindings = new Map(others());
      counts.forEach((size, i) => {
        for (const [name, tensor] of Object.entries(arrays)) {
          bindings.set(`${name}.${i}`, device.view(tensor, start, vector(size)));
        }
        start += size;
      });
      jobs.push({ group, executable, bindings });
    }
  }
  return jobs;
}

/** Sizes of the pieces of the next program, with `left` elements to go. */
function piecesOf({ traits: { optimizerChunk } }: Device, left: number): number[] {
  const counts: number[] = [];
  for (let rest = left; rest > 0 && counts.length < PIECES_PER_RUN; rest -= optimizerChunk) {
    counts.push(Math.min(optimizerChunk, rest));
  }
  return counts;
}
