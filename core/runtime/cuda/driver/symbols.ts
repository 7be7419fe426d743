/**
 * The functions of libcuda, NVRTC and cuBLASLt that this device calls, as FFI symbol tables.
 *
 * Data only; nothing is loaded here. Names are the exported ones, which the C headers
 * rename (`cuMemAlloc` is `cuMemAlloc_v2`). Handles and device addresses are `u64`: a device
 * address is not a host pointer. Results of the functions come back through one-element typed arrays.
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

/** A function that returns a result code. */
const coded = <const P extends readonly Deno.NativeType[]>(...parameters: P) =>
  ({ parameters, result: "i32" }) as const;

/** The driver API, libcuda. */
export const DRIVER_SYMBOLS = {
  cuInit: coded("u32"),
  cuDriverGetVersion: coded(OUT),
  cuDeviceGetCount: coded(OUT),
  cuDeviceGet: coded(OUT, "i32"),
  cuDeviceGetName: coded(OUT, "i32", "i32"),
  cuDeviceGetAttribute: coded(OUT, "i32", "i32"),
  cuDevicePrimaryCtxRetain: coded(OUT, "i32"),
  cuDevicePrimaryCtxRelease_v2: coded("i32"),
  cuCtxSetCurrent: coded(HANDLE),
  cuMemGetInfo_v2: coded(OUT, OUT),
  cuMemAlloc_v2: coded(OUT, SIZE),
  cuMemFree_v2: coded(DEVICE),
  cuMemHostAlloc: coded(OUT, SIZE, "u32"),
  cuMemFreeHost: coded(HOST),
  cuMemcpyDtoH_v2: coded(OUT, DEVICE, SIZE),
  cuMemcpyHtoDAsync_v2: coded(DEVICE, "buffer", SIZE, HANDLE),
  cuMemcpyDtoHAsync_v2: coded(HOST, DEVICE, SIZE, HANDLE),
  cuMemcpyDtoDAsync_v2: coded(DEVICE, DEVICE, SIZE, HANDLE),
  cuMemsetD8Async: coded(DEVICE, "u8", SIZE, HANDLE),
  cuStreamCreate: coded(OUT, "u32"),
  cuStreamDestroy_v2: coded(HANDLE),
  cuStreamSynchronize: coded(HANDLE),
  cuEventCreate: coded(OUT, "u32"),
  cuEventDestroy_v2: coded(HANDLE),
  cuEventRecord: coded(HANDLE, HANDLE),
  cuEventQuery: coded(HANDLE),
  cuEventSynchronize: coded(HANDLE),
  cuEventElapsedTime: coded(OUT, HANDLE, HANDLE),
  cuModuleLoadData: coded(OUT, "buffer"),
  cuModuleUnload: coded(HANDLE),
  cuModuleGetFunction: coded(OUT, HANDLE, "buffer"),
  // kernel, grid, block, dynamic shared memory, stream, argument array, none
  cuLaunchKernel: coded(
    ...[HANDLE, "u32", "u32", "u32", "u32", "u32", "u32"] as const,
    ...["u32", HANDLE, HOST, HOST] as const,
  ),
  cuStreamBeginCapture_v2: coded(HANDLE, "i32"),
  cuStreamEndCapture: coded(HANDLE, OUT),
  cuGraphInstantiateWithFlags: coded(OUT, HANDLE, "u64"),
  cuGraphLaunch: coded(HANDLE, HANDLE),
  cuGraphExecDestroy: coded(HANDLE),
  cuGraphDestroy: coded(HANDLE),
} as const;

/** The runtime compiler. */
export const NVRTC_SYMBOLS = {
  nvrtcVersion: coded(OUT, OUT),
  // program, source, name, headers, their texts, their names
  nvrtcCreateProgram: coded(OUT, "buffer", "buffer", "i32", "buffer", "buffer"),
  nvrtcCompileProgram: coded(HANDLE, "i32", "buffer"),
  nvrtcGetProgramLogSize: coded(HANDLE, OUT),
  nvrtcGetProgramLog: coded(HANDLE, OUT),
  nvrtcGetCUBINSize: coded(HANDLE, OUT),
  nvrtcGetCUBIN: coded(HANDLE, OUT),
  nvrtcDestroyProgram: coded("buffer"),
} as const;

/** Matrix products. */
export const CUBLASLT_SYMBOLS = {
  cublasLtGetVersion: { parameters: [], result: SIZE },
  cublasLtCreate: coded(OUT),
  cublasLtDestroy: coded(HANDLE),
  cublasLtMatmulDescCreate: coded(OUT, "i32", "i32"),
  cublasLtMatmulDescSetAttribute: coded(HANDLE, "i32", "buffer", SIZE),
  cublasLtMatmulDescDestroy: coded(HANDLE),
  cublasLtMatrixLayoutCreate: coded(OUT, "i32", "u64", "u64", "i64"),
  cublasLtMatrixLayoutDestroy: coded(HANDLE),
  cublasLtMatmulPreferenceCreate: coded(OUT),
  cublasLtMatmulPreferenceSetAttribute: coded(HANDLE, "i32", "buffer", SIZE),
  cublasLtMatmulPreferenceDestroy: coded(HANDLE),
  // library, product, layouts of A, B, C and D, preference, how many, results, found
  cublasLtMatmulAlgoGetHeuristic: coded(
    ...[HANDLE, HANDLE, HANDLE, HANDLE, HANDLE, HANDLE, HANDLE] as const,
    ...["i32", OUT, OUT] as const,
  ),
  // library, product, alpha, A, B, beta, C, D, algorithm, workspace, stream; each matrix with its layout
  cublasLtMatmul: coded(
    ...[HANDLE, HANDLE, HOST, DEVICE, HANDLE, DEVICE, HANDLE, HOST] as const,
    ...[DEVICE, HANDLE, DEVICE, HANDLE, HOST, DEVICE, SIZE, HANDLE] as const,
  ),
} as const;

/** The functions of a library that was opened, or what stands in for them in a test. */
export type SymbolsOf<T extends Deno.ForeignLibraryInterface> = Deno.DynamicLibrary<T>["symbols"];

/** Functions of libcuda. */
export type DriverSymbols = SymbolsOf<typeof DRIVER_SYMBOLS>;

/** Functions of NVRTC. */
export type NvrtcSymbols = SymbolsOf<typeof NVRTC_SYMBOLS>;

/** Functions of cuBLASLt. */
export type CublasLtSymbols = SymbolsOf<typeof CUBLASLT_SYMBOLS>;
