/**
 * NCCL between emulated devices of this process: an operation is done once all ranks have issued it, and
 * until then in progress, as NCCL reports it.
 */
import type { NcclSymbols } from "../../core/collective/nccl_library.ts";
import type { EmulatedMachine } from "./mod.ts";

type Floats = Float32Array<ArrayBuffer> | Float64Array<ArrayBuffer>;

/** The pieces that a rank receives one behind the other; `count` is that of the call. */
type Receive = (parts: readonly Floats[], count: number, root: number) => readonly Floats[];

interface Part {
  readonly data: Floats;
  readonly write: (parts: readonly Floats[]) => void;
}

const IN_PROGRESS = 7;

/** Floats of a device, which are memory of this process. */
function floatsAt(address: bigint, count: number, type: number): Floats {
  const Kind = type === 8 ? Float64Array : Float32Array;
  const pointer = Deno.UnsafePointer.create(address)!;
  const bytes = count * Kind.BYTES_PER_ELEMENT;
  return new Kind(Deno.UnsafePointerView.getArrayBuffer(pointer, bytes));
}

function sumOf([first, ...others]: readonly Floats[]): Floats {
  const sum = first!.slice() as Floats;
  for (const other of others) for (let i = 0; i < sum.length; i++) sum[i]! += other[i]!;
  return sum;
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
    /** An operation that sends `slices` times its count; the last argument of each is the stream. */
    const operation =
      (slices: number, receive: Receive) =>
      (send: bigint, to: bigint, n: bigint, type: number, ...rest: (number | bigint)[]) => {
        const data = floatsAt(send, slices * Number(n), type);
        return this.#issue(rank, rest.at(-1) as bigint, data, (parts) => {
          let address = to;
          for (const piece of receive(parts, Number(n), Number(rest[0]))) {
            floatsAt(address, piece.length, type).set(piece);
            address += BigInt(piece.byteLength);
          }
        });
      };
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
      ncclAllReduce: operation(1, (parts) => [sumOf(parts)]),
      ncclReduceScatter: operation(
        world,
        (parts, count) => [sumOf(parts).subarray(rank * count, (rank + 1) * count)],
      ),
      ncclAllGather: operation(1, (parts) => parts),
      ncclBroadcast: operation(1, (parts, _, root) => [parts[root]!]),
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
    for (const part of parts) part.write(all);
    this.#parts = [];
    this.#busy.fill(false);
    return 0;
  }
}
