/**
 * Result codes of libcuda, NVRTC and cuBLASLt as errors with a name and a remedy.
 *
 * Takes a code and what was being done, as the rest of a sentence that begins with "cannot";
 * returns nothing, or a thrown `CudaError`. After a fault inside a kernel every later call reports
 * the same code, so the call named in the message need not be the guilty one.
 */
import { EnvironmentError } from "../../../base/errors.ts";

/** A call into one of the CUDA libraries that failed. */
export class CudaError extends EnvironmentError {
  /** As the library numbers it. */
  readonly code: number;
  /** As the library's header names it. */
  readonly status: string;

  /** Builds an error for a call that returned `code`. */
  constructor(
    message: string,
    { code, status, hints }: { code: number; status: string; hints: readonly string[] },
  ) {
    super(message, { hints });
    [this.code, this.status] = [code, status];
  }
}

/** Codes that callers handle instead of reporting. */
export const NOT_READY = 600;
/** There is a driver but no device that this process may use. */
export const NO_DEVICE = 100;

/** CUresult, without `CUDA_ERROR_`. */
const DRIVER_NAMES = `
  1 INVALID_VALUE, 2 OUT_OF_MEMORY, 3 NOT_INITIALIZED, 4 DEINITIALIZED, 5 PROFILER_DISABLED,
  6 PROFILER_NOT_INITIALIZED, 7 PROFILER_ALREADY_STARTED, 8 PROFILER_ALREADY_STOPPED,
  34 STUB_LIBRARY, 36 CALL_REQUIRES_NEWER_DRIVER, 46 DEVICE_UNAVAILABLE, 100 NO_DEVICE,
  101 INVALID_DEVICE, 102 DEVICE_NOT_LICENSED, 200 INVALID_IMAGE, 201 INVALID_CONTEXT,
  202 CONTEXT_ALREADY_CURRENT, 205 MAP_FAILED, 206 UNMAP_FAILED, 207 ARRAY_IS_MAPPED,
  208 ALREADY_MAPPED, 209 NO_BINARY_FOR_GPU, 210 ALREADY_ACQUIRED, 211 NOT_MAPPED,
  212 NOT_MAPPED_AS_ARRAY, 213 NOT_MAPPED_AS_POINTER, 214 ECC_UNCORRECTABLE, 215 UNSUPPORTED_LIMIT,
  216 CONTEXT_ALREADY_IN_USE, 217 PEER_ACCESS_UNSUPPORTED, 218 INVALID_PTX,
  219 INVALID_GRAPHICS_CONTEXT, 220 NVLINK_UNCORRECTABLE, 221 JIT_COMPILER_NOT_FOUND,
  222 UNSUPPORTED_PTX_VERSION, 223 JIT_COMPILATION_DISABLED, 224 UNSUPPORTED_EXEC_AFFINITY,
  225 UNSUPPORTED_DEVSIDE_SYNC, 226 CONTAINED, 300 INVALID_SOURCE, 301 FILE_NOT_FOUND,
  302 SHARED_OBJECT_SYMBOL_NOT_FOUND, 303 SHARED_OBJECT_INIT_FAILED, 304 OPERATING_SYSTEM,
  400 INVALID_HANDLE, 401 ILLEGAL_STATE, 402 LOSSY_QUERY, 500 NOT_FOUND, 600 NOT_READY,
  700 ILLEGAL_ADDRESS, 701 LAUNCH_OUT_OF_RESOURCES, 702 LAUNCH_TIMEOUT,
  703 LAUNCH_INCOMPATIBLE_TEXTURING, 704 PEER_ACCESS_ALREADY_ENABLED, 705 PEER_ACCESS_NOT_ENABLED,
  708 PRIMARY_CONTEXT_ACTIVE, 709 CONTEXT_IS_DESTROYED, 710 ASSERT, 711 TOO_MANY_PEERS,
  712 HOST_MEMORY_ALREADY_REGISTERED, 713 HOST_MEMORY_NOT_REGISTERED, 714 HARDWARE_STACK_ERROR,
  715 ILLEGAL_INSTRUCTION, 716 MISALIGNED_ADDRESS, 717 INVALID_ADDRESS_SPACE, 718 INVALID_PC,
  719 LAUNCH_FAILED, 720 COOPERATIVE_LAUNCH_TOO_LARGE, 721 TENSOR_MEMORY_LEAK, 800 NOT_PERMITTED,
  801 NOT_SUPPORTED, 802 SYSTEM_NOT_READY, 803 SYSTEM_DRIVER_MISMATCH,
  804 COMPAT_NOT_SUPPORTED_ON_DEVICE, 805 MPS_CONNECTION_FAILED, 806 MPS_RPC_FAILURE,
  807 MPS_SERVER_NOT_READY, 808 MPS_MAX_CLIENTS_REACHED, 809 MPS_MAX_CONNECTIONS_REACHED,
  810 MPS_CLIENT_TERMINATED, 811 CDP_NOT_SUPPORTED, 812 CDP_VERSION_MISMATCH,
  900 STREAM_CAPTURE_UNSUPPORTED, 901 STREAM_CAPTURE_INVALIDATED, 902 STREAM_CAPTURE_MERGE,
  903 STREAM_CAPTURE_UNMATCHED, 904 STREAM_CAPTURE_UNJOINED, 905 STREAM_CAPTURE_ISOLATION,
  906 STREAM_CAPTURE_IMPLICIT, 907 CAPTURED_EVENT, 908 STREAM_CAPTURE_WRONG_THREAD, 909 TIMEOUT,
  910 GRAPH_EXEC_UPDATE_FAILURE, 911 EXTERNAL_DEVICE, 912 INVALID_CLUSTER_SIZE,
  913 FUNCTION_NOT_LOADED, 914 INVALID_RESOURCE_TYPE, 915 INVALID_RESOURCE_CONFIGURATION,
  916 KEY_ROTATION, 999 UNKNOWN,`;

