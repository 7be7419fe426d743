/**
 * NCCL: collective operations between GPUs, in place, on the stream of a device.
 *
 * Every operation is waited for by polling, beside the errors that NCCL meets in the background: a peer
 * that died leaves a kernel of NCCL running for ever. Signatures and numbers are those of nccl.h 2.30.
 */
import { type Driver, startDriver } from "../runtime/cuda/driver/driver.ts";
import { CudaError } from "../runtime/cuda/driver/errors.ts";
import { type Host, openLibrary, SYSTEM } from "../runtime/cuda/driver/libraries.ts";
import { DRIVER_SYMBOLS, type SymbolsOf } from "../runtime/cuda/driver/symbols.ts";
import { noAnswer } from "./process_group.ts";

/** ncclUniqueId, which is passed by value. */
const ID = { struct: new Array<"u64">(16).fill("u64") } as const;

/** Bytes of it; a shorter buffer would be read past its end. */
export const ID_BYTES = 128;

const COMMUNICATOR = "u64", DEVICE = "u64", STREAM = "u64";

/** Every result but text is an ncclResult_t. */
export const NCCL_SYMBOLS = {
  ncclGetVersion: { parameters: ["buffer"], result: "i32" },
  ncclGetUniqueId: { parameters: ["buffer"], result: "i32" },
  // communicator, ranks, id, rank
  ncclCommInitRank: { parameters: ["buffer", "i32", ID, "i32"], result: "i32" },
  // send, receive, count, type, operation, communicator, stream
  ncclAllReduce: {
    parameters: [DEVICE, DEVICE, "usize", "i32", "i32", COMMUNICATOR, STREAM],
    result: "i32",
  },
  // the same; the count is that received
  ncclReduceScatter: {
    parameters: [DEVICE, DEVICE, "usize", "i32", "i32", COMMUNICATOR, STREAM],
    result: "i32",
  },
  // send, receive, count sent, type, communicator, stream
  ncclAllGather: {
    parameters: [DEVICE, DEVICE, "usize", "i32", COMMUNICATOR, STREAM],
    result: "i32",
  },
  // send, receive, count, type, root, communicator, stream
  ncclBroadcast: {
    parameters: [DEVICE, DEVICE, "usize", "i32", "i32", COMMUNICATOR, STREAM],
    result: "i32",
  },
  ncclCommGetAsyncError: { parameters: [COMMUNICATOR, "buffer"], result: "i32" },
  ncclCommAbort: { parameters: [COMMUNICATOR], result: "i32" },
  ncclCommFinalize: { parameters: [COMMUNICATOR], result: "i32" },
  ncclCommDestroy: { parameters: [COMMUNICATOR], result: "i32" },
  ncclGetErrorString: { parameters: ["i32"], result: "pointer" },
  ncclGetLastError: { parameters: [COMMUNICATOR], result: "pointer" },
} as const satisfies Deno.ForeignLibraryInterface;

/** Functions of NCCL. */
export type NcclSymbols = SymbolsOf<typeof NCCL_SYMBOLS>;

/** Element types and the operation, as NCCL numbers them. */
const TYPES = { f32: 7, f64: 8 } as const;
const BYTES = { f32: 4, f64: 8 } as const;
const SUM = 0;

/** A call that continues in the background. */
const IN_PROGRESS = 7;

/** Polls in a row before the event loop gets a turn. */
const SPIN_MS = 1;

/** Elements on the device. */
export interface DeviceArray {
  readonly address: bigint;
  readonly count: number;
  readonly type: keyof typeof TYPES;
}

/** Version of the driver of a machine; undefined where there is none. */
function driverVersionOf(host: Host): number | undefined {
  try {
    return startDriver(openLibrary("libcuda", DRIVER_SYMBOLS, { host }).symbols);
  } catch {
    return undefined;
  }
}

/**
 * Opens the library of this machine; `driverVersion` is 13000 for CUDA 13.0.
 * @throws {EnvironmentError} when there is none
 */
export function openNccl(
  { host = SYSTEM, driverVersion = driverVersionOf(host) }: {
    readonly host?: Host;
    readonly driverVersion?: number | undefined;
  } = {},
): { readonly path: string; readonly version: string; readonly symbols: NcclSymbols } {
  const { path, symbols } = openLibrary("nccl", NCCL_SYMBOLS, {
    host,
    maxMajor: driverVersion && Math.floor(driverVersion / 1000),
  });
  const out = new Int32Array(1);
  checkNccl(symbols, symbols.ncclGetVersion(out), "read the version of NCCL");
  const code = out[0]!; // 23007 is 2.30.7
  return {
    path,
    version: `${Math.floor(code / 10000)}.${Math.floor(code / 100) % 100}.${code % 100}`,
    symbols,
  };
}

/** An id by which ranks find each other: rank 0 makes one and gives it to the others. */
export function uniqueId(symbols: NcclSymbols): Uint8Array<ArrayBuffer> {
  const id = new Uint8Array(ID_BYTES);
  checkNccl(symbols, symbols.ncclGetUniqueId(id), "make an id for the ranks of NCCL");
  return id;
}

/** This rank among those of an id. */
export class NcclCommunicator {
  readonly #nccl: NcclSymbols;
  readonly #driver: Driver;
  readonly #stream: bigint;
  readonly #rank: number;
  readonly #world: number;
  readonly #timeoutMs: number;
  #communicator = 0n;

