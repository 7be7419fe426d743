/**
 * libcuda of an emulated machine: the functions the driver class calls, with the codes a real one
 * gives.
 *
 * Takes memory and streams of a machine; returns a symbol table with an H100 behind it. Wrong calls
 * are answered with the code a driver has for them; what a device would only show as damage or as a
 * hang is thrown as an `EmulatorError` in words, when the work runs. That is when something waits
 * for it, not at the launch.
 */
import { DRIVER_SYMBOLS, type DriverSymbols } from "../../core/runtime/cuda/driver/symbols.ts";
import { LaunchConfig, Modules } from "./kernels.ts";
import { addressOf, EmulatorError, type HostBuffer, type Memory, viewOf } from "./memory.ts";
import { CODE, type Streams } from "./streams.ts";
import { encodeTensorMap } from "./tensor_map.ts";

/** What tests compile for. */
export const EMULATED_ARCHITECTURE = "sm_90a";

const VERSION = 13000;
const NAME = "Emulated H100";
const CONTEXT = 0xc0de_0000n;

/** Attributes of an H100 by their numbers. */
const ATTRIBUTES: Readonly<Record<number, number>> = {
  1: 1024, // threads of a block, then its three extents and those of a grid
  2: 1024,
  3: 1024,
  4: 64,
  5: 2 ** 31 - 1,
  6: 65535,
  7: 65535,
  8: 48 * 1024, // shared memory of a block
  10: 32, // lanes of a warp
  12: 65536, // registers of a block
  13: 1_980_000, // kHz
  16: 132, // processors
  36: 2_619_000, // kHz of the memory
  37: 5120, // bits of its bus
  38: 50 * 2 ** 20, // second-level cache
  39: 2048, // threads of a processor
  40: 3, // copy engines
  41: 1, // unified addresses
  75: 9,
  76: 0,
  81: 228 * 1024, // shared memory of a processor
  82: 65536,
  95: 1, // cooperative launch
  97: 227 * 1024, // shared memory of a block that asks for it
  108: 30 * 2 ** 20, // cache that may be kept
  115: 1, // memory pools
  120: 0, // clusters
  127: 1, // tensor maps
};

const [NON_BLOCKING, NO_TIMING, PLAIN_HOST_FLAGS] = [1, 2, 7];

const put64 = (out: HostBuffer, value: bigint) => {
  viewOf(out).setBigUint64(0, value, true);
  return CODE.success;
};
const put32 = (out: HostBuffer, value: number) => {
  viewOf(out).setInt32(0, value, true);
  return CODE.success;
};

/** Writes the result where there is one. */
const give = (out: HostBuffer, value: bigint | undefined, otherwise: number) =>
  value === undefined ? otherwise : put64(out, value);

