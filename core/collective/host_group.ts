/**
 * Collective operations on arrays in host memory, and on the tensors of any device by way of them.
 *
 * Tensors of processor devices are arrays in host memory, so nothing is copied; others are read and
 * written back.
 */
import type { Device, DeviceTensor, HostArray } from "../runtime/device.ts";
import type { Collective, Transport } from "./collective.ts";

/** Arrays that can be added up. */
export type FloatArray = Float32Array<ArrayBuffer> | Float64Array<ArrayBuffer>;

/** Ranks that exchange arrays; the methods are those of `Collective`. */
export interface HostGroup extends
  Pick<
    Collective,
    "transport" | "rank" | "world" | "localRank" | "sum" | "barrier" | "abort" | "close"
  > {
  allReduce(data: FloatArray): Promise<void>;
  reduceScatter(data: FloatArray): Promise<void>;
  allGather(data: FloatArray): Promise<void>;
  broadcast(data: HostArray, root: number): Promise<void>;
}

/** A group of hosts as the collective of a device. */
export class HostCollective implements Collective {
  readonly transport: Transport;
  readonly rank: number;
  readonly world: number;
  readonly localRank: number;
  readonly #group: HostGroup;
  readonly #device: Device;

  constructor(group: HostGroup, device: Device) {
    this.transport = group.transport;
    [this.rank, this.world, this.localRank] = [group.rank, group.world, group.localRank];
    [this.#group, this.#device] = [group, device];
  }

  allReduce(tensor: DeviceTensor): Promise<void> {
    return this.#through(tensor, (data) => this.#group.allReduce(data as FloatArray));
  }

  reduceScatter(tensor: DeviceTensor): Promise<void> {
    return this.#through(tensor, (data) => this.#group.reduceScatter(data as FloatArray));
  }

  allGather(tensor: DeviceTensor): Promise<void> {
    return this.#through(tensor, (data) => this.#group.allGather(data as FloatArray));
  }

  broadcast(tensor: DeviceTensor, root: number): Promise<void> {
    return this.#through(tensor, (data) => this.#group.broadcast(data, root));
  }

  sum(values: readonly number[]): Promise<number[]> {
    return this.#group.sum(values);
  }

  barrier(): Promise<void> {
    return this.#group.barrier();
  }

  abort(code: number): void {
    this.#group.abort(code);
  }

  close(): void {
    this.#group.close();
  }

  async #through(tensor: DeviceTensor, operate: (data: HostArray) => Promise<void>): Promise<void> {
    const data = this.#device.read(tensor);
    await operate(data);
    const { readbackIsCopy } = this.#device.traits;
    if (readbackIsCopy) this.#device.write(tensor, data);
  }
}