  /**
   * Joins the other ranks, and blocks until all of them do.
   * @throws {CudaError} when NCCL cannot connect them
   */
  constructor(
    symbols: NcclSymbols,
    { driver, stream }: { driver: Driver; stream: bigint },
    { id, rank, world, timeoutMs }: {
      id: Uint8Array<ArrayBuffer>;
      rank: number;
      world: number;
      timeoutMs: number;
    },
  ) {
    if (id.byteLength !== ID_BYTES) {
      throw new RangeError(`an id of NCCL has ${ID_BYTES} bytes, not ${id.byteLength}`);
    }
    this.#nccl = symbols;
    this.#driver = driver;
    this.#stream = stream;
    this.#rank = rank;
    this.#world = world;
    this.#timeoutMs = timeoutMs;
    const out = new BigUint64Array(1);
    driver.activate(); // NCCL uses the device that is current
    const code = symbols.ncclCommInitRank(out, world, id, rank);
    checkNccl(symbols, code, `connect ${world} ranks`);
    this.#communicator = out[0]!;
  }

  /** Waits for at most `limitMs`, by default the time limit of the group. */
  allReduce({ address, count, type }: DeviceArray, limitMs?: number): Promise<void> {
    const start = this.#nccl.ncclAllReduce;
    return this.#run(
      "add up over all ranks",
      () =>
        start(address, address, BigInt(count), TYPES[type], SUM, this.#communicator, this.#stream),
      limitMs,
    );
  }

  /** `count` is that of a slice, and the array begins with the slice of rank 0. */
  reduceScatter(array: DeviceArray): Promise<void> {
    const { address, count, type } = array;
    const start = this.#nccl.ncclReduceScatter;
    const own = this.#own(array);
    return this.#run(
      "add up slices over all ranks",
      () => start(address, own, BigInt(count), TYPES[type], SUM, this.#communicator, this.#stream),
    );
  }

  /** The same as of a `reduceScatter`. */
  allGather(array: DeviceArray): Promise<void> {
    const { address, count, type } = array;
    const start = this.#nccl.ncclAllGather;
    const own = this.#own(array);
    return this.#run(
      "collect slices",
      () => start(own, address, BigInt(count), TYPES[type], this.#communicator, this.#stream),
    );
  }

  broadcast({ address, count, type }: DeviceArray, root: number): Promise<void> {
    const start = this.#nccl.ncclBroadcast;
    return this.#run(
      "broadcast",
      () =>
        start(address, address, BigInt(count), TYPES[type], root, this.#communicator, this.#stream),
    );
  }

  /** Stops what runs, here and, by the error it causes, on the other ranks. */
  abort(): void {
    if (this.#communicator) this.#nccl.ncclCommAbort(this.#communicator);
    this.#communicator = 0n;
  }

  /** Leaves the other ranks, which do the same. */
  close(): void {
    if (!this.#communicator) return;
    this.#nccl.ncclCommFinalize(this.#communicator);
    this.#nccl.ncclCommDestroy(this.#communicator);
    this.#communicator = 0n;
  }

  /** Address of this rank's slice. */
  #own({ address, count, type }: DeviceArray): bigint {
    return address + BigInt(BYTES[type] * this.#rank * count);
  }

  /** Issues an operation and waits for it. */
  async #run(
    doing: string,
    issue: () => number,
    limitMs = this.#timeoutMs,
  ): Promise<void> {
    this.#driver.activate();
    const code = issue();
    if (code !== IN_PROGRESS) this.#check(code, doing);
    const event = this.#driver.createEvent();
    try {
      this.#driver.recordEvent(event, this.#stream);
      await this.#watch(event, doing, limitMs);
    } finally {
      this.#driver.destroyEvent(event);
    }
  }

  async #watch(event: bigint, doing: string, limitMs: number): Promise<void> {
    const error = new Int32Array(1);
    const began = performance.now();
    for (;;) {
      this.#check(this.#nccl.ncclCommGetAsyncError(this.#communicator, error), doing);
      const isBusy = error[0] === IN_PROGRESS;
      if (!isBusy) this.#check(error[0]!, doing);
      if (!isBusy && this.#driver.isDone(event)) return;
      const waited = performance.now() - began;
      if (waited > limitMs) {
        this.abort();
        throw noAnswer(this.#rank, this.#world, waited);
      }
      if (waited > SPIN_MS) await new Promise((resolve) => setTimeout(resolve));
    }
  }

  #check(code: number, doing: string): void {
    if (code === 0) return;
    const words = textOf(this.#nccl.ncclGetLastError(this.#communicator));
    this.abort();
    checkNccl(this.#nccl, code, doing, words);
  }
}

function textOf(pointer: Deno.PointerValue): string {
  return pointer === null ? "" : Deno.UnsafePointerView.getCString(pointer).trim();
}

/** Throws unless a call succeeded; `doing` completes "cannot …". */
function checkNccl(symbols: NcclSymbols, code: number, doing: string, words = ""): void {
  if (code === 0) return;
  const status = textOf(symbols.ncclGetErrorString(code)) || "unknown error";
  const detail = words === "" ? "" : `: ${words}`;
  throw new CudaError(`cannot ${doing}: NCCL error ${code}, ${status}${detail}`, {
    hints: ["NCCL_DEBUG=INFO shows what NCCL does; see the messages of the other ranks, too"],
  });
}
