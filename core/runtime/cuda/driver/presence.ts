/**
 * Which CUDA libraries this machine has, for `doctor`; nothing is run on a device.
 *
 * Returns one line per library, found or not. cuBLASLt is only looked for where the driver is
 * there, since loading it takes up to a second.
 */
import { Driver, formatVersion } from "./driver.ts";
import { type LibraryName, openLibrary } from "./libraries.ts";
import { Nvrtc } from "./nvrtc.ts";
import { CUBLASLT_SYMBOLS, DRIVER_SYMBOLS, NVRTC_SYMBOLS } from "./symbols.ts";

/** What was found of one library. */
export interface Presence {
  readonly library: LibraryName;
  readonly found: boolean;
  /** Its version, or why it cannot be used. */
  readonly about: string;
  readonly hints: readonly string[];
}

/** Looks for the driver with its first device, the compiler and the matrix library, in this order. */
export function findCudaLibraries(): Presence[] {
  let major: number | undefined;
  const driver = look("libcuda", () => {
    const { symbols } = openLibrary("libcuda", DRIVER_SYMBOLS);
    const opened = new Driver(symbols);
    try {
      major = Math.floor(opened.version / 1000);
      const info = opened.deviceInfo();
      const capability = `${info.major}.${info.minor}`;
      return `CUDA ${formatVersion(opened.version)} with ${info.name}, capability ${capability}`;
    } finally {
      opened.close();
    }
  });
  const compiler = look("nvrtc", () => {
    const { symbols } = openLibrary("nvrtc", NVRTC_SYMBOLS, { maxMajor: major });
    return new Nvrtc(symbols).version;
  });
  if (!driver.found) return [driver, compiler];
  const products = look("cublasLt", () => {
    const { symbols } = openLibrary("cublasLt", CUBLASLT_SYMBOLS, { maxMajor: major });
    return String(symbols.cublasLtGetVersion());
  });
  return [driver, compiler, products];
}

function look(library: LibraryName, open: () => string): Presence {
  try {
    return { library, found: true, about: open(), hints: [] };
  } catch (error) {
    const { message, hints = [] } = error as Error & { hints?: readonly string[] };
    return { library, found: false, about: message, hints };
  }
}
