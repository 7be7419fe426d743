/**
 * The driver API as a class: one device, its context, memory, streams, events, kernels and graphs.
 *
 * Takes a symbol table, that of libcuda or a stand-in of the tests. Handles and device addresses are
 * `bigint`; every return code is checked. Calls make the context of their device current on this thread, so
 * none is `nonblocking`. Stream 0 is never used, since it waits for all others.
 */
import { cString } from "../../../base/c_string.ts";
import { EnvironmentError } from "../../../base/errors.ts";
import { checkDriver, NOT_READY, readDriver } from "./errors.ts";
import type { Launch } from "./launch.ts";
import type { DriverSymbols } from "./symbols.ts";

const NON_BLOCKING = 1;
const NO_TIMING = 2;
const PORTABLE = 1;
const CAPTURE_THREAD_LOCAL = 1;
/** CU_DEVICE_ATTRIBUTE_… */
const ATTRIBUTE = { capabilityMajor: 75, capabilityMinor: 76 } as const;
const NAME_BYTES = 256;
/** Bytes of pageable memory that the driver copies to memory of its own at once. */
const STAGED_BYTES = 1 << 16;
/** Oldest driver whose exports are what the symbol table expects. */
const OLDEST = 12000;

/** A device by name. */
export interface DeviceInfo {
  readonly name: string;
  /** Compute capability. */
  readonly major: number;
  readonly minor: number;
}

/** Page-locked host memory, which copies reach without staging. */
export interface PinnedMemory {
  readonly address: bigint;
  readonly buffer: ArrayBuffer;
}

/** The integer that a call writes; `doing` names the call in errors. @throws {CudaError} */
function readInt(doing: string, call: (out: Int32Array<ArrayBuffer>) => number): number {
  const out = new Int32Array(1);
  checkDriver(call(out), doing);
  return out[0]!;
}

/** Starts the driver; returns its version, 13000 for CUDA 13.0. @throws {CudaError} */
export function startDriver(symbols: DriverSymbols): number {
  checkDriver(symbols.cuInit(0), "start the NVIDIA driver");
  return readInt("read the driver's version", (out) => symbols.cuDriverGetVersion(out));
}

/** Devices that a driver shows, once it is started. @throws {CudaError} */
export function countDevices(symbols: DriverSymbols): number {
  return readInt("count devices", (out) => symbols.cuDeviceGetCount(out));
}

/** The driver whose context is current on this thread. */
let current: Driver | undefined;

export class Driver {
  /** 13000 for CUDA 13.0. */
  readonly version: number;
  readonly #device: number;
  readonly #context: bigint;

  /**
   * Makes the primary context of a device current on this thread.
   * @throws {EnvironmentError} when there is no driver or device that can be used
   */
  constructor(private readonly symbols: DriverSymbols, ordinal = 0) {
    this.version = startDriver(symbols);
    if (this.version < OLDEST) {
      throw new EnvironmentError(
        `the NVIDIA driver is too old: it has CUDA ${formatVersion(this.version)}, expected at ` +
          `least ${formatVersion(OLDEST)}`,
        { hints: ["install a newer NVIDIA driver"] },
      );
    }
    const found = countDevices(symbols);
    if (ordinal >= found) {
      throw new EnvironmentError(`no CUDA device ${ordinal}: the driver lists ${found}`, {
        hints: ["`nvidia-smi` lists the devices; CUDA_VISIBLE_DEVICES may hide some"],
      });
    }
    this.#device = readInt("open the device", (out) => symbols.cuDeviceGet(out, ordinal));
    const retain = symbols.cuDevicePrimaryCtxRetain;
    const device = this.#device;
    this.#context = readDriver("open a context", (out) => retain(out, device));
    this.activate();
  }

