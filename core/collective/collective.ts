/**
 * Communication between the ranks of a training run.
 *
 * Every rank calls the same methods in the same order with tensors of the same type; a rank that does not
 * leaves the others waiting. Sharded tensors are flat f32 arrays of `world` equal slices, of which rank r
 * owns slice r (`slices.ts`).
 */
import type { DeviceTensor } from "../runtime/device.ts";

/** What carries the tensors. */
export type Transport = "solo" | "mpi" | "nccl";

export interface Collective {
  readonly transport: Transport;
  /** Number of this process, from 0 to `world` - 1. */
  readonly rank: number;
  /** Number of processes. */
  readonly world: number;
  /** Number of this process among those on its machine. */
  readonly localRank: number;
  /** Replaces a tensor on every rank by its sum over all ranks. */
  allReduce(tensor: DeviceTensor): Promise<void>;
  /** Puts the sum of this rank's slice into the slice; the other slices stay as they are. */
  reduceScatter(tensor: DeviceTensor): Promise<void>;
  /** Fills every slice with that of the rank that owns it. */
  allGather(tensor: DeviceTensor): Promise<void>;
  /** Overwrites a tensor with that of the rank `root`. */
  broadcast(tensor: DeviceTensor, root: number): Promise<void>;
  /** Sums of numbers over all ranks, in f64 and in the same order everywhere; lets signals through. */
  sum(values: readonly number[]): Promise<number[]>;
  /** Resolves once every rank has called it, without a limit of time. */
  barrier(): Promise<void>;
  /** Ends all ranks with an exit code; called by a rank that fails while the others may wait for it. */
  abort(code: number): void;
  /** Leaves the group; every rank calls it before it ends. */
  close(): void;
}
