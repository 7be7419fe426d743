/**
 * Opens the cuda device on the libraries of this machine.
 *
 * The compiler is not needed once its kernels are in the cache: where NVRTC is missing, what its
 * last version compiled is used.
 */
import { cacheFolder } from "../../base/cache_folder.ts";
import { EnvironmentError } from "../../base/errors.ts";
import { CubinCache } from "./cubin_cache.ts";
import { CudaDevice, type CudaMachine, type CudaOptions } from "./device.ts";
import { checkDriver } from "./driver/errors.ts";
import type { KernelCompiler } from "./kernel_loader.ts";
import { openLibrary } from "./driver/libraries.ts";
import type { ElementType } from "./tensor.ts";
import { Nvrtc } from "./driver/nvrtc.ts";
import { readInt } from "./driver/results.ts";
import { CUBLASLT_SYMBOLS, DRIVER_SYMBOLS, NVRTC_SYMBOLS } from "./driver/symbols.ts";
import { autotuneRecords } from "./autotune.ts";

/**
 * Opens device number `ordinal` among those the driver shows.
 * @throws {EnvironmentError} when driver, device or library cannot be used
 */
export function openCuda(
  ordinal: number,
  elements: ElementType,
  options: CudaOptions = {},
): CudaDevice {
  const { machine, cache } = openMachine();
  const records = autotuneRecords();
  return new CudaDevice(machine, {
    wgmma: "autotune",
    ...options,
    ordinal,
    elements,
    cache,
    records,
  });
}

/**
 * The libraries of this machine, and where compiled kernels are kept.
 * @throws {EnvironmentError} when the driver or the compiler cannot be used
 */
export function openMachine(): { machine: CudaMachine; cache: CubinCache } {
  const { symbols: driver } = openLibrary("libcuda", DRIVER_SYMBOLS);
  const major = driverMajor(driver);
  const cache = new CubinCache(`${cacheFolder((name) => Deno.env.get(name))}/cubin`);
  const machine: CudaMachine = {
    driver,
    compiler: openCompiler(major, cache),
    products: () => openLibrary("cublasLt", CUBLASLT_SYMBOLS, { maxMajor: major }).symbols,
  };
  return { machine, cache };
}

/**
 * Devices that the driver shows to this process.
 * @throws {EnvironmentError} when there is no driver
 */
export function countCudaDevices(): number {
  const { symbols } = openLibrary("libcuda", DRIVER_SYMBOLS);
  checkDriver(symbols.cuInit(0), "start the NVIDIA driver");
  return readInt("count devices", (out) => symbols.cuDeviceGetCount(out));
}

/** A newer major version than the driver's may compile what it refuses. Opens no device. */
function driverMajor({ cuInit, cuDriverGetVersion }: CudaMachine["driver"]): number {
  checkDriver(cuInit(0), "start the NVIDIA driver");
  const version = readInt("read the driver's version", (out) => cuDriverGetVersion(out));
  return Math.floor(version / 1000);
}

function openCompiler(maxMajor: number, cache: CubinCache): KernelCompiler {
  try {
    const compiler = new Nvrtc(openLibrary("nvrtc", NVRTC_SYMBOLS, { maxMajor }).symbols);
    cache.keepVersion(compiler.version);
    return compiler;
  } catch (error) {
    const version = cache.lastVersion();
    if (version === undefined || !(error instanceof EnvironmentError)) throw error;
    return {
      version,
      compile: () => {
        throw error;
      },
    };
  }
}
