/**
 * The functions of libcuda, NVRTC and cuBLASLt that this device calls, as FFI symbol tables.
 *
 * Data only; nothing is loaded here. Names are the exported ones, which the C headers hide behind
 * macros (`cuMemAlloc` is `cuMemAlloc_v2`). Handles and device addresses are `u64`: a device
 * address is no host pointer. Results of the functions come back through one-element typed arrays.
 *
 * None is marked optional. The newest came with CUDA 12.0, the oldest that is supported; a function
 * newer than that has to be optional, or older drivers could not be opened.
 */

/** A typed array that a call fills or reads. */
const OUT = "buffer";
/** A context, stream, event, module, function, graph or descriptor. */
const HANDLE = "u64";
/** An address in device memory. */
const DEVICE = "u64";
/** An address in host memory, as a number, since it may lie inside an arena or outside the heap. */
const HOST = "u64";
const SIZE = "usize";

/** The driver API, libcuda; every result is a CUresult. */
export const DRIVER_SYMBOLS = {
  cuInit: { parameters: ["u32"], result: "i32" },
  cuDriverGetVersion: { parameters: [OUT], result: "i32" },
  cuDeviceGetCount: { parameters: [OUT], result: "i32" },
  cuDeviceGet: { parameters: [OUT, "i32"], result: "i32" },
  cuDeviceGetName: { parameters: [OUT, "i32", "i32"], result: "i32" },
  cuDeviceGetAttribute: { parameters: [OUT, "i32", "i32"], result: "i32" },
  cuDevicePrimaryCtxRetain: { parameters: [OUT, "i32"], result: "i32" },
  cuDevicePrimaryCtxRelease_v2: { parameters: ["i32"], result: "i32" },
  cuCtxSetCurrent: { parameters: [HANDLE], result: "i32" },
  cuMemGetInfo_v2: { parameters: [OUT, OUT], result: "i32" },
  cuMemAlloc_v2: { parameters: [OUT, SIZE], result: "i32" },
  cuMemFree_v2: { parameters: [DEVICE], result: "i32" },
  cuMemHostAlloc: { parameters: [OUT, SIZE, "u32"], result: "i32" },
  cuMemFreeHost: { parameters: [HOST], result: "i32" },
  cuMemcpyDtoH_v2: { parameters: [OUT, DEVICE, SIZE], result: "i32" },
  cuMemcpyHtoDAsync_v2: { parameters: [DEVICE, "buffer", SIZE, HANDLE], result: "i32" },
  cuMemcpyDtoHAsync_v2: { parameters: [HOST, DEVICE, SIZE, HANDLE], result: "i32" },
  cuMemcpyDtoDAsync_v2: { parameters: [DEVICE, DEVICE, SIZE, HANDLE], result: "i32" },
  cuMemsetD8Async: { parameters: [DEVICE, "u8", SIZE, HANDLE], result: "i32" },
  cuStreamCreate: { parameters: [OUT, "u32"], result: "i32" },
  cuStreamDestroy_v2: { parameters: [HANDLE], result: "i32" },
  cuStreamSynchronize: { parameters: [HANDLE], result: "i32" },
  cuEventCreate: { parameters: [OUT, "u32"], result: "i32" },
  cuEventDestroy_v2: { parameters: [HANDLE], result: "i32" },
  cuEventRecord: { parameters: [HANDLE, HANDLE], result: "i32" },
  cuEventQuery: { parameters: [HANDLE], result: "i32" },
  cuEventSynchronize: { parameters: [HANDLE], result: "i32" },
  cuEventElapsedTime: { parameters: [OUT, HANDLE, HANDLE], result: "i32" },
  cuModuleLoadData: { parameters: [OUT, "buffer"], result: "i32" },
  cuModuleUnload: { parameters: [HANDLE], result: "i32" },
  cuModuleGetFunction: { parameters: [OUT, HANDLE, "buffer"], result: "i32" },
  // kernel, grid, block, dynamic shared memory, stream, argument array, none
  cuLaunchKernel: {
    parameters: [
      ...[HANDLE, "u32", "u32", "u32", "u32", "u32", "u32"] as const,
      ...["u32", HANDLE, HOST, HOST] as const,
    ],
    result: "i32",
  },
  cuStreamBeginCapture_v2: { parameters: [HANDLE, "i32"], result: "i32" },
  cuStreamEndCapture: { parameters: [HANDLE, OUT], result: "i32" },
  cuGraphInstantiateWithFlags: { parameters: [OUT, HANDLE, "u64"], result: "i32" },
  cuGraphLaunch: { parameters: [HANDLE, HANDLE], result: "i32" },
  cuGraphExecDestroy: { parameters: [HANDLE], result: "i32" },
  cuGraphDestroy: { parameters: [HANDLE], result: "i32" },
} as const;

