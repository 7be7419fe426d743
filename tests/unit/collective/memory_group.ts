/** Ranks in one process: collectives over arrays of this program, for tests without a launcher. */
import { DataParallel, type DataParallelOptions } from "../../../core/collective/data_parallel.ts";
import {
  type FloatArray,
  onDevice,
  type ProcessGroup,
} from "../../../core/collective/process_group.ts";
import type { Device, HostArray } from "../../../core/runtime/device.ts";

/** Exchange of one value per rank. */
class Meeting {
  readonly #world: number;
  #round = this.#begin();

  constructor(world: number) {
    this.#world = world;
  }

  exchange<T>(rank: number, value: T): Promise<T[]> {
    const round = this.#round;
    round.values[rank] = value;
    if (++round.arrived === this.#world) {
      this.#round = this.#begin();
      round.resolve(round.values);
    }
    return round.promise as Promise<T[]>;
  }

  #begin() {
    return { ...Promise.withResolvers<unknown[]>(), values: [] as unknown[], arrived: 0 };
  }
}

class MemoryGroup implements ProcessGroup<HostArray> {
  aborted: number | undefined;
  /** Bytes this rank has handed to tensor operations. */
  bytes = 0;

  constructor(readonly rank: number, readonly world: number, readonly meeting: Meeting) {}

  async allReduce(data: FloatArray): Promise<void> {
    data.set(added(await this.#share(data)));
  }

  async reduceScatter(data: FloatArray): Promise<void> {
    const sum = added(await this.#share(data));
    const size = data.length / this.world;
    data.set(sum.subarray(this.rank * size, (this.rank + 1) * size), this.rank * size);
  }

  async allGather(data: FloatArray): Promise<void> {
    const size = data.length / this.world;
    const slice = data.slice(this.rank * size, (this.rank + 1) * size);
    (await this.#share(slice)).forEach((slice, rank) => data.set(slice, rank * size));
  }

  async broadcast(data: HostArray, root: number): Promise<void> {
    data.set((await this.#share(data))[root]!);
  }

  async sum(values: readonly number[]): Promise<number[]> {
    const all = await this.meeting.exchange(this.rank, [...values]);
    return values.map((_, i) => all.reduce((sum, own) => sum + own[i]!, 0));
  }

  async barrier(): Promise<void> {
    await this.meeting.exchange(this.rank, undefined);
  }

  abort(code: number): void {
    this.aborted = code;
  }

  close(): void {}

  #share<T extends HostArray>(data: T): Promise<T[]> {
    this.bytes += data.byteLength;
    return this.meeting.exchange(this.rank, data.slice() as T);
  }
}

/** The sum, of which every rank makes its own. */
function added([first, ...others]: readonly FloatArray[]): FloatArray {
  const sum = first!.slice();
  for (const other of others) for (let i = 0; i < sum.length; i++) sum[i]! += other[i]!;
  return sum;
}

/** The groups of all ranks. */
export function memoryGroups(world: number): MemoryGroup[] {
  const meeting = new Meeting(world);
  return Array.from({ length: world }, (_, rank) => new MemoryGroup(rank, world, meeting));
}

/** A rank of a group as a collective; the moments are sharded unless told otherwise. */
export function collectiveOf(
  group: ProcessGroup<HostArray>,
  device: Device,
  options: Partial<DataParallelOptions> = {},
): DataParallel {
  return new DataParallel(device, onDevice(group, device), { shards: true, ...options });
}

/** Calls `body` as every rank, all at the same time. */
export function asRanks<T>(
  world: number,
  device: Device,
  body: (collective: DataParallel) => Promise<T>,
  options: (rank: number) => Partial<DataParallelOptions> = () => ({}),
): Promise<T[]> {
  return Promise.all(
    memoryGroups(world).map((group) => body(collectiveOf(group, device, options(group.rank)))),
  );
}
