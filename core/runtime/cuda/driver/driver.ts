/**
 * The driver API as a class: one device, its context, memory, streams, events, kernels and graphs.
 *
 * Takes a symbol table, the real libcuda or a stand-in that records calls; returns plain numbers
 * and handles as `bigint`; every return code is checked.
 *
 * The context is current on the thread that made the driver and on no other, so no call is
 * `nonblocking`. Waiting blocks; code that must not block polls `isDone` instead. Stream 0 is never
 * used, since it waits for all others.
 */
import { cString } from "../../../base/c_string.ts";
import { EnvironmentError } from "../../../base/errors.ts";
import { type DeviceInfo, readDeviceInfo } from "./device_info.ts";
import { checkDriver, NOT_READY } from "./errors.ts";
import { captureGraph } from "./graph.ts";
import { readHandle, readInt } from "./results.ts";
import type { DriverSymbols } from "./symbols.ts";
import { encodeTensorMap, type TensorBoxes } from "./tensor_map.ts";

/** Numbers by which the driver knows what can be asked of a kernel. */
const FUNCTION_ATTRIBUTE = { sharedBytes: 1, localBytes: 3, registers: 4 } as const;
const MAX_DYNAMIC_SHARED = 8;

const NON_BLOCKING = 1;
const NO_TIMING = 2;
const [PORTABLE, MAPPED] = [1, 2];
/** Oldest driver whose exports are what the symbol table expects. */
const OLDEST = 12000;
/** Bytes of static and dynamic shared memory that need no permission. */
const PLAIN_SHARED = 48 * 1024;

/** What the compiler made of a kernel. */
export type KernelInfo = Readonly<Record<keyof typeof FUNCTION_ATTRIBUTE, number>>;

/** Host memory that the device reaches by itself. */
export interface PinnedMemory {
  readonly address: bigint;
  /** The same memory as the device addresses it; only where it was asked to be mapped. */
  readonly device: bigint;
  readonly buffer: ArrayBuffer;
}

export class Driver {
  /** 13000 for CUDA 13.0. */
  readonly version: number;
  readonly #cu: DriverSymbols;
  readonly #device: number;
  readonly #f32 = new Float32Array(1);