/** The runtime compiler; results are nvrtcResults but for the text of one. */
export const NVRTC_SYMBOLS = {
  nvrtcVersion: { parameters: [OUT, OUT], result: "i32" },
  // program, source, name, headers, their texts, their names
  nvrtcCreateProgram: {
    parameters: [OUT, "buffer", "buffer", "i32", "buffer", "buffer"],
    result: "i32",
  },
  nvrtcCompileProgram: { parameters: [HANDLE, "i32", "buffer"], result: "i32" },
  nvrtcGetProgramLogSize: { parameters: [HANDLE, OUT], result: "i32" },
  nvrtcGetProgramLog: { parameters: [HANDLE, OUT], result: "i32" },
  nvrtcGetCUBINSize: { parameters: [HANDLE, OUT], result: "i32" },
  nvrtcGetCUBIN: { parameters: [HANDLE, OUT], result: "i32" },
  nvrtcDestroyProgram: { parameters: ["buffer"], result: "i32" },
} as const;

/** Matrix products; results are cublasStatus_t but for the version. */
export const CUBLASLT_SYMBOLS = {
  cublasLtGetVersion: { parameters: [], result: SIZE },
  cublasLtCreate: { parameters: [OUT], result: "i32" },
  cublasLtDestroy: { parameters: [HANDLE], result: "i32" },
  cublasLtMatmulDescCreate: { parameters: [OUT, "i32", "i32"], result: "i32" },
  cublasLtMatmulDescSetAttribute: { parameters: [HANDLE, "i32", "buffer", SIZE], result: "i32" },
  cublasLtMatmulDescDestroy: { parameters: [HANDLE], result: "i32" },
  cublasLtMatrixLayoutCreate: { parameters: [OUT, "i32", "u64", "u64", "i64"], result: "i32" },
  cublasLtMatrixLayoutDestroy: { parameters: [HANDLE], result: "i32" },
  cublasLtMatmulPreferenceCreate: { parameters: [OUT], result: "i32" },
  cublasLtMatmulPreferenceSetAttribute: {
    parameters: [HANDLE, "i32", "buffer", SIZE],
    result: "i32",
  },
  cublasLtMatmulPreferenceDestroy: { parameters: [HANDLE], result: "i32" },
  // library, product, layouts of A, B, C and D, preference, how many, results, found
  cublasLtMatmulAlgoGetHeuristic: {
    parameters: [
      ...[HANDLE, HANDLE, HANDLE, HANDLE, HANDLE, HANDLE, HANDLE] as const,
      ...["i32", OUT, OUT] as const,
    ],
    result: "i32",
  },
  // library, product, alpha, A, B, beta, C, D, algorithm, workspace, stream; each matrix with its layout
  cublasLtMatmul: {
    parameters: [
      ...[HANDLE, HANDLE, HOST, DEVICE, HANDLE, DEVICE, HANDLE, HOST] as const,
      ...[DEVICE, HANDLE, DEVICE, HANDLE, HOST, DEVICE, SIZE, HANDLE] as const,
    ],
    result: "i32",
  },
} as const;

/** The functions of a library that was opened, or what stands in for them in a test. */
export type SymbolsOf<T extends Deno.ForeignLibraryInterface> = Deno.DynamicLibrary<T>["symbols"];

/** Functions of libcuda. */
export type DriverSymbols = SymbolsOf<typeof DRIVER_SYMBOLS>;

/** Functions of NVRTC. */
export type NvrtcSymbols = SymbolsOf<typeof NVRTC_SYMBOLS>;

/** Functions of cuBLASLt. */
export type CublasLtSymbols = SymbolsOf<typeof CUBLASLT_SYMBOLS>;
