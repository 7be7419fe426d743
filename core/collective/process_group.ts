/** Ranks that a launcher has connected, with the operations of MPI and NCCL. */
import { EnvironmentError } from "../base/errors.ts";
import type { Device, DeviceTensor, HostArray } from "../runtime/device.ts";

/** Arrays that can be added up. */
export type FloatArray = Float32Array<ArrayBuffer> | Float64Array<ArrayBuffer>;

/** Ranks that exchange numbers; every rank calls the same methods in the same order. */
export interface NumberGroup {
  /** Number of this process, from 0 to `world` - 1. */
  readonly rank: number;
  /** Number of processes. */
  readonly world: number;
  /** Sums of numbers over all ranks, in f64 and in the same order everywhere; lets signals through. */
  sum(values: readonly number[]): Promise<number[]>;
}

/** Ranks that exchange arrays of type `A`. Of a sliced array with `world` equal slices, rank r owns slice r. */
export interface ProcessGroup<A> extends NumberGroup {
  /** Replaces an array on every rank by its sum over all ranks. */
  allReduce(array: A): Promise<void>;
  /** Puts the sum of this rank's slice into the slice; the other slices stay as they are. */
  reduceScatter(array: A): Promise<void>;
  /** Fills every slice with that of the rank that owns it. */
  allGather(array: A): Promise<void>;
  /** Overwrites an array with that of the rank `root`. */
  broadcast(array: A, root: number): Promise<void>;
  /** Resolves once every rank has called it, without a limit of time. */
  barrier(): Promise<void>;
  /** Ends all ranks with an exit code; called by a rank that fails while the others may wait for it. */
  abort(code: number): void;
  /** Leaves the group; every rank calls it before it ends. */
  close(): void;
}

/** An exchange took longer than its limit: some rank has ended, is stopped, or is slow. */
export class NoAnswerError extends EnvironmentError {
  constructor(rank: number, world: number, waitedMs: number) {
    super(
      `rank ${rank} of ${world} got no answer from the others for ${Math.round(waitedMs / 1000)} s`,
      { hints: ["see the messages of the other ranks, or raise `--dist-timeout`"] },
    );
  }
}

/**
 * A group of hosts for the tensors of a device. Tensors of processor devices are arrays in host memory, so
 * nothing is copied; others are read and written back.
 */
export function onDevice(
  group: ProcessGroup<HostArray>,
  device: Device,
): ProcessGroup<DeviceTensor> {
  const through = async (tensor: DeviceTensor, exchange: (data: HostArray) => Promise<void>) => {
    const data = device.read(tensor);
    await exchange(data);
    if (device.traits.readbackIsCopy) device.write(tensor, data);
  };
  return {
    rank: group.rank,
    world: group.world,
    allReduce: (tensor) => through(tensor, (data) => group.allReduce(data)),
    reduceScatter: (tensor) => through(tensor, (data) => group.reduceScatter(data)),
    allGather: (tensor) => through(tensor, (data) => group.allGather(data)),
    broadcast: (tensor, root) => through(tensor, (data) => group.broadcast(data, root)),
    sum: (values) => group.sum(values),
    barrier: () => group.barrier(),
    abort: (code) => group.abort(code),
    close: () => group.close(),
  };
}
