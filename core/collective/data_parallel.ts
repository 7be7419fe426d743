/**
 * Data parallel training over ranks, with or without sharded moments (ZeRO-1).
 *
 * Arrays are divided into equal slices that ignore the borders of tensors, padded with zeros to whole cache
 * lines. Batch i belongs to rank i mod N.
 */
import type { Device, DeviceTensor } from "../runtime/device.ts";
import {
  chunksOf,
  type Collective,
  type DivisibleFeed,
  type Feed,
  type Slice,
} from "./collective.ts";
import type { ProcessGroup } from "./process_group.ts";

/** Slices begin at multiples of this many elements. */
const ALIGNMENT = 64;

/** Elements that are sent to rank 0 at a time. */
const CHUNK = 2 ** 20;

/** The slice of one of `world` ranks in an array of `count` elements; a single rank has no padding. */
export function sliceOf(count: number, world: number, rank: number): Slice {
  const unit = world === 1 ? 1 : world * ALIGNMENT;
  const total = Math.ceil(count / unit) * unit;
  return { start: rank * total / world, count: total / world, total };
}

/** Choices of a run. */
export interface DataParallelOptions {
  /** True if each rank updates a slice and keeps its moments alone; else every rank updates everything. */
  readonly shards: boolean;
  /** Asks all ranks to stop. */
  readonly interruption?: AbortSignal;
  /** Elements that are sent to rank 0 at a time. */
  readonly chunk?: number;
}

/** Ranks as a collective. */
export class DataParallel implements Collective {
  readonly rank: number;
  readonly world: number;
  readonly #stop = new AbortController();

  constructor(
    private readonly device: Device,
    private readonly group: ProcessGroup<DeviceTensor>,
    private readonly options: DataParallelOptions,
  ) {
    this.rank = group.rank;
    this.world = group.world;
  }

  /** Aborts on all ranks in the same `sum` once the interruption of one rank has. */
  get signal(): AbortSignal {
    return this.#stop.signal;
  }

  slice(count: number): Slice {
    return this.options.shards ? sliceOf(count, this.world, this.rank) : sliceOf(count, 1, 0);
  }

  async sum(values: readonly number[]): Promise<number[]> {
    const asksToStop = Number(this.options.interruption?.aborted ?? false);
    const sums = await this.group.sum([...values, asksToStop]);
    if (sums.pop()! > 0) this.#stop.abort();
    return sums;
  }

  async sumOfSlices(own: number): Promise<number> {
    return this.options.shards ? (await this.sum([own]))[0]! : own;
  }

  sumGradients(gradients: DeviceTensor): Promise<void> {
    return this.options.shards
      ? this.group.reduceScatter(gradients)
      : this.group.allReduce(gradients);
  }

  async gather(values: DeviceTensor): Promise<void> {
    if (this.options.shards) await this.group.allGather(values);
  }

  async *parts(slice: DeviceTensor, count: number): AsyncGenerator<DeviceTensor> {
    const { device, group, options: { chunk = CHUNK } } = this;
    const part = (tensor: DeviceTensor, start: number, count: number) =>
      device.view(tensor, start, { dtype: "f32", shape: [count] });
    const size = slice.shape[0]!;
    await this.barrier(); // rank 0 may have written a model meanwhile
    yield part(slice, 0, Math.min(size, count)); // rank 0 has it
    if (size >= count) return;
    const buffer = device.allocate({ dtype: "f32", shape: [chunk] });
    try {
      for (let owner = 1; owner * size < count; owner++) {
        for (const each of chunksOf(Math.min(size, count - owner * size), chunk)) {
          const tensor = owner === this.rank
            ? part(slice, each.start, each.count)
            : part(buffer, 0, each.count);
          await group.broadcast(tensor, owner);
          yield tensor;
        }
      }
    } finally {
      device.free?.(buffer);
    }
  }

  share<B>(feed: DivisibleFeed<B>): Feed<B> {
    const { rank, world } = this;
    return {
      next() {
        for (let i = 0; i < rank; i++) if (!feed.skip()) return undefined;
        const batch = feed.next();
        for (let i = rank + 1; i < world; i++) feed.skip();
        return batch;
      },
      get cursor() {
        return feed.cursor;
      },
    };
  }

  /** Resolves once every rank has called it, without a limit of time. */
  barrier(): Promise<void> {
    return this.group.barrier();
  }

  /** Ends all ranks with an exit code. */
  abort(code: number): void {
    this.group.abort(code);
  }

  /** Leaves the group; every rank calls it before it ends. */
  close(): void {
    this.group.close();
  }
}
