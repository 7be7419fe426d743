/**
 * NCCL: a group of cuda devices, whose operations are in place on their streams. Ranks find each other
 * through MPI, where the launcher serves it, or at an address that all of them are given.
 *
 * Every operation is waited for by polling, beside the errors that NCCL meets in the background: a peer
 * that died leaves a kernel of NCCL running for ever. Numbers are those of nccl.h 2.30.
 */
import { EnvironmentError } from "../base/errors.ts";
import type { CudaDevice } from "../runtime/cuda/device.ts";
import { checkNccl, ID_BYTES, type NcclSymbols, textOf, uniqueId } from "./nccl_library.ts";
import type { DeviceTensor, HostArray } from "../runtime/device.ts";
import type { CudaTensor } from "../runtime/cuda/memory.ts";
import { elementCount } from "../graph/types.ts";
import type { Launch } from "./launch.ts";
import { NoAnswerError, type ProcessGroup } from "./process_group.ts";

/** Element types and the operation, as NCCL numbers them. */
const F32 = 7, F64 = 8, SUM = 0;

/** A call that continues in the background. */
const IN_PROGRESS = 7;

/** Polls in a row before the event loop gets a turn. */
const SPIN_MS = 1;

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
  readonly #timeoutMs: number;
  readonly #numbers = new Map<number, CudaTensor>();
  #communicator = 0n;

  /**
   * Joins the ranks of an id; blocks until all have. `hosts` ends the job and leaves it, where MPI is there.
   * @throws {CudaError} when NCCL cannot connect them
   */
  constructor(
    private readonly nccl: NcclSymbols,
    private readonly device: CudaDevice,
    id: Uint8Array<ArrayBuffer>,
    place: { readonly rank: number; readonly world: number; readonly timeoutMs: number },
    private readonly hosts?: ProcessGroup<HostArray>,
  ) {
    if (id.byteLength !== ID_BYTES) {
      throw new RangeError(`an id of NCCL has ${ID_BYTES} bytes, not ${id.byteLength}`);
    }
    this.rank = place.rank;
    this.world = place.world;
    this.#timeoutMs = place.timeoutMs;
    const out = new BigUint64Array(1);
    device.work().driver.activate(); // NCCL uses the device that is current
    const code = nccl.ncclCommInitRank(out, this.world, id, this.rank);
    checkNccl(nccl, code, `connect ${this.world} ranks`);
    this.#communicator = out[0]!;
  }

  allReduce({ address, shape }: CudaTensor): Promise<void> {
    return this.#add(address, elementCount(shape), F32);
  }

  reduceScatter(tensor: CudaTensor): Promise<void> {
    const { address, own, count } = this.#slices(tensor);
    return this.#run(
      "add up slices over all ranks",
      (...on) => this.nccl.ncclReduceScatter(address, own, count, F32, SUM, ...on),
    );
  }

  allGather(tensor: CudaTensor): Promise<void> {
    const { address, own, count } = this.#slices(tensor);
    return this.#run(
      "collect slices",
      (...on) => this.nccl.ncclAllGather(own, address, count, F32, ...on),
    );
  }

  broadcast({ address, shape }: CudaTensor, root: number): Promise<void> {
    const count = BigInt(elementCount(shape));
    return this.#run(
      "broadcast",
      (...on) => this.nccl.ncclBroadcast(address, address, count, F32, root, ...on),
    );
  }

  sum(values: readonly number[]): Promise<number[]> {
    return this.#sum(values);
  }

  /** In f64, which the device holds as pairs of words. */
  async #sum(values: readonly number[], limitMs?: number): Promise<number[]> {
    const count = values.length;
    const tensor = this.#numbers.getOrInsertComputed(
      count,
      () => this.device.allocate({ dtype: "f32", shape: [WORDS * count] }),
    );
    this.device.write(tensor, new Float32Array(Float64Array.from(values).buffer));
    await this.#add(tensor.address, count, F64, limitMs);
    const { buffer } = this.device.read(tensor);
    return Array.from(new Float64Array(buffer as ArrayBuffer, 0, count));
  }

  async barrier(): Promise<void> {
    if (this.hosts) await this.hosts.barrier();
    else await this.#sum([0], Infinity);
  }

  abort(code: number): void {
    this.#stop();
    this.hosts?.abort(code);
  }

  close(): void {
    if (this.#communicator) {
      this.nccl.ncclCommFinalize(this.#communicator);
      this.nccl.ncclCommDestroy(this.#communicator);
      this.#communicator = 0n;
    }
    this.hosts?.close();
  }

  /** Stops what runs, here and, by the error it causes, on the other ranks. */
  #stop(): void {
    if (this.#communicator) this.nccl.ncclCommAbort(this.#communicator);
    this.#communicator = 0n;
  }

  /** Address of this rank's slice, and the elements of each slice. */
  #slices({ address, shape }: CudaTensor) {
    const count = elementCount(shape) / this.world;
    return { address, own: address + BigInt(4 * this.rank * count), count: BigInt(count) };
  }

  #add(address: bigint, count: number, type: number, limitMs?: number): Promise<void> {
    return this.#run(
      "add up over all ranks",
      (...on) => this.nccl.ncclAllReduce(address, address, BigInt(count), type, SUM, ...on),
      limitMs,
    );
  }

  /** Issues an operation and waits for it, for at most `limitMs`. */
  async #run(
    doing: string,
    issue: (communicator: bigint, stream: bigint) => number,
    limitMs = this.#timeoutMs,
  ): Promise<void> {
    const { driver, stream } = this.device.work();
    driver.activate();
    const code = issue(this.#communicator, stream);
    if (code !== IN_PROGRESS) this.#check(code, doing);
    const event = driver.createEvent();
    try {
      driver.recordEvent(event, stream);
      await this.#watch(() => driver.isDone(event), doing, limitMs);
    } finally {
      driver.destroyEvent(event);
    }
  }

  async #watch(isDone: () => boolean, doing: string, limitMs: number): Promise<void> {
    const error = new Int32Array(1);
    const began = performance.now();
    for (;;) {
      this.#check(this.nccl.ncclCommGetAsyncError(this.#communicator, error), doing);
      const isBusy = error[0] === IN_PROGRESS;
      if (!isBusy) this.#check(error[0]!, doing);
      if (!isBusy && isDone()) return;
      const waited = performance.now() - began;
      if (waited > limitMs) {
        this.#stop();
        throw new NoAnswerError(this.rank, this.world, waited);
      }
      if (waited > SPIN_MS) await new Promise((resolve) => setTimeout(resolve));
    }
  }

  #check(code: number, doing: string): void {
    if (code === 0) return;
    const words = textOf(this.nccl.ncclGetLastError(this.#communicator));
    this.#stop();
    checkNccl(this.nccl, code, doing, words);
  }
}
