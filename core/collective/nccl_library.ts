/** The library of NCCL, its functions and its errors. Signatures are those of nccl.h 2.30. */
import { startDriver } from "../runtime/cuda/driver/driver.ts";
import { CudaError } from "../runtime/cuda/driver/errors.ts";
import { type Host, openLibrary, SYSTEM } from "../runtime/cuda/driver/libraries.ts";
import { DRIVER_SYMBOLS, type SymbolsOf } from "../runtime/cuda/driver/symbols.ts";

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

/** The text at an address; empty where there is none. */
export function textOf(pointer: Deno.PointerValue): string {
  return pointer === null ? "" : Deno.UnsafePointerView.getCString(pointer).trim();
}

/** Throws unless a call succeeded; `doing` completes "cannot …". */
export function checkNccl(symbols: NcclSymbols, code: number, doing: string, words = ""): void {
  if (code === 0) return;
  const status = textOf(symbols.ncclGetErrorString(code)) || "unknown error";
  const detail = words === "" ? "" : `: ${words}`;
  throw new CudaError(`cannot ${doing}: NCCL error ${code}, ${status}${detail}`, {
    hints: ["NCCL_DEBUG=INFO shows what NCCL does; see the messages of the other ranks, too"],
  });
}
