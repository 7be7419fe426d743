/** Opens the cuda device on the libraries of this machine. */
import { cacheFolder } from "../../base/cache_folder.ts";
import { withCache } from "./kernel_loader.ts";
import { CudaDevice, type CudaMachine } from "./device.ts";
import { countDevices, startDriver } from "./driver/driver.ts";
import { openLibrary } from "./driver/libraries.ts";
import { Nvrtc } from "./driver/nvrtc.ts";
import { CUBLASLT_SYMBOLS, DRIVER_SYMBOLS, NVRTC_SYMBOLS } from "./driver/symbols.ts";
import type { ComputeType } from "./memory.ts";
import { requireVerified } from "./verified.ts";

/**
 * Opens device number `ordinal` among those the driver shows.
 * @throws {EnvironmentError} when driver, device or library cannot be used, or the device has not passed
 * the bring-up and `unverified` does not say that it need not
 */
export function openCuda(
  ordinal: number,
  elements: ComputeType,
  { unverified = false }: { readonly unverified?: boolean } = {},
): CudaDevice {
  const machine = openMachine();
  const folder = `${cacheFolder((name) => Deno.env.get(name))}/cubin`;
  const cached = { ...machine, compiler: withCache(machine.compiler, folder) };
  const device = new CudaDevice(cached, { ordinal, elements });
  try {
    if (!unverified) requireVerified(device.place());
    return device;
  } catch (error) {
    device.close();
    throw error;
  }
}

/**
 * The libraries of this machine.
 * @throws {EnvironmentError} when the driver or the compiler cannot be used
 */
export function openMachine(): CudaMachine {
  const { symbols: driver } = openLibrary("libcuda", DRIVER_SYMBOLS);
  // A newer major version than the driver's may compile what it refuses.
  const newest = { maxMajor: Math.floor(startDriver(driver) / 1000) };
  return {
    driver,
    compiler: new Nvrtc(openLibrary("nvrtc", NVRTC_SYMBOLS, newest).symbols),
    products: () => openLibrary("cublasLt", CUBLASLT_SYMBOLS, newest).symbols,
  };
}

/** The libraries with their versions. @throws {EnvironmentError} when cuBLASLt cannot be opened */
export function describeMachine({ compiler, products }: CudaMachine): string {
  return `driver, NVRTC ${compiler.version}, cuBLASLt ${products().cublasLtGetVersion()}`;
}

/**
 * Devices that the driver shows to this process.
 * @throws {EnvironmentError} when there is no driver
 */
export function countCudaDevices(): number {
  const { symbols } = openLibrary("libcuda", DRIVER_SYMBOLS);
  startDriver(symbols);
  return countDevices(symbols);
}
