/**
 * NCCL as the collective of cuda devices. Ranks find each other through MPI, where the launcher serves it,
 * or at an address that all of them are given.
 */
import { EnvironmentError } from "../base/errors.ts";
import type { CudaDevice } from "../runtime/cuda/device.ts";
import {
  ID_BYTES,
  type NcclCommunicator,
  type NcclSymbols,
  uniqueId,
} from "../runtime/cuda/driver/nccl.ts";
import type { CudaTensor } from "../runtime/cuda/tensor.ts";
import { elementCount } from "../graph/types.ts";
import type { Collective } from "./collective.ts";
import type { Launch } from "./environment.ts";
import type { HostGroup } from "./host_group.ts";

/** Bytes of a number of `sum`, in elements of the tensor that holds it. */
const WORDS = 2;

/** How ranks that MPI did not connect find each other. */
export interface NcclPlace {
  readonly rank: number;
  readonly world: number;
  readonly localRank: number;
  readonly timeoutMs: number;
}

/**
 * The id of a job: made by rank 0 and sent by MPI, or the same everywhere by the address in
 * NCCL_COMM_ID, at which rank 0 listens.
 */
export async function agreeOnId(
  symbols: NcclSymbols,
  launch: Launch | undefined,
  group: HostGroup | undefined,
): Promise<Uint8Array<ArrayBuffer>> {
  if (group) {
    const id = group.rank === 0 ? uniqueId(symbols) : new Uint8Array(ID_BYTES);
    await group.broadcast(id, 0);
    return id;
  }
  if (launch !== undefined && launch.world > 1) {
    if (launch.address === undefined) {
      throw new EnvironmentError("the launcher does not tell where rank 0 is", {
        hints: ["set MASTER_ADDR and MASTER_PORT"],
      });
    }
    Deno.env.set("NCCL_COMM_ID", `${launch.address.host}:${launch.address.port}`);
  }
  return uniqueId(symbols);
}

export class NcclCollective implements Collective {
  readonly transport = "nccl";
  readonly rank: number;
  readonly world: number;
  readonly localRank: number;
  readonly #device: CudaDevice;
  readonly #communicator: NcclCommunicator;
  /** Ends the job and leaves it, where MPI is there. */
  readonly #group: HostGroup | undefined;
  readonly #numbers = new Map<number, CudaTensor>();

  /** Joins the ranks of an id; blocks until all have. */
  constructor(
    symbols: NcclSymbols,
    device: CudaDevice,
    id: Uint8Array<ArrayBuffer>,
    { rank, world, localRank, timeoutMs }: NcclPlace,
    group?: HostGroup,
  ) {
    [this.rank, this.world, this.localRank] = [rank, world, localRank];
    [this.#device, this.#group] = [device, group];
    this.#communicator = device.connect(symbols, { id, rank, world, timeoutMs });
  }

  allReduce(tensor: CudaTensor): Promise<void> {
    return this.#communicator.allReduce(this.#array(tensor, 1));
  }

  reduceScatter(tensor: CudaTensor): Promise<void> {
    return this.#communicator.reduceScatter(this.#array(tensor, this.world));
  }

  allGather(tensor: CudaTensor): Promise<void> {
    return this.#communicator.allGather(this.#array(tensor, this.world));
  }

  broadcast(tensor: CudaTensor, root: number): Promise<void> {
    return this.#communicator.broadcast(this.#array(tensor, 1), root);
  }

  /** In f64, which the device holds as pairs of words. */
  async sum(values: readonly number[]): Promise<number[]> {
    const count = values.length;
    const tensor = this.#numbers.get(count) ??
      this.#device.allocate({ dtype: "f32", shape: [WORDS * count] });
    this.#numbers.set(count, tensor);
    this.#device.write(tensor, new Float32Array(Float64Array.from(values).buffer));
    await this.#communicator.allReduce({ address: tensor.address, count, type: "f64" });
    const { buffer } = this.#device.read(tensor);
    return Array.from(new Float64Array(buffer as ArrayBuffer, 0, count));
  }

  async barrier(): Promise<void> {
    if (this.#group) await this.#group.barrier();
    else await this.sum([0]);
  }

  abort(code: number): void {
    this.#communicator.abort();
    this.#group?.abort(code);
  }

  close(): void {
    this.#communicator.close();
    this.#group?.close();
  }

  #array({ address, shape }: CudaTensor, parts: number) {
    return { address, count: elementCount(shape) / parts, type: "f32" } as const;
  }
}
