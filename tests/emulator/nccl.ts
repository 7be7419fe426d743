/**
 * NCCL between emulated devices of this process: an operation is done once all ranks have issued it, and
 * until then in progress, as NCCL reports it.
 */
import type { NcclSymbols } from "../../core/collective/nccl_library.ts";
import type { EmulatedMachine } from "./mod.ts";

type Floats = Float32Array<ArrayBuffer> | Float64Array<ArrayBuffer>;

interface Part {
  readonly data: Floats;
  /** Elements that this rank receives, and where. */
  readonly write: (sum: Floats, parts: readonly Floats[]) => void;
}

const IN_PROGRESS = 7;

/** Floats of a device, which are memory of this process. */
function floatsAt(address: bigint, count: number, type: number): Floats {
  const Kind = type === 8 ? Float64Array : Float32Array;
  const pointer = Deno.UnsafePointer.create(address)!;
  const bytes = count * Kind.BYTES_PER_ELEMENT;
  return new Kind(Deno.UnsafePointerView.getArrayBuffer(pointer, bytes));
}

/** The ranks of one job. */
export class EmulatedNccl {
  readonly #machines: readonly EmulatedMachine[];
  #parts: (Part | undefined)[] = [];
  readonly #busy: boolean[] = [];

  constructor(machines: readonly EmulatedMachine[]) {
    this.#machines = machines;
  }

  /** The library as a rank sees it. */
  symbols(rank: number): NcclSymbols {
    const world = this.#machines.length;
    const symbols = {
      ncclGetVersion: (out: Int32Array) => {
        out[0] = 23007;
        return 0;
      },
      ncclGetUniqueId: () => 0,
      ncclCommInitRank: (out: BigUint64Array) => {
        out[0] = BigInt(rank + 1);
        return 0;
      },
      ncclAllReduce: (
        send: bigint,
        receive: bigint,
        n: bigint,
        type: number,
        _op: number,
        _c: bigint,
        stream: bigint,
      ) =>
        this.#issue(
          rank,
          stream,
          floatsAt(send, Number(n), type),
          (sum) => floatsAt(receive, Number(n), type).set(sum),
        ),
      ncclReduceScatter: (
        send: bigint,
        receive: bigint,
        n: bigint,
        type: number,
        _op: number,
        _c: bigint,
        stream: bigint,
      ) => {
        const count = Number(n);
        return this.#issue(
          rank,
          stream,
          floatsAt(send, world * count, type),
          (sum) =>
            floatsAt(receive, count, type).set(sum.subarray(rank * count, (rank + 1) * count)),
        );
      },
      ncclAllGather: (
        send: bigint,
        receive: bigint,
        n: bigint,
        type: number,
        _c: bigint,
        stream: bigint,
      ) => {
        const count = Number(n);
        return this.#issue(
          rank,
          stream,
          floatsAt(send, count, type),
          (_, parts) =>
            parts.forEach((part, r) => floatsAt(receive, world * count, type).set(part, r * count)),
        );
      },
      ncclBroadcast: (
        send: bigint,
        receive: bigint,
        n: bigint,
        type: number,
        root: number,
        _c: bigint,
        stream: bigint,
      ) =>
        this.#issue(
          rank,
          stream,
          floatsAt(send, Number(n), type),
          (_, parts) => floatsAt(receive, Number(n), type).set(parts[root]!),
        ),
      ncclCommGetAsyncError: (_: bigint, out: Int32Array) => {
        out[0] = this.#busy[rank] ? IN_PROGRESS : 0;
        return 0;
      },
      ncclCommAbort: () => 0,
      ncclCommFinalize: () => 0,
      ncclCommDestroy: () => 0,
      ncclGetErrorString: () => null,
      ncclGetLastError: () => null,
    };
    return symbols as unknown as NcclSymbols;
  }

  /** Takes a rank's part as its stream leaves it; the last rank completes the operation for all. */
  #issue(rank: number, stream: bigint, data: Floats, write: Part["write"]): number {
    const code = this.#machines[rank]!.driver.cuStreamSynchronize(stream);
    if (code !== 0) return 1;
    if (this.#busy[rank]) throw new Error(`rank ${rank} issued an operation in another one`);
    this.#busy[rank] = true;
    this.#parts[rank] = { data: data.slice() as Floats, write };
    const parts = this.#parts.filter((part) => part !== undefined);
    if (parts.length < this.#machines.length) return 0;
    const all = parts.map((part) => part.data);
    const sum = all[0]!.slice() as Floats;
    for (const other of all.slice(1)) for (let i = 0; i < sum.length; i++) sum[i]! += other[i]!;
    for (const part of parts) part.write(sum, all);
    this.#parts = [];
    this.#busy.fill(false);
    return 0;
  }
}
