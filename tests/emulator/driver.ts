/**
 * libcuda of an emulated machine: the functions of the driver class, with the codes a real one gives.
 *
 * A wrong call returns the code that a driver has for it; what a device would only show as damage or as a
 * hang is thrown as an `EmulatorError` when the work runs. That is when something waits for it, not at the
 * launch.
 */
import type { DriverSymbols } from "../../core/runtime/cuda/driver/symbols.ts";
import { Modules } from "./kernels.ts";
import { addressOf, EmulatorError, type HostBuffer, Memory, viewOf } from "./memory.ts";
import { CODE, type Streams } from "./streams.ts";

/** Architecture that tests compile for. */
export const EMULATED_ARCHITECTURE = "sm_90";

const VERSION = 13000;
const NAME = "Emulated H100";
const CONTEXT = 0xc0de_0000n;
/** Compute capability of an H100, by the numbers of the attributes. */
const ATTRIBUTES: Readonly<Record<number, number>> = { 75: 9, 76: 0 };
/** Functions that need no context. */
const FREE: readonly (keyof DriverSymbols)[] = [
  ...["cuInit", "cuDriverGetVersion", "cuDeviceGetCount", "cuDeviceGet"] as const,
  ...["cuDeviceGetName", "cuDeviceGetAttribute", "cuCtxSetCurrent"] as const,
  ...["cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease_v2"] as const,
];
const STAGED_BYTES = 1n << 16n;
const NON_BLOCKING = 1;
const NO_TIMING = 2;

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