/** Copies, sets and allocations. */
function memoryFunctions(memory: Memory, streams: Streams): Partial<DriverSymbols> {
  const { library } = memory;
  /** Calls that no capture may contain. */
  const alone = (call: () => number) => streams.spoilCaptures() ? CODE.captureUnsupported : call();
  const holds = (...ranges: [bigint, bigint][]) =>
    ranges.every(([address, bytes]) => memory.holds(address, bytes));
  const copy = (to: bigint, from: bigint, bytes: bigint) => () =>
    library.machineCopy(to, from, bytes);
  const set = (to: bigint, value: number, width: bigint, count: bigint, stream: bigint) => {
    if (to % width !== 0n || !holds([to, width * count])) return CODE.invalidValue;
    return streams.enqueue(stream, () => library.machineSet(to, value, width, count));
  };
  return {
    cuMemGetInfo_v2(free, total) {
      put64(free, BigInt(memory.limit - memory.used));
      return put64(total, BigInt(memory.limit));
    },
    cuMemAlloc_v2: (out, bytes) =>
      alone(() =>
        bytes === 0n
          ? CODE.invalidValue
          : give(out, memory.allocate(bytes, "device"), CODE.outOfMemory)
      ),
    cuMemFree_v2: (address) =>
      alone(() => {
        streams.drainAll();
        return memory.free(address, "device") ? CODE.success : CODE.invalidValue;
      }),
    cuMemHostAlloc: (out, bytes, flags) =>
      alone(() =>
        bytes === 0n || flags > PLAIN_HOST_FLAGS
          ? CODE.invalidValue
          : give(out, memory.allocate(bytes, "pinned"), CODE.outOfMemory)
      ),
    cuMemFreeHost: (address) =>
      alone(() => {
        streams.drainAll();
        return memory.free(address, "pinned") ? CODE.success : CODE.invalidValue;
      }),
    cuMemHostGetDevicePointer_v2: (out, address) =>
      memory.isPinned(address, 1n) ? put64(out, address) : CODE.invalidValue,
    cuMemHostRegister_v2: (address, bytes) =>
      memory.register(address, bytes) ? CODE.success : CODE.invalidValue,
    cuMemHostUnregister(address) {
      streams.drainAll();
      return memory.unregister(address) ? CODE.success : CODE.invalidValue;
    },
    cuMemcpyHtoD_v2: (to, from, bytes) =>
      alone(() => {
        streams.drainBlocking();
        const view = viewOf(from);
        if (!holds([to, bytes]) || BigInt(view.byteLength) < bytes) return CODE.invalidValue;
        if (bytes > 0n) copy(to, addressOf(view), bytes)();
        return CODE.success;
      }),
    cuMemcpyDtoH_v2: (to, from, bytes) =>
      alone(() => {
        streams.drainBlocking();
        const view = viewOf(to);
        if (!holds([from, bytes]) || BigInt(view.byteLength) < bytes) return CODE.invalidValue;
        if (bytes > 0n) copy(addressOf(view), from, bytes)();
        return CODE.success;
      }),
    cuMemcpyHtoDAsync_v2(to, from, bytes, stream) {
      if (!holds([to, bytes])) return CODE.invalidValue;
      if (memory.isPinned(from, bytes)) return streams.enqueue(stream, copy(to, from, bytes));
      if (streams.isCapturing(stream)) return alone(() => CODE.success);
      // Not pinned: the driver takes the bytes away before it returns.
      const view = new DataView(new ArrayBuffer(Number(bytes)));
      if (bytes > 0n) copy(addressOf(view), from, bytes)();
      return streams.enqueue(stream, () => {
        if (bytes > 0n) copy(to, addressOf(view), bytes)();
      });
    },
    cuMemcpyDtoHAsync_v2(to, from, bytes, stream) {
      if (!holds([from, bytes])) return CODE.invalidValue;
      const pinned = memory.isPinned(to, bytes);
      if (!pinned && streams.isCapturing(stream)) return alone(() => CODE.success);
      const code = streams.enqueue(stream, copy(to, from, bytes));
      return code === CODE.success && !pinned ? streams.synchronize(stream) : code;
    },
    cuMemcpyDtoDAsync_v2: (to, from, bytes, stream) =>
      holds([to, bytes], [from, bytes])
        ? streams.enqueue(stream, copy(to, from, bytes))
        : CODE.invalidValue,
    cuMemsetD8Async: (to, value, count, stream) => set(to, value, 1n, count, stream),
    cuMemsetD32Async: (to, value, count, stream) => set(to, value, 4n, count, stream),
  };
}

/** Streams, events and graphs. */
function streamFunctions(memory: Memory, streams: Streams): Partial<DriverSymbols> {
  return {
    cuStreamCreateWithPriority: (out, flags) =>
      put64(out, streams.createStream((flags & NON_BLOCKING) === 0)),
    cuStreamDestroy_v2: (stream) => streams.destroyStream(stream),
    cuStreamSynchronize(stream) {
      const code = streams.synchronize(stream);
      if (code === CODE.success) memory.checkGuards("when a stream was waited for");
      return code;
    },
    cuStreamWaitEvent: (stream, event) => streams.wait(stream, event),
    cuEventCreate: (out, flags) => put64(out, streams.createEvent((flags & NO_TIMING) === 0)),
    cuEventDestroy_v2: (event) => streams.destroyEvent(event),
    cuEventRecord: (event, stream) => streams.record(event, stream),
    cuEventQuery: (event) => streams.query(event),
    cuEventSynchronize: (event) => streams.waitFor(event),
    cuEventElapsedTime(out, start, end) {
      const { code, milliseconds } = streams.elapsed(start, end);
      if (code === CODE.success) viewOf(out).setFloat32(0, milliseconds, true);
      return code;
    },
    cuStreamBeginCapture_v2: (stream) => streams.beginCapture(stream),
    cuStreamEndCapture(stream, out) {
      const { code, graph } = streams.endCapture(stream);
      put64(out, graph);
      return code;
    },
    cuGraphInstantiateWithFlags: (out, graph) =>
      give(out, streams.instantiate(graph), CODE.invalidHandle),
    cuGraphUpload: (graph) => streams.hasGraph(graph) ? CODE.success : CODE.invalidHandle,
    cuGraphLaunch: (graph, stream) => streams.launchGraph(graph, stream),
    cuGraphExecDestroy: (graph) => streams.destroyReady(graph),
    cuGraphDestroy: (graph) => streams.destroyGraph(graph),
  };
}