  /**
   * Makes the primary context of a device current on this thread.
   * @throws {EnvironmentError} when there is no driver or device that can be used
   */
  constructor(symbols: DriverSymbols, ordinal = 0) {
    this.#cu = symbols;
    checkDriver(symbols.cuInit(0), "start the NVIDIA driver");
    const version = readInt(
      "read the driver's version",
      (out) => symbols.cuDriverGetVersion(out),
    );
    this.version = version;
    if (version < OLDEST) {
      throw new EnvironmentError(
        `the NVIDIA driver is too old: it has CUDA ${formatVersion(version)}, expected at least ` +
          formatVersion(OLDEST),
        { hints: ["install a newer NVIDIA driver"] },
      );
    }
    const found = readInt("count devices", (out) => symbols.cuDeviceGetCount(out));
    if (ordinal >= found) {
      throw new EnvironmentError(
        `no CUDA device ${ordinal}: the driver lists ${found}`,
        { hints: ["`nvidia-smi` lists the devices; CUDA_VISIBLE_DEVICES may hide some"] },
      );
    }
    this.#device = readInt("open the device", (out) => symbols.cuDeviceGet(out, ordinal));
    const context = readHandle(
      "open a context",
      (out) => symbols.cuDevicePrimaryCtxRetain(out, this.#device),
    );
    checkDriver(symbols.cuCtxSetCurrent(context), "make the context current");
  }

  /** Name, capability and sizes of the device. */
  deviceInfo(): DeviceInfo {
    return readDeviceInfo(this.#cu, this.#device);
  }

  /** Free and total bytes of device memory. */
  memoryInfo(): { free: number; total: number } {
    const out = new BigUint64Array(2);
    checkDriver(this.#cu.cuMemGetInfo_v2(out.subarray(0, 1), out.subarray(1)), "read free memory");
    return { free: Number(out[0]), total: Number(out[1]) };
  }

  /** Device memory, 256-byte aligned. It waits for the device, so allocate once and carve. */
  allocate(bytes: number): bigint {
    const doing = `allocate ${bytes} bytes on the device`;
    return readHandle(doing, (out) => this.#cu.cuMemAlloc_v2(out, BigInt(bytes)));
  }

  /** Returns what `allocate` gave. */
  free(address: bigint): void {
    checkDriver(this.#cu.cuMemFree_v2(address), "free device memory");
  }

  /** Host memory that copies need not stage; `mapped` lets kernels write into it. */
  allocatePinned(bytes: number, { mapped = false } = {}): PinnedMemory {
    const flags = PORTABLE | (mapped ? MAPPED : 0);
    const doing = `pin ${bytes} bytes of host memory`;
    const address = readHandle(
      doing,
      (out) => this.#cu.cuMemHostAlloc(out, BigInt(bytes), flags),
    );
    const device = mapped
      ? readHandle(doing, (out) => this.#cu.cuMemHostGetDevicePointer_v2(out, address, 0))
      : 0n;
    const pointer = Deno.UnsafePointer.create(address)!;
    return { address, device, buffer: Deno.UnsafePointerView.getArrayBuffer(pointer, bytes) };
  }

  /** Returns pinned memory; its buffer must not be touched any more. */
  freePinned({ address }: PinnedMemory): void {
    checkDriver(this.#cu.cuMemFreeHost(address), "free pinned memory");
  }

  /**
   * Copies to the device and waits until the bytes are there: the call itself comes back once they are
   * staged, and streams of ours do not wait for the rest.
   */
  upload(target: bigint, source: ArrayBufferView<ArrayBuffer>): void {
    const code = this.#cu.cuMemcpyHtoD_v2(target, source, BigInt(source.byteLength));
    checkDriver(code, `copy ${source.byteLength} bytes to the device`);
    checkDriver(this.#cu.cuCtxSynchronize(), `copy ${source.byteLength} bytes to the device`);
  }

  /** Copies from the device and waits for the copy, but not for kernels that are still to write. */
  download(target: ArrayBufferView<ArrayBuffer>, source: bigint): void {
    const code = this.#cu.cuMemcpyDtoH_v2(target, source, BigInt(target.byteLength));
    checkDriver(code, `copy ${target.byteLength} bytes from the device`);
  }

  /** Copies from pinned memory in stream order. */
  uploadAsync(target: bigint, pinned: bigint, bytes: number, stream: bigint): void {
    const code = this.#cu.cuMemcpyHtoDAsync_v2(target, pinned, BigInt(bytes), stream);
    checkDriver(code, `copy ${bytes} bytes to the device`);
  }

  /** Copies to pinned memory in stream order. */
  downloadAsync(pinned: bigint, source: bigint, bytes: number, stream: bigint): void {
    const code = this.#cu.cuMemcpyDtoHAsync_v2(pinned, source, BigInt(bytes), stream);
    checkDriver(code, `copy ${bytes} bytes from the device`);
  }

  /** Copies within the device in stream order. */
  copy(target: bigint, source: bigint, bytes: number, stream: bigint): void {
    const code = this.#cu.cuMemcpyDtoDAsync_v2(target, source, BigInt(bytes), stream);
    checkDriver(code, `copy ${bytes} bytes within the device`);
  }

  /** Zeroes device memory in stream order. */
  zero(target: bigint, bytes: number, stream: bigint): void {
    const code = this.#cu.cuMemsetD8Async(target, 0, BigInt(bytes), stream);
    checkDriver(code, `zero ${bytes} bytes on the device`);
  }

  /** A stream that does not wait for the default one. */
  createStream(): bigint {
    const create = this.#cu.cuStreamCreateWithPriority;
    return readHandle("create a stream", (out) => create(out, NON_BLOCKING, 0));
  }

  /** Waits until everything in the stream is done. Faults of kernels come up here. */
  synchronize(stream: bigint): void {
    checkDriver(this.#cu.cuStreamSynchronize(stream), "finish the work of a stream");
  }

  /** Lets later work of a stream wait for an event; the host goes on. */
  waitEvent(stream: bigint, event: bigint): void {
    checkDriver(this.#cu.cuStreamWaitEvent(stream, event, 0), "make a stream wait");
  }

  /** Frees a stream once its work is done. */
  destroyStream(stream: bigint): void {
    checkDriver(this.#cu.cuStreamDestroy_v2(stream), "free a stream");
  }

  /** A mark to be set in a stream; without times it is cheaper. */
  createEvent({ timing = false } = {}): bigint {
    const flags = timing ? 0 : NO_TIMING;
    return readHandle("create an event", (out) => this.#cu.cuEventCreate(out, flags));
  }

  /** Sets a mark behind all work the stream has so far. */
  recordEvent(event: bigint, stream: bigint): void {
    checkDriver(this.#cu.cuEventRecord(event, stream), "record an event");
  }

  /** Whether everything before a mark is done; never blocks. */
  isDone(event: bigint): boolean {
    const code = this.#cu.cuEventQuery(event);
    if (code !== NOT_READY) checkDriver(code, "ask whether an event happened");
    return code === 0;
  }

  /** Waits for a mark. */
  waitFor(event: bigint): void {
    checkDriver(this.#cu.cuEventSynchronize(event), "wait for an event");
  }

  /** Milliseconds between two marks made with `timing`. */
  elapsed(start: bigint, end: bigint): number {
    const code = this.#cu.cuEventElapsedTime(this.#f32, start, end);
    checkDriver(code, "read the time between two events");
    return this.#f32[0]!;
  }

  /** Frees an event. */
  destroyEvent(event: bigint): void {
    checkDriver(this.#cu.cuEventDestroy_v2(event), "free an event");
  }

  /** Loads a compiled program. */
  loadModule(cubin: Uint8Array<ArrayBuffer>, name: string): bigint {
    return readHandle(
      `load the kernels of ${name}`,
      (out) => this.#cu.cuModuleLoadDataEx(out, cubin, 0, 0n, 0n),
    );
  }

  /** A kernel of a loaded program by its `extern "C"` name. */
  getFunction(module: bigint, name: string): bigint {
    return readHandle(
      `find the kernel ${name}`,
      (out) => this.#cu.cuModuleGetFunction(out, module, cString(name)),
    );
  }

  /** Registers, static shared memory and local memory of a kernel, as loaded. */
  kernelInfo(kernel: bigint): KernelInfo {
    const entries = Object.entries(FUNCTION_ATTRIBUTE).map(([key, attribute]) => [
      key,
      readInt(
        "read what a kernel needs",
        (out) => this.#cu.cuFuncGetAttribute(out, attribute, kernel),
      ),
    ]);
    return Object.fromEntries(entries) as Record<keyof typeof FUNCTION_ATTRIBUTE, number>;
  }

  /** Allows a kernel more dynamic shared memory than every kernel may have. */
  allowShared(kernel: bigint, bytes: number): void {
    if (bytes <= PLAIN_SHARED) return;
    const code = this.#cu.cuFuncSetAttribute(kernel, MAX_DYNAMIC_SHARED, bytes);
    checkDriver(code, `give a kernel ${bytes} bytes of shared memory`);
  }

  /** A tensor as kernels copy boxes of it; see `tensor_map.ts`. */
  encodeTensorMap(tensor: TensorBoxes): Uint8Array<ArrayBuffer> {
    return encodeTensorMap(this.#cu, tensor);
  }

  /** Unloads a program; its kernels are gone. */
  unloadModule(module: bigint): void {
    checkDriver(this.#cu.cuModuleUnload(module), "unload kernels");
  }

  /** Launches as `LaunchSite` has laid it out; both numbers are host addresses. */
  launch(kernel: bigint, config: bigint, parameters: bigint, name: string): void {
    const code = this.#cu.cuLaunchKernelEx(config, kernel, parameters, 0n);
    if (code !== 0) checkDriver(code, `launch ${name}`);
  }

  /** What `issue` puts into the stream, as a graph; see `graph.ts`. */
  capture(stream: bigint, issue: () => void): bigint {
    return captureGraph(this.#cu, stream, issue);
  }

  /** Puts a graph on the device ahead of its first launch. */
  uploadGraph(graph: bigint, stream: bigint): void {
    checkDriver(this.#cu.cuGraphUpload(graph, stream), "upload a graph");
  }

  /** Runs a graph in stream order. */
  launchGraph(graph: bigint, stream: bigint): void {
    checkDriver(this.#cu.cuGraphLaunch(graph, stream), "launch a graph");
  }

  /** Frees a graph. */
  destroyGraph(graph: bigint): void {
    checkDriver(this.#cu.cuGraphExecDestroy(graph), "free a graph");
  }

  /** Gives the context back. */
  close(): void {
    checkDriver(this.#cu.cuDevicePrimaryCtxRelease_v2(this.#device), "release the context");
  }
}

/** 13000 → "13.0" */
export function formatVersion(version: number): string {
  return `${Math.floor(version / 1000)}.${version % 1000 / 10}`;
}
