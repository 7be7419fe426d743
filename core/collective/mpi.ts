/**
 * MPI by foreign function calls: a group of hosts in a job that an MPI launcher started.
 *
 * Every exchange has the same time limit. Large ones poll without a pause, which moves them on; they come
 * after a `sum`, which lets signals arrive, so that all ranks are there and none waits long. The count of an
 * MPI call has 31 bits, so long arrays go in chunks.
 */
import { loaderReason } from "../base/c_string.ts";
import { EnvironmentError } from "../base/errors.ts";
import type { HostArray } from "../runtime/device.ts";
import { chunksOf } from "./collective.ts";
import type { Env, Launch } from "./launch.ts";
import {
  MPI_LIBRARIES,
  MPI_SYMBOLS,
  MPICH_HANDLES,
  type MpiFamily,
  type MpiHandles,
  OPEN_MPI_SYMBOLS,
  openMpiHandles,
} from "./mpi_abi.ts";
import { type FloatArray, NoAnswerError, type ProcessGroup } from "./process_group.ts";

type MpiFunctions = Deno.DynamicLibrary<typeof MPI_SYMBOLS>["symbols"];

/** A library that was opened. */
export interface MpiLibrary {
  readonly family: MpiFamily;
  readonly path: string;
  readonly symbols: MpiFunctions;
  readonly handles: MpiHandles;
}

/** Most elements of one call, and of the buffer that slices are packed into. */
const MOST_ELEMENTS = 2 ** 28, PACKED_ELEMENTS = 2 ** 22;

/** A wait is a loop at first; then the event loop gets its turns. */
const SPIN_MS = 10;

const THREAD_MULTIPLE = 3;

/** Longest text of MPI_Get_library_version, of either kind. */
const VERSION_BYTES = 8192;

/**
 * Opens the MPI library of PARSCALE_MPI, or the first that is installed, those of the launcher's kind before
 * others; nothing is initialized.
 * @throws {EnvironmentError} with everything that was tried
 */
export function openMpiLibrary(env: Env, launch: Launch | undefined): MpiLibrary {
  const families: MpiFamily[] = ["Open MPI", "MPICH"];
  if (launch?.launcher === "PMI") families.reverse();
  const named = env("PARSCALE_MPI");
  const paths = named ? [named] : families.flatMap((family) => MPI_LIBRARIES[family]);
  const tried: string[] = [];
  for (const path of paths) {
    try {
      const { symbols } = Deno.dlopen(path, MPI_SYMBOLS);
      const variables = openMpiVariables(path);
      return variables
        ? { family: "Open MPI", path, symbols, handles: openMpiHandles(variables) }
        : { family: "MPICH", path, symbols, handles: MPICH_HANDLES };
    } catch (error) {
      tried.push(`${path} (${loaderReason(path, error)})`);
    }
  }
  throw new EnvironmentError(`cannot load an MPI library: tried ${tried.join(", ")}`, {
    hints: [
      "install the library of the launcher (Debian: libopenmpi3 for Open MPI, libmpich12 for " +
      "MPICH), or name it in PARSCALE_MPI",
    ],
  });
}

function openMpiVariables(path: string) {
  try {
    return Deno.dlopen(path, OPEN_MPI_SYMBOLS).symbols;
  } catch {
    return undefined; // a library of the other kind
  }
}

/** First line of what a library says of itself; may be called before MPI is initialized. */
export function mpiVersion({ symbols }: MpiLibrary): string {
  const text = new Uint8Array(VERSION_BYTES), length = new Int32Array(1);
  symbols.MPI_Get_library_version(text, length);
  const line = new TextDecoder().decode(text.subarray(0, length[0])).split("\n")[0]!;
  return line.replace(/\0.*/, "").replace(/[,\s]+/g, " ").trim();
}

/** Returns whether this process has joined its ranks. */
export function isInitialized({ symbols }: MpiLibrary): boolean {
  const flag = new Int32Array(1);
  check(symbols.MPI_Initialized(flag), "ask whether MPI is initialized");
  return flag[0] !== 0;
}

export class MpiGroup implements ProcessGroup<HostArray> {
  readonly rank: number;
  readonly world: number;
  readonly #mpi: MpiFunctions;
  readonly #handles: MpiHandles;
  readonly #timeoutMs: number;
  readonly #most: number;

  /**
   * Initializes MPI, which waits for the other ranks to do the same.
   * @throws {EnvironmentError} when the launcher is not that of the library
   */
  constructor(
    { symbols, handles, path, family }: MpiLibrary,
    launch: Launch | undefined,
    { timeoutMs = Infinity, mostElements = MOST_ELEMENTS }: {
      timeoutMs?: number;
      /** Elements of one call. */
      mostElements?: number;
    } = {},
  ) {
    this.#mpi = symbols;
    this.#handles = handles;
    this.#timeoutMs = timeoutMs;
    this.#most = mostElements;
    if (family === "Open MPI" && launch?.launcher === "Slurm") {
      // It would end the process with a page of its own.
      throw new EnvironmentError("srun started this process without PMIx, which Open MPI needs", {
        hints: ["pass --mpi=pmix to srun, or --mpi=pmi2 where MPICH is installed"],
      });
    }
    const granted = new Int32Array(1);
    check(symbols.MPI_Init_thread(0n, 0n, THREAD_MULTIPLE, granted), "initialize MPI");
    this.rank = this.#number((out) => symbols.MPI_Comm_rank(handles.world, out));
    this.world = this.#number((out) => symbols.MPI_Comm_size(handles.world, out));
    const expected = launch?.world ?? 1;
    if (this.world === expected) return;
    // Several jobs of one rank each would all write to the same folder.
    throw new EnvironmentError(
      `${launch?.launcher ?? "no launcher"} started ${expected} ranks, but ${family} sees ` +
        `${this.world}: "${path}" is not the library of this launcher`,
      {
        hints: [
          "with srun, pass --mpi=pmix for Open MPI or --mpi=pmi2 for MPICH",
          "name the launcher's library in PARSCALE_MPI, such as libmpi.so.40 or libmpich.so.12",
        ],
      },
    );
  }