/** Programs, kernels and launches. */
function kernelFunctions(memory: Memory, streams: Streams): Partial<DriverSymbols> {
  const modules = new Modules(memory);
  return {
    cuModuleLoadDataEx: (out, bytes) => put64(out, modules.load(viewOf(bytes))),
    cuModuleUnload(module) {
      streams.drainAll();
      return modules.unload(module) ? CODE.success : CODE.invalidHandle;
    },
    cuModuleGetFunction(out, module, name) {
      const text = new TextDecoder().decode(viewOf(name)).replace(/\0[\s\S]*/, "");
      return give(out, modules.find(module, text), CODE.notFound);
    },
    cuFuncSetAttribute: (kernel, attribute, value) => modules.allow(kernel, attribute, value),
    cuFuncGetAttribute(out, attribute, kernel) {
      const value = modules.ask(kernel, attribute);
      return value === undefined ? CODE.invalidHandle : put32(out, value);
    },
    cuLaunchKernelEx(config, kernel, parameters) {
      const launch = modules.prepare(new LaunchConfig(config), kernel, parameters);
      return typeof launch === "number" ? launch : streams.enqueue(launch.stream, launch.work);
    },
    cuTensorMapEncodeTiled(out, type, rank, address, sizes, strides, box, steps, ...how) {
      const [interleave, swizzle] = how;
      const all = { type, rank, address, sizes, strides, box, steps, interleave, swizzle };
      return encodeTensorMap(memory, out, all);
    },
  };
}

/** The device and its context. */
function deviceFunctions(memory: Memory, streams: Streams): Partial<DriverSymbols> {
  const isDevice = (device: number, call: () => number) =>
    device === 0 ? call() : CODE.invalidDevice;
  return {
    cuInit: () => CODE.success,
    cuDriverGetVersion: (out) => put32(out, VERSION),
    cuDeviceGetCount: (out) => put32(out, 1),
    cuDeviceGet: (out, ordinal) => isDevice(ordinal, () => put32(out, 0)),
    cuDeviceGetName: (out, length, device) =>
      isDevice(device, () => {
        const name = new TextEncoder().encode(NAME.slice(0, length - 1) + "\0");
        const view = viewOf(out);
        name.forEach((byte, i) => view.setUint8(i, byte));
        return CODE.success;
      }),
    cuDeviceGetAttribute: (out, attribute, device) =>
      isDevice(device, () => {
        const value = ATTRIBUTES[attribute];
        if (value !== undefined) return put32(out, value);
        throw new EmulatorError(`Cannot emulate device attribute ${attribute}: found no value`);
      }),
    cuDeviceTotalMem_v2: (out, device) => isDevice(device, () => put64(out, BigInt(memory.limit))),
    cuDevicePrimaryCtxRetain: (out, device) => isDevice(device, () => put64(out, CONTEXT)),
    cuDevicePrimaryCtxRelease_v2: (device) =>
      isDevice(device, () => {
        streams.drainAll();
        memory.checkGuards("when the context ended");
        return CODE.success;
      }),
    cuCtxSetCurrent: (context) => context === CONTEXT ? CODE.success : CODE.invalidContext,
    cuCtxSynchronize() {
      if (streams.spoilCaptures()) return CODE.captureUnsupported;
      streams.drainAll();
      memory.checkGuards("when the device was waited for");
      return CODE.success;
    },
    cuCtxSetLimit: () => CODE.success,
  };
}

/** The whole table; a function that is not emulated throws with its name. */
export function driverSymbols(memory: Memory, streams: Streams): DriverSymbols {
  const missing = Object.keys(DRIVER_SYMBOLS).map((name) => [name, () => {
    throw new EmulatorError(`Cannot call ${name}: found no emulation of it`);
  }]);
  const symbols: Partial<DriverSymbols> = {
    ...deviceFunctions(memory, streams),
    ...memoryFunctions(memory, streams),
    ...streamFunctions(memory, streams),
    ...kernelFunctions(memory, streams),
  };
  return { ...Object.fromEntries(missing), ...symbols } as DriverSymbols;
}
