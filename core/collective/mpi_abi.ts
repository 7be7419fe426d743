/**
 * Differences between MPI libraries: in Open MPI a handle is the address of a variable of the library, in
 * MPICH and its relatives (Intel MPI, Cray MPICH) it is a number that never changes.
 *
 * Both take 64-bit arguments here: callees of the second kind read the lower half of the register only.
 * Values are those of mpi.h of MPICH 4.0.
 */

/** The two kinds of libraries. */
export type MpiFamily = "Open MPI" | "MPICH";

/** Libraries of each kind by the names that the loader knows, the usual one first. */
export const MPI_LIBRARIES: Readonly<Record<MpiFamily, readonly string[]>> = {
  "Open MPI": ["libmpi.so.40"],
  "MPICH": ["libmpich.so.12", "libmpi.so.12", "libmpi_cray.so.12"],
};

/** A communicator, type, operation, or a buffer that may be `inPlace`. */
const HANDLE = "u64";

/** Functions of both kinds; every result is an error code. */
export const MPI_SYMBOLS = {
  MPI_Init_thread: { parameters: ["u64", "u64", "i32", "buffer"], result: "i32" },
  MPI_Initialized: { parameters: ["buffer"], result: "i32" },
  MPI_Get_library_version: { parameters: ["buffer", "buffer"], result: "i32" },
  MPI_Comm_rank: { parameters: [HANDLE, "buffer"], result: "i32" },
  MPI_Comm_size: { parameters: [HANDLE, "buffer"], result: "i32" },
  // send, receive, count, type, operation, communicator, request
  MPI_Iallreduce: {
    parameters: [HANDLE, "buffer", "i32", HANDLE, HANDLE, HANDLE, "buffer"],
    result: "i32",
  },
  MPI_Ireduce_scatter_block: {
    parameters: ["buffer", "buffer", "i32", HANDLE, HANDLE, HANDLE, "buffer"],
    result: "i32",
  },
  // send, count, type, receive, count, type, communicator, request
  MPI_Iallgather: {
    parameters: [HANDLE, "i32", HANDLE, "buffer", "i32", HANDLE, HANDLE, "buffer"],
    result: "i32",
  },
  MPI_Ibcast: { parameters: ["buffer", "i32", HANDLE, "i32", HANDLE, "buffer"], result: "i32" },
  MPI_Test: { parameters: ["buffer", "buffer", HANDLE], result: "i32" },
  MPI_Abort: { parameters: [HANDLE, "i32"], result: "i32" },
  MPI_Finalize: { parameters: [], result: "i32" },
} as const satisfies Deno.ForeignLibraryInterface;

/** Constants of a library. */
export interface MpiHandles {
  readonly world: bigint;
  readonly float: bigint;
  readonly double: bigint;
  readonly byte: bigint;
  readonly sum: bigint;
  /** As a send buffer: take the values from the receive buffer. */
  readonly inPlace: bigint;
  readonly ignoreStatus: bigint;
}

export const MPICH_HANDLES: MpiHandles = {
  world: 0x44000000n,
  float: 0x4c00040an,
  double: 0x4c00080bn,
  byte: 0x4c00010dn,
  sum: 0x58000003n,
  inPlace: 0xffff_ffff_ffff_ffffn, // -1
  ignoreStatus: 1n,
};

/** Variables of Open MPI whose addresses are its handles. */
export const OPEN_MPI_SYMBOLS = {
  ompi_mpi_comm_world: { type: "pointer" },
  ompi_mpi_float: { type: "pointer" },
  ompi_mpi_double: { type: "pointer" },
  ompi_mpi_byte: { type: "pointer" },
  ompi_mpi_op_sum: { type: "pointer" },
} as const satisfies Deno.ForeignLibraryInterface;

/** Handles of Open MPI from the addresses of its variables. */
export function openMpiHandles(
  symbols: Deno.DynamicLibrary<typeof OPEN_MPI_SYMBOLS>["symbols"],
): MpiHandles {
  const address = (pointer: Deno.PointerValue) => BigInt(Deno.UnsafePointer.value(pointer));
  return {
    world: address(symbols.ompi_mpi_comm_world),
    float: address(symbols.ompi_mpi_float),
    double: address(symbols.ompi_mpi_double),
    byte: address(symbols.ompi_mpi_byte),
    sum: address(symbols.ompi_mpi_op_sum),
    inPlace: 1n,
    ignoreStatus: 0n,
  };
}
