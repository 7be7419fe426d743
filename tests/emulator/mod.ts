/**
 * A CUDA machine without a GPU: the real driver layer and the real kernels, run by this processor.
 *
 * For tests only, and slow. `emulatedMachine` gives the symbol tables of libcuda and cuBLASLt and a
 * compiler in the shape of `Nvrtc`; they belong together. Values are those of the kernels up to
 * rounding: what is checked is addresses, arguments, launch configs, barriers and order, not speed.
 */
import type { CudaMachine } from "../../core/runtime/cuda/device.ts";
import { compile, compilerVersion } from "./compiler.ts";
import { cublasLtSymbols } from "./cublaslt.ts";
import { driverSymbols } from "./driver.ts";
import { Memory } from "./memory.ts";
import { Streams } from "./streams.ts";

export { EMULATED_ARCHITECTURE } from "./driver.ts";
export { EmulatorError } from "./memory.ts";

/** Stand-ins for the libraries with which a device is opened. */
export interface EmulatedMachine extends CudaMachine {
  /** Bytes on the device that are allocated now. */
  usedBytes(): number;
}

/** Returns whether this computer can emulate: Linux with g++ on a known processor. */
export function emulatorPresent(): boolean {
  const known = Deno.build.arch === "x86_64" || Deno.build.arch === "aarch64";
  return Deno.build.os === "linux" && known && compilerVersion() !== "";
}

/** A new machine with memory, streams and handles of its own; 4 GiB unless told. */
export function emulatedMachine({ memoryBytes = 4 * 2 ** 30 } = {}): EmulatedMachine {
  const memory = new Memory(memoryBytes);
  const streams = new Streams();
  const products = cublasLtSymbols(memory, streams);
  return {
    driver: driverSymbols(memory, streams),
    products: () => products,
    compiler: { version: compilerVersion(), compile },
    usedBytes: () => memory.used,
  };
}