/** The whole table. */
export function driverSymbols(memory: Memory, streams: Streams): DriverSymbols {
  const { library } = memory;
  const modules = new Modules(memory);
  let retained = 0;
  /** Calls that no capture may contain. */
  const alone = (call: () => number) => streams.spoilCaptures() ? CODE.captureUnsupported : call();
  const free = (kind: "device" | "pinned") => (address: bigint) =>
    alone(() => {
      streams.drainAll();
      return memory.free(address, kind) ? CODE.success : CODE.invalidValue;
    });
  const isDevice = (device: number, call: () => number) =>
    device === 0 ? call() : CODE.invalidDevice;
  const symbols: DriverSymbols = {
    cuInit: () => CODE.success,
    cuDriverGetVersion: (out) => put32(out, VERSION),
    cuDeviceGetCount: (out) => put32(out, 1),
    cuDeviceGet: (out, ordinal) => isDevice(ordinal, () => put32(out, 0)),
    cuDeviceGetName: (out, length, device) =>
      isDevice(device, () => {
        const name = new TextEncoder().encode(NAME.slice(0, length - 1) + "\0");
        name.forEach((byte, i) => viewOf(out).setUint8(i, byte));
        return CODE.success;
      }),
    cuDeviceGetAttribute: (out, attribute, device) =>
      isDevice(device, () => {
        const value = ATTRIBUTES[attribute];
        if (value !== undefined) return put32(out, value);
        throw new EmulatorError(
          `Cannot emulate device attribute ${attribute}: it has no value here`,
        );
      }),
    cuDevicePrimaryCtxRetain: (out, device) =>
      isDevice(device, () => (retained++, put64(out, CONTEXT))),
    cuDevicePrimaryCtxRelease_v2: (device) =>
      isDevice(device, () => {
        streams.drainAll();
        memory.checkGuards("when the context ended");
        if (--retained === 0 && Memory.current === memory) Memory.current = undefined;
        return CODE.success;
      }),
    cuCtxSetCurrent(context) {
      if (context !== CONTEXT || retained === 0) return CODE.invalidContext;
      Memory.current = memory;
      return CODE.success;
    },
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
    cuMemFree_v2: free("device"),
    cuMemHostAlloc: (out, bytes) =>
      alone(() => give(out, memory.allocate(bytes, "pinned"), CODE.outOfMemory)),
    cuMemFreeHost: free("pinned"),
    cuMemcpyHtoDAsync_v2: (to, from, bytes, stream) =>
      alone(() => {
        const view = viewOf(from);
        if (!memory.holds(to, bytes) || BigInt(view.byteLength) < bytes) return CODE.invalidValue;
        // The memory is not pinned: a little is staged at once, more is read when the copy runs.
        const { buffer, byteOffset } = view;
        const copy = bytes > STAGED_BYTES
          ? view
          : new DataView(buffer.slice(byteOffset, byteOffset + Number(bytes)));
        return streams.enqueue(stream, () => {
          if (bytes > 0n) library.machineCopy(to, addressOf(copy), bytes);
        });
      }),
    cuMemcpyDtoH_v2: (to, from, bytes) =>
      alone(() => {
        const view = viewOf(to);
        if (!memory.holds(from, bytes) || BigInt(view.byteLength) < bytes) return CODE.invalidValue;
        if (bytes > 0n) library.machineCopy(addressOf(view), from, bytes);
        return CODE.success;
      }),
    cuMemcpyDtoHAsync_v2: (to, from, bytes, stream) =>
      memory.holds(from, bytes) && memory.holds(to, bytes, "pinned")
        ? streams.enqueue(stream, () => library.machineCopy(to, from, bytes))
        : CODE.invalidValue,
    cuMemcpyDtoDAsync_v2: (to, from, bytes, stream) =>
      memory.holds(to, bytes) && memory.holds(from, bytes)
        ? streams.enqueue(stream, () => library.machineCopy(to, from, bytes))
        : CODE.invalidValue,
    cuMemsetD8Async: (to, value, bytes, stream) =>
      memory.holds(to, bytes)
        ? streams.enqueue(stream, () => library.machineSet(to, value, bytes))
        : CODE.invalidValue,
    cuStreamCreate: (out, flags) =>
      flags === NON_BLOCKING ? put64(out, streams.createStream()) : CODE.invalidValue,
    cuStreamDestroy_v2: (stream) => streams.destroyStream(stream),
    cuStreamSynchronize(stream) {
      const code = streams.synchronize(stream);
      if (code === CODE.success) memory.checkGuards("when a stream was waited for");
      return code;
    },
    cuEventCreate: (out, flags) => put64(out, streams.createEvent((flags & NO_TIMING) === 0)),
    cuEventDestroy_v2: streams.destroyEvent,
    cuEventRecord: (event, stream) => streams.record(event, stream),
    cuEventQuery: (event) => streams.query(event),
    cuEventSynchronize: (event) => streams.waitFor(event),
    cuEventElapsedTime(out, start, end) {
      const { code, milliseconds } = streams.elapsed(start, end);
      if (code === CODE.success) viewOf(out).setFloat32(0, milliseconds, true);
      return code;
    },
    cuModuleLoadData: (out, bytes) => put64(out, modules.load(viewOf(bytes))),
    cuModuleUnload(module) {
      streams.drainAll();
      return modules.unload(module) ? CODE.success : CODE.invalidHandle;
    },
    cuModuleGetFunction(out, module, name) {
      const text = new TextDecoder().decode(viewOf(name)).replace(/\0[\s\S]*/, "");
      return give(out, modules.find(module, text), CODE.notFound);
    },
    cuLaunchKernel(kernel, ...rest) {
      const config = rest.slice(0, 6) as number[];
      const [shared, stream, parameters] = rest.slice(6) as [number, bigint, bigint];
      if (shared > 0) return CODE.invalidValue;
      const work = modules.prepare(kernel, config, parameters);
      return typeof work === "number" ? work : streams.enqueue(stream, work);
    },
    cuStreamBeginCapture_v2: (stream) => streams.beginCapture(stream),
    cuStreamEndCapture(stream, out) {
      const { code, graph } = streams.endCapture(stream);
      put64(out, graph);
      return code;
    },
    cuGraphInstantiateWithFlags: (out, graph) =>
      give(out, streams.instantiate(graph), CODE.invalidHandle),
    cuGraphLaunch: (graph, stream) => streams.launchGraph(graph, stream),
    cuGraphExecDestroy: streams.destroyReady,
    cuGraphDestroy: streams.destroyGraph,
  };
  return memory.guarded(symbols, CODE.invalidContext, FREE);
}
