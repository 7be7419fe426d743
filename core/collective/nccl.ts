/**
 * NCCL: a group of cuda devices. Ranks find each other through MPI, where the launcher serves it, or at an
 * address that all of them are given.
 */
import { EnvironmentError } from "../base/errors.ts";
import type { CudaDevice } from "../runtime/cuda/device.ts";
import { ID_BYTES, NcclCommunicator, type NcclSymbols, uniqueId } from "./nccl_library.ts";
import type { DeviceTensor, HostArray } from "../runtime/device.ts";
import type { CudaTensor } from "../runtime/cuda/memory.ts";
import { elementCount } from "../graph/types.ts";
import type { Launch } from "./launch.ts";
import type { ProcessGroup } from "./process_group.ts";

/** Bytes of a number of `sum`, in elements of the tensor that holds it. */
const WORDS = 2;

/**
 * The id of a job: made by rank 0 and sent by MPI, or the same everywhere by the address in
 * NCCL_COMM_ID, at which rank 0 listens.
 */
export async function agreeOnId(
  symbols: NcclSymbols,
  launch: Launch | undefined,
  hosts: ProcessGroup<HostArray> | undefined,
): Promise<Uint8Array<ArrayBuffer>> {
  if (hosts) {
    const id = hosts.rank === 0 ? uniqueId(symbols) : new Uint8Array(ID_BYTES);
    await hosts.broadcast(id, 0);
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

export class NcclGroup implements ProcessGroup<DeviceTensor> {
  readonly rank: number;
  readonly world: number;
  readonly #communicator: NcclCommunicator;
  readonly #numbers = new Map<number, CudaTensor>();

  /** Joins the ranks of an id; blocks until all have. `hosts` ends the job and leaves it, where MPI is there. */
  constructor(
    symbols: NcclSymbols,
    private readonly device: CudaDevice,
    id: Uint8Array<ArrayBuffer>,
    place: { readonly rank: number; readonly world: number; readonly timeoutMs: number },
    private readonly hosts?: ProcessGroup<HostArray>,
  ) {
    this.rank = place.rank;
    this.world = place.world;
    this.#communicator = new NcclCommunicator(symbols, device.work(), { id, ...place });
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

  sum(values: readonly number[]): Promise<number[]> {
    return this.#sum(values);
  }

  /** In f64, which the device holds as pairs of words. */
  async #sum(values: readonly number[], limitMs?: number): Promise<number[]> {
    const count = values.length;
    const tensor = this.#numbers.get(count) ??
      this.device.allocate({ dtype: "f32", shape: [WORDS * count] });
    this.#numbers.set(count, tensor);
    this.device.write(tensor, new Float32Array(Float64Array.from(values).buffer));
    await this.#communicator.allReduce({ address: tensor.address, count, type: "f64" }, limitMs);
    const { buffer } = this.device.read(tensor);
    return Array.from(new Float64Array(buffer as ArrayBuffer, 0, count));
  }

  async barrier(): Promise<void> {
    if (this.hosts) await this.hosts.barrier();
    else await this.#sum([0], Infinity);
  }

  abort(code: number): void {
    this.#communicator.abort();
    this.hosts?.abort(code);
  }

  close(): void {
    this.#communicator.close();
    this.hosts?.close();
  }

  #array({ address, shape }: CudaTensor, parts: number) {
    return { address, count: elementCount(shape) / parts, type: "f32" } as const;
  }
}