const MEMORY = "use fewer rows at once, shorter texts or a smaller model, or close other programs";
const DRIVER = "install an NVIDIA driver for CUDA 12.0 or later, or restart after updating it";
const KERNEL = "a kernel went wrong: please report this with the command that was run";
const IMAGE = "remove the folder of cached kernels, so that they are compiled for this device";
const CAPTURE = "a step of a graph did what graphs cannot hold: please report this";
const SHARED = "another program may hold the device: `nvidia-smi` lists those that do";
const REPORT = "please report this with the command that was run";

/** Ranges of CUresult, both ends included, and what to do about them. */
const DRIVER_HINTS: readonly (readonly [first: number, last: number, hint: string])[] = [
  [2, 2, MEMORY],
  [3, 4, DRIVER],
  [34, 36, DRIVER],
  [46, 46, SHARED],
  [100, 102, "check with `nvidia-smi` that a device is there and CUDA_VISIBLE_DEVICES shows it"],
  [200, 200, IMAGE],
  [209, 209, IMAGE],
  [214, 214, "the device's memory is faulty: `nvidia-smi -q` shows its counters"],
  [218, 218, IMAGE],
  [220, 220, "the link between devices is faulty: `nvidia-smi nvlink -e` shows its counters"],
  [222, 222, DRIVER],
  [700, 700, KERNEL],
  [701, 701, "a kernel needs more registers or shared memory than there are: please report this"],
  [702, 702, SHARED],
  [710, 710, KERNEL],
  [714, 721, KERNEL],
  [800, 801, "the driver or the container does not allow this on this device"],
  [802, 804, DRIVER],
  [805, 810, "the shared-device service (MPS) does not answer: restart it"],
  [900, 909, CAPTURE],
  [910, 910, CAPTURE],
  [999, 999, DRIVER],
];

const NVRTC_NAMES = [
  "SUCCESS",
  "ERROR_OUT_OF_MEMORY",
  "ERROR_PROGRAM_CREATION_FAILURE",
  "ERROR_INVALID_INPUT",
  "ERROR_INVALID_PROGRAM",
  "ERROR_INVALID_OPTION",
  "ERROR_COMPILATION",
  "ERROR_BUILTIN_OPERATION_FAILURE",
  "ERROR_NO_NAME_EXPRESSIONS_AFTER_COMPILATION",
  "ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION",
  "ERROR_NAME_EXPRESSION_NOT_VALID",
  "ERROR_INTERNAL_ERROR",
] as const;

const NVRTC_HINTS: Readonly<Record<number, string>> = {
  1: MEMORY,
  5: "this NVRTC may be too old for this device: install the one of the driver's CUDA version",
  7: "libnvrtc-builtins must lie beside libnvrtc: install nvidia-cuda-nvrtc again",
};

const CUBLAS_NAMES: Readonly<Record<number, string>> = {
  1: "NOT_INITIALIZED",
  3: "ALLOC_FAILED",
  7: "INVALID_VALUE",
  8: "ARCH_MISMATCH",
  11: "MAPPING_ERROR",
  13: "EXECUTION_FAILED",
  14: "INTERNAL_ERROR",
  15: "NOT_SUPPORTED",
  16: "LICENSE_ERROR",
};

const CUBLAS_HINTS: Readonly<Record<number, string>> = {
  1: DRIVER,
  3: MEMORY,
  8: "cuBLASLt is of another generation than the device: install that of the driver's version",
  13: KERNEL,
};

/** Name of a CUresult as the header has it. */
export function driverStatus(code: number): string {
  const name = new RegExp(`(?<!\\d)${code} (\\w+)`).exec(DRIVER_NAMES)?.[1];
  return name ? `CUDA_ERROR_${name}` : "an unknown CUresult";
}

/**
 * Throws unless a driver call succeeded; `doing` completes "cannot …".
 * @throws {CudaError}
 */
export function checkDriver(code: number, doing: string): void {
  if (code === 0) return;
  const hint = DRIVER_HINTS.find(([first, last]) => first <= code && code <= last)?.[2] ?? REPORT;
  fail(doing, { code, status: driverStatus(code), hint });
}

/**
 * Throws unless an NVRTC call succeeded; `doing` completes "cannot …".
 * @throws {CudaError}
 */
export function checkNvrtc(code: number, doing: string): void {
  if (code === 0) return;
  const status = `NVRTC_${NVRTC_NAMES[code] ?? "ERROR"}`;
  fail(doing, { code, status, hint: NVRTC_HINTS[code] ?? REPORT });
}

/**
 * Throws unless a cuBLASLt call succeeded; `doing` completes "cannot …".
 * @throws {CudaError}
 */
export function checkCublas(code: number, doing: string): void {
  if (code === 0) return;
  const status = `CUBLAS_STATUS_${CUBLAS_NAMES[code] ?? "UNKNOWN"}`;
  fail(doing, { code, status, hint: CUBLAS_HINTS[code] ?? REPORT });
}

function fail(doing: string, about: { code: number; status: string; hint: string }): never {
  const { code, status, hint } = about;
  const message = `cannot ${doing}: ${status} (${code})`;
  throw new CudaError(message, { code, status, hints: [hint] });
}
