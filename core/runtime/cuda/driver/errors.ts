/**
 * Result codes of libcuda, NVRTC and cuBLASLt as errors with the name of the code and a hint.
 *
 * After a fault inside a kernel every later call reports the same code, so the call named in the message
 * need not be the one that failed.
 */
import { EnvironmentError } from "../../../base/errors.ts";

/** A call into one of the CUDA libraries that failed. */
export class CudaError extends EnvironmentError {}

/** CUDA_ERROR_NOT_READY: handled by the caller, not an error. */
export const NOT_READY = 600;

const REPORT = "please report this with the command that was run";
const MEMORY = "use fewer rows at once, shorter texts or a smaller model, or close other programs";
const DRIVER = "install an NVIDIA driver for CUDA 12.0 or later, or restart after updating it";
const DEVICE = "check with `nvidia-smi` that a device is there and CUDA_VISIBLE_DEVICES shows it";
const KERNEL = "a kernel failed: please report this with the command that was run";
const IMAGE = "remove the folder of cached kernels, so that they are compiled for this device";
const SHARED = "another program may hold the device: `nvidia-smi` lists those that do";
const ALLOWED = "the driver or the container does not allow this on this device";

/** A name without its prefix, and a hint. */
type Meaning = readonly [name: string, hint: string];

/** Throws unless a call succeeded; `doing` completes "cannot …". @throws {CudaError} */
export type Check = (code: number, doing: string) => void;

/** The check of a library by the names of its codes. */
function checkOf(prefix: string, meanings: Readonly<Record<number, Meaning>>): Check {
  return (code, doing) => {
    if (code === 0) return;
    const [name, hint] = meanings[code] ?? ["", REPORT];
    const status = name ? `${prefix}_${name}` : prefix;
    throw new CudaError(`cannot ${doing}: ${status} (${code})`, { hints: [hint] });
  };
}

/** Of the driver: CUresult, as far as our calls can return them. */
export const checkDriver: Check = checkOf("CUDA_ERROR", {
  1: ["INVALID_VALUE", REPORT],
  2: ["OUT_OF_MEMORY", MEMORY],
  3: ["NOT_INITIALIZED", DRIVER],
  4: ["DEINITIALIZED", DRIVER],
  34: ["STUB_LIBRARY", DRIVER],
  36: ["CALL_REQUIRES_NEWER_DRIVER", DRIVER],
  46: ["DEVICE_UNAVAILABLE", SHARED],
  100: ["NO_DEVICE", DEVICE],
  101: ["INVALID_DEVICE", DEVICE],
  200: ["INVALID_IMAGE", IMAGE],
  201: ["INVALID_CONTEXT", REPORT],
  209: ["NO_BINARY_FOR_GPU", IMAGE],
  214: ["ECC_UNCORRECTABLE", "the device's memory is faulty: `nvidia-smi -q` shows its counters"],
  218: ["INVALID_PTX", IMAGE],
  222: ["UNSUPPORTED_PTX_VERSION", DRIVER],
  400: ["INVALID_HANDLE", REPORT],
  500: ["NOT_FOUND", IMAGE],
  700: ["ILLEGAL_ADDRESS", KERNEL],
  701: ["LAUNCH_OUT_OF_RESOURCES", "a kernel needs more registers than there are: please report"],
  702: ["LAUNCH_TIMEOUT", SHARED],
  715: ["ILLEGAL_INSTRUCTION", KERNEL],
  716: ["MISALIGNED_ADDRESS", KERNEL],
  719: ["LAUNCH_FAILED", KERNEL],
  800: ["NOT_PERMITTED", ALLOWED],
  801: ["NOT_SUPPORTED", ALLOWED],
  802: ["SYSTEM_NOT_READY", DRIVER],
  803: ["SYSTEM_DRIVER_MISMATCH", DRIVER],
  804: ["COMPAT_NOT_SUPPORTED_ON_DEVICE", DRIVER],
  900: ["STREAM_CAPTURE_UNSUPPORTED", REPORT],
  901: ["STREAM_CAPTURE_INVALIDATED", REPORT],
  904: ["STREAM_CAPTURE_UNJOINED", REPORT],
  999: ["UNKNOWN", DRIVER],
});

/** Of NVRTC. */
export const checkNvrtc: Check = checkOf("NVRTC_ERROR", {
  1: ["OUT_OF_MEMORY", MEMORY],
  5: [
    "INVALID_OPTION",
    "this NVRTC may be too old for this device: install the one of the driver's CUDA version",
  ],
  6: ["COMPILATION", REPORT],
  7: [
    "BUILTIN_OPERATION_FAILURE",
    "libnvrtc-builtins must lie beside libnvrtc: reinstall the package that has them",
  ],
  11: ["INTERNAL_ERROR", REPORT],
});

/** Of cuBLASLt. */
export const checkCublas: Check = checkOf("CUBLAS_STATUS", {
  1: ["NOT_INITIALIZED", DRIVER],
  3: ["ALLOC_FAILED", MEMORY],
  7: ["INVALID_VALUE", REPORT],
  8: ["ARCH_MISMATCH", "cuBLASLt is of another generation than the device: install the driver's"],
  13: ["EXECUTION_FAILED", KERNEL],
  14: ["INTERNAL_ERROR", REPORT],
  15: ["NOT_SUPPORTED", REPORT],
});

/** Returns the handle, address or size that a call writes. @throws {CudaError} */
type Read = (doing: string, call: (out: BigUint64Array<ArrayBuffer>) => number) => bigint;

function readerOf(check: Check): Read {
  return (doing, call) => {
    const out = new BigUint64Array(1);
    check(call(out), doing);
    return out[0]!;
  };
}

export const readDriver: Read = readerOf(checkDriver);
export const readNvrtc: Read = readerOf(checkNvrtc);
export const readCublas: Read = readerOf(checkCublas);