  async allReduce(data: FloatArray): Promise<void> {
    const { world, inPlace, sum } = this.#handles;
    for (const { start, count } of chunksOf(data.length, this.#most)) {
      const part = data.subarray(start, start + count), type = this.#typeOf(data);
      await this.#exchange(
        "add up over all ranks",
        (request) => this.#mpi.MPI_Iallreduce(inPlace, part, count, type, sum, world, request),
      );
    }
  }

  async reduceScatter(data: FloatArray): Promise<void> {
    const size = data.length / this.world;
    const packing = Math.min(PACKED_ELEMENTS, this.#most);
    const most = Math.max(1, Math.floor(packing / this.world));
    const Kind = data.constructor as Float32ArrayConstructor;
    const packed = new Kind(this.world * Math.min(most, size)) as FloatArray;
    const { world, sum } = this.#handles, type = this.#typeOf(data);
    for (const { start, count } of chunksOf(size, most)) {
      for (let rank = 0; rank < this.world; rank++) {
        const from = rank * size + start;
        packed.set(data.subarray(from, from + count), rank * count);
      }
      const own = this.rank * size + start, result = data.subarray(own, own + count);
      const begin = this.#mpi.MPI_Ireduce_scatter_block;
      await this.#exchange(
        "add up slices over all ranks",
        (request) => begin(packed, result, count, type, sum, world, request),
      );
    }
  }

  async allGather(data: FloatArray): Promise<void> {
    const size = data.length / this.world;
    if (data.length > this.#most) {
      for (let root = 0; root < this.world; root++) {
        await this.broadcast(data.subarray(root * size, (root + 1) * size), root);
      }
      return;
    }
    const { world, inPlace } = this.#handles, type = this.#typeOf(data);
    await this.#exchange(
      "collect slices",
      (request) => this.#mpi.MPI_Iallgather(inPlace, 0, type, data, size, type, world, request),
    );
  }

  async broadcast(data: HostArray, root: number): Promise<void> {
    const bytes = new Uint8Array(data.buffer as ArrayBuffer, data.byteOffset, data.byteLength);
    const { world, byte } = this.#handles;
    for (const { start, count } of chunksOf(bytes.length, this.#most)) {
      const part = bytes.subarray(start, start + count);
      await this.#exchange(
        "broadcast",
        (request) => this.#mpi.MPI_Ibcast(part, count, byte, root, world, request),
      );
    }
  }

  sum(values: readonly number[]): Promise<number[]> {
    return this.#sum(values, this.#timeoutMs);
  }

  /** However long it takes: the first rank of a machine may tokenize data meanwhile. */
  async barrier(): Promise<void> {
    await this.#sum([0], Infinity);
  }

  async #sum(values: readonly number[], limitMs: number): Promise<number[]> {
    const data = Float64Array.from(values);
    const { world, double, inPlace, sum } = this.#handles;
    const start = this.#mpi.MPI_Iallreduce;
    await this.#exchange(
      "add up over all ranks",
      (request) => start(inPlace, data, data.length, double, sum, world, request),
      { limitMs, spinMs: SPIN_MS },
    );
    return Array.from(data);
  }

  /** Starts an exchange and waits for it, for at most `limitMs`; after `spinMs` signals may arrive. */
  async #exchange(
    doing: string,
    start: (request: BigUint64Array<ArrayBuffer>) => number,
    { limitMs = this.#timeoutMs, spinMs = Infinity } = {},
  ): Promise<void> {
    const request = new BigUint64Array(1), done = new Int32Array(1);
    check(start(request), doing);
    const began = performance.now();
    for (;;) {
      check(this.#mpi.MPI_Test(request, done, this.#handles.ignoreStatus), doing);
      if (done[0]) return;
      const waited = performance.now() - began;
      if (waited > limitMs) throw new NoAnswerError(this.rank, this.world, waited);
      if (waited > spinMs) await new Promise((resolve) => setTimeout(resolve));
    }
  }

  abort(code: number): void {
    this.#mpi.MPI_Abort(this.#handles.world, code);
  }

  close(): void {
    check(this.#mpi.MPI_Finalize(), "end MPI");
  }

  #typeOf(data: FloatArray): bigint {
    return data instanceof Float64Array ? this.#handles.double : this.#handles.float;
  }

  #number(call: (out: Int32Array<ArrayBuffer>) => number): number {
    const out = new Int32Array(1);
    check(call(out), "ask MPI for its ranks");
    return out[0]!;
  }
}

/** By default MPI ends the job at an error; this is for libraries that are told not to. */
function check(code: number, doing: string): void {
  if (code !== 0) throw new EnvironmentError(`cannot ${doing}: MPI error ${code}`);
}