  /** Makes the context current; for libraries beside the driver, which use the one that is. */
  activate(): void {
    if (current === this) return;
    checkDriver(this.symbols.cuCtxSetCurrent(this.#context), "make the context current");
    current = this;
  }

  /** The functions of the driver, with the context current. */
  get #cu(): DriverSymbols {
    this.activate();
    return this.symbols;
  }

  deviceInfo(): DeviceInfo {
    const cu = this.#cu, device = this.#device;
    const attribute = (number: number) =>
      readInt(
        `read device attribute ${number}`,
        (out) => cu.cuDeviceGetAttribute(out, number, device),
      );
    const name = new Uint8Array(NAME_BYTES);
    checkDriver(cu.cuDeviceGetName(name, NAME_BYTES, device), "read the device's name");
    return {
      name: new TextDecoder().decode(name.subarray(0, name.indexOf(0))),
      major: attribute(ATTRIBUTE.capabilityMajor),
      minor: attribute(ATTRIBUTE.capabilityMinor),
    };
  }

  /** Free and total bytes of device memory. */
  memoryInfo(): { free: number; total: number } {
    const out = new BigUint64Array(2);
    checkDriver(this.#cu.cuMemGetInfo_v2(out.subarray(0, 1), out.subarray(1)), "read free memory");
    return { free: Number(out[0]), total: Number(out[1]) };
  }

  /** Device memory, 256-byte aligned. Waits for the device. */
  allocate(bytes: number): bigint {
    const doing = `allocate ${bytes} bytes on the device`;
    return readDriver(doing, (out) => this.#cu.cuMemAlloc_v2(out, BigInt(bytes)));
  }

  /** Returns memory of `allocate`. Waits for the device. */
  free(address: bigint): void {
    checkDriver(this.#cu.cuMemFree_v2(address), "free device memory");
  }

  allocatePinned(bytes: number): PinnedMemory {
    const doing = `pin ${bytes} bytes of host memory`;
    const address = readDriver(
      doing,
      (out) => this.#cu.cuMemHostAlloc(out, BigInt(bytes), PORTABLE),
    );
    const pointer = Deno.UnsafePointer.create(address)!;
    return { address, buffer: Deno.UnsafePointerView.getArrayBuffer(pointer, bytes) };
  }

  /** Returns pinned memory; its buffer must not be touched any more. */
  freePinned({ address }: PinnedMemory): void {
    checkDriver(this.#cu.cuMemFreeHost(address), "free pinned memory");
  }

  /**
   * Copies to the device in stream order; `source` has been read when the call returns. The driver stages
   * up to 64 KiB of it; of more it may read pageable memory later, so that the copy is waited for.
   */
  upload(target: bigint, source: ArrayBufferView<ArrayBuffer>, stream: bigint): void {
    const { byteLength } = source;
    const code = this.#cu.cuMemcpyHtoDAsync_v2(target, source, BigInt(byteLength), stream);
    checkDriver(code, `copy ${byteLength} bytes to the device`);
    if (byteLength > STAGED_BYTES) this.synchronize(stream);
  }

  /** Copies from the device once the stream's work is done, and waits. */
  download(target: ArrayBufferView<ArrayBuffer>, source: bigint, stream: bigint): void {
    this.synchronize(stream);
    const code = this.#cu.cuMemcpyDtoH_v2(target, source, BigInt(target.byteLength));
    checkDriver(code, `copy ${target.byteLength} bytes from the device`);
  }

  /** Copies to pinned memory in stream order, without waiting. */
  downloadPinned(pinned: bigint, source: bigint, bytes: number, stream: bigint): void {
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

  /** A stream that does not wait for stream 0. */
  createStream(): bigint {
    return readDriver("create a stream", (out) => this.#cu.cuStreamCreate(out, NON_BLOCKING));
  }

  /** Waits until everything in the stream is done; faults of kernels are reported here. */
  synchronize(stream: bigint): void {
    checkDriver(this.#cu.cuStreamSynchronize(stream), "finish the work of a stream");
  }

  destroyStream(stream: bigint): void {
    checkDriver(this.#cu.cuStreamDestroy_v2(stream), "free a stream");
  }

  /** An event; cheaper without `timing`. */
  createEvent({ timing = false } = {}): bigint {
    const flags = timing ? 0 : NO_TIMING;
    return readDriver("create an event", (out) => this.#cu.cuEventCreate(out, flags));
  }

  /** Records an event after all work that the stream has so far. */
  recordEvent(event: bigint, stream: bigint): void {
    checkDriver(this.#cu.cuEventRecord(event, stream), "record an event");
  }

  /** Returns whether everything before an event is done; never blocks. */
  isDone(event: bigint): boolean {
    const code = this.#cu.cuEventQuery(event);
    if (code !== NOT_READY) checkDriver(code, "query an event");
    return code === 0;
  }

  waitFor(event: bigint): void {
    checkDriver(this.#cu.cuEventSynchronize(event), "wait for an event");
  }

  /** Milliseconds between two events made with `timing`. */
  elapsed(start: bigint, end: bigint): number {
    const out = new Float32Array(1);
    checkDriver(this.#cu.cuEventElapsedTime(out, start, end), "read the time between two events");
    return out[0]!;
  }

  destroyEvent(event: bigint): void {
    checkDriver(this.#cu.cuEventDestroy_v2(event), "free an event");
  }

  /** Loads a compiled program. */
  loadModule(cubin: Uint8Array<ArrayBuffer>, name: string): bigint {
    return readDriver(
      `load the kernels of ${name}`,
      (out) => this.#cu.cuModuleLoadData(out, cubin),
    );
  }

  /** A kernel of a loaded program by its `extern "C"` name. */
  getFunction(module: bigint, name: string): bigint {
    return readDriver(
      `find the kernel ${name}`,
      (out) => this.#cu.cuModuleGetFunction(out, module, cString(name)),
    );
  }

  unloadModule(module: bigint): void {
    checkDriver(this.#cu.cuModuleUnload(module), "unload kernels");
  }

  /** Launches a kernel with the values set now; an empty grid, which the driver refuses, is nothing. */
  launch({ kernel, name, config: { grid, block }, parameters }: Launch, stream: bigint): void {
    if (grid.includes(0)) return;
    const code = this.#cu.cuLaunchKernel(kernel, ...grid, ...block, 0, stream, parameters, 0n);
    if (code !== 0) checkDriver(code, `launch ${name}`);
  }

  /**
   * Captures what `issue` puts into the stream as a graph, which can be launched many times. All of it
   * must have run once before, and it may neither allocate, upload nor wait.
   */
  capture(stream: bigint, issue: () => void): bigint {
    const cu = this.#cu;
    const began = cu.cuStreamBeginCapture_v2(stream, CAPTURE_THREAD_LOCAL);
    checkDriver(began, "begin to capture a graph");
    try {
      issue();
    } catch (error) {
      const graph = new BigUint64Array(1);
      cu.cuStreamEndCapture(stream, graph); // the first error says more than this one would
      if (graph[0]) cu.cuGraphDestroy(graph[0]);
      throw error;
    }
    const graph = readDriver(
      "end the capture of a graph",
      (out) => cu.cuStreamEndCapture(stream, out),
    );
    try {
      const instantiate = cu.cuGraphInstantiateWithFlags;
      return readDriver("instantiate a graph", (out) => instantiate(out, graph, 0n));
    } finally {
      checkDriver(cu.cuGraphDestroy(graph), "free the template of a graph");
    }
  }

  launchGraph(graph: bigint, stream: bigint): void {
    checkDriver(this.#cu.cuGraphLaunch(graph, stream), "launch a graph");
  }

  destroyGraph(graph: bigint): void {
    checkDriver(this.#cu.cuGraphExecDestroy(graph), "free a graph");
  }

  /** Releases the context. */
  close(): void {
    if (current === this) current = undefined;
    const { cuDevicePrimaryCtxRelease_v2: release } = this.symbols;
    checkDriver(release(this.#device), "release the context");
  }
}

/** 13000 → "13.0" */
export function formatVersion(version: number): string {
  return `${Math.floor(version / 1000)}.${version % 1000 / 10}`;
}
