/** A stand-in for libcuda that records calls and hands out made-up addresses. */
import type { DriverSymbols } from "../../../../core/runtime/cuda/driver/symbols.ts";
import { DRIVER_SYMBOLS } from "../../../../core/runtime/cuda/driver/symbols.ts";

/** One call: the function and what it was given. */
export interface Call {
  readonly name: string;
  readonly args: readonly unknown[];
}

/** Stand-in for the driver: its calls, and the codes it returns. */
export interface FakeDriver {
  readonly symbols: DriverSymbols;
  readonly calls: Call[];
  /** Result by function; 0 where nothing is said. */
  readonly codes: Map<string, number>;
}

/** Functions whose first argument receives a new handle or address. */
const CREATES =
  /^cu(DevicePrimaryCtxRetain|MemAlloc_v2|MemHostAlloc|StreamCreate|EventCreate$|ModuleLoad|ModuleGetFunction|GraphInstantiate)/;

/** Handles count up from here in steps of 4096, so that two are never mistaken for each other. */
const FIRST = 0x7000_0000n;

/** A driver of CUDA 13.0 with one device whose attributes equal their numbers. */
export function fakeDriver(): FakeDriver {
  const calls: Call[] = [];
  const codes = new Map<string, number>();
  let next = FIRST;
  const answer = (name: string, args: unknown[]) => {
    calls.push({ name, args });
    const [out, second] = args as [BigUint64Array, BigUint64Array];
    const code = codes.get(name) ?? 0;
    if (code !== 0) return code;
    if (name === "cuDriverGetVersion") (args[0] as Int32Array)[0] = 13000;
    else if (name === "cuDeviceGetCount") (args[0] as Int32Array)[0] = 1;
    else if (name === "cuDeviceGet") (args[0] as Int32Array)[0] = 0;
    else if (name === "cuDeviceGetAttribute") (args[0] as Int32Array)[0] = args[1] as number;
    else if (name === "cuDeviceGetName") (args[0] as Uint8Array).set([70, 97, 107, 101, 0]);
    else if (name === "cuMemGetInfo_v2") [out[0], second[0]] = [5n, 7n];
    else if (name === "cuEventElapsedTime") (args[0] as Float32Array)[0] = 1.5;
    else if (name === "cuStreamEndCapture") second[0] = next += 4096n;
    else if (CREATES.test(name)) out[0] = next += 4096n;
    return 0;
  };
  const names = Object.keys(DRIVER_SYMBOLS);
  const symbols = Object.fromEntries(
    names.map((name) => [name, (...args: unknown[]) => answer(name, args)]),
  ) as unknown as DriverSymbols;
  return { symbols, calls, codes };
}

/** The bytes at a host address. */
export function hostBytes(address: bigint, bytes: number): DataView {
  const pointer = Deno.UnsafePointer.create(address)!;
  return new DataView(Deno.UnsafePointerView.getArrayBuffer(pointer, bytes).slice(0));
}
