/**
 * A CUDA machine without a GPU: the real driver layer and the real kernels, run by this processor.
 *
 * For tests only, and slow. `emulatedMachine` gives the symbol tables of libcuda and cuBLASLt and a
 * compiler in the shape of `Nvrtc`; they belong together. Values are those of the kernels up to
 * rounding: what is checked is addresses, arguments, launch configs, barriers and order, not speed.
 */
import type { Cubin } from "../../core/runtime/cuda/driver/nvrtc.ts";
import type { CompileTarget, KernelSource } from "../../core/runtime/cuda/driver/nvrtc.ts";
import type { CublasLtSymbols, DriverSymbols } from "../../core/runtime/cuda/driver/symbols.ts";
import { compile, compilerVersion } from "./compiler.ts";
import { cublasLtSymbols } from "./cublaslt.ts";
import { driverSymbols } from "./driver.ts";
import { Memory } from "./memory.ts";
import { Streams } from "./streams.ts";

export { EMULATED_ARCHITECTURE } from "./driver.ts";
export { EmulatorError } from "./memory.ts";

/** Stand-ins for the libraries with which a device is opened. */
export interface EmulatedMachine {
  readonly driver: DriverSymbols;
  readonly products: CublasLtSymbols;
  readonly compiler: {
    readonly version: string;
    compile(source: KernelSource, target: CompileTarget): Cubin;
  };
  /** Bytes on the device that are allocated now. */
  usedBytes(): number;
}

/** Differences of a machine from the usual one. */
export interface MachineOptions {
  /** Device memory; 4 GiB unless told. */
  readonly memoryBytes?: number;
}

/** Returns whether this computer can emulate: Linux with g++ on a known processor. */
export function emulatorPresent(): boolean {
  const known = Deno.build.arch === "x86_64" || Deno.build.arch === "aarch64";
  return Deno.build.os === "linux" && known && compilerVersion() !== "";
}

/** A new machine with memory, streams and handles of its own. */
export function emulatedMachine(options: MachineOptions = {}): EmulatedMachine {
  const { memoryBytes = 4 * 2 ** 30 } = options;
  const memory = new Memory(memoryBytes);
  const streams = new Streams();
  return {
    driver: driverSymbols(memory, streams),
    products: cublasLtSymbols(memory, streams),
    compiler: { version: compilerVersion(), compile },
    usedBytes: () => memory.used,
  };
}
