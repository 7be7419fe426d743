/** The CUDA driver layer against a stand-in: packing, offsets, order of calls, errors. No GPU. */
import { assert, assertEquals, assertStringIncludes, assertThrows } from "@std/assert";
import { DeviceMemory } from "../../../../core/runtime/cuda/device_memory.ts";
import { Driver, formatVersion } from "../../../../core/runtime/cuda/driver/driver.ts";
import {
  checkCublas,
  checkDriver,
  checkNvrtc,
  CudaError,
} from "../../../../core/runtime/cuda/driver/errors.ts";
import { LaunchSite } from "../../../../core/runtime/cuda/driver/launch.ts";
import { boxesOf } from "../../../../core/runtime/cuda/driver/tensor_map.ts";
import { fakeDriver, hostBytes } from "./testing.ts";

const names = (calls: readonly { name: string }[]) => calls.map(({ name }) => name);

Deno.test("opening a device makes its primary context current", () => {
  const fake = fakeDriver();
  const driver = new Driver(fake.symbols);
  assertEquals(names(fake.calls), [
    "cuInit",
    "cuDriverGetVersion",
    "cuDeviceGetCount",
    "cuDeviceGet",
    "cuDevicePrimaryCtxRetain",
    "cuCtxSetCurrent",
  ]);
  assertEquals(formatVersion(driver.version), "13.0");
  const info = driver.deviceInfo();
  assertEquals([info.name, info.major, info.minor, info.processors], ["Fake", 75, 76, 16]);
  assertEquals(driver.memoryInfo(), { free: 5, total: 7 });
  assertEquals(driver.kernelInfo(1n), { sharedBytes: 1, localBytes: 3, registers: 4 });
});

Deno.test("a device that is not there and an old driver are named", () => {
  const fake = fakeDriver();
  assertThrows(() => new Driver(fake.symbols, 1), Error, "no CUDA device 1: the driver lists 1");
  const symbols = {
    ...fake.symbols,
    cuDriverGetVersion: (out: Int32Array) => (out[0] = 11080, 0),
  } as unknown as typeof fake.symbols;
  assertThrows(
    () => new Driver(symbols),
    Error,
    "too old: it has CUDA 11.8, expected at least 12.0",
  );
});

Deno.test("a launch is packed as the driver reads it", () => {
  const fake = fakeDriver();
  const driver = new Driver(fake.symbols);
  const site = new LaunchSite(77n, "k", ["pointer", "i32", "f32", "map", "i64", "u32"]);
  site.setGeometry({
    grid: [10, 2, 3],
    block: [128, 4, 1],
    shared: 1024,
    early: true,
  });
  site.set(0, 0xdead_beef_00n);
  site.set(1, -5);
  site.set(2, 0.5);
  site.set(3, Uint8Array.from({ length: 128 }, (_, i) => i));
  site.set(4, -(2n ** 40n));
  site.set(5, 2 ** 32 - 1);
  site.launch(driver, 0x99n);

  const { name, args } = fake.calls.at(-1)!;
  const [config, kernel, parameters, extra] = args as [bigint, bigint, bigint, bigint];
  assertEquals([name, kernel, extra], ["cuLaunchKernelEx", 77n, 0n]);
  const at = hostBytes(config, 56);
  const words = Array.from({ length: 7 }, (_, i) => at.getUint32(4 * i, true));
  assertEquals(words, [10, 2, 3, 128, 4, 1, 1024]);
  assertEquals([at.getBigUint64(32, true), at.getUint32(48, true)], [0x99n, 1]);
  const attribute = hostBytes(at.getBigUint64(40, true), 72);
  assertEquals([attribute.getUint32(0, true), attribute.getUint32(8, true)], [6, 1]);

  const addresses = hostBytes(parameters, 6 * 8);
  const argument = (i: number, bytes = 8) => hostBytes(addresses.getBigUint64(8 * i, true), bytes);
  assertEquals(argument(0).getBigUint64(0, true), 0xdead_beef_00n);
  assertEquals([argument(1).getInt32(0, true), argument(2).getFloat32(0, true)], [-5, 0.5]);
  assertEquals(addresses.getBigUint64(24, true) % 128n, 0n, "a tensor map is aligned");
  assertEquals(argument(3, 128).getUint8(127), 127);
  assertEquals(argument(4).getBigInt64(0, true), -(2n ** 40n));
  assertEquals(argument(5).getUint32(0, true), 2 ** 32 - 1);

  // What is not set again stays; addresses never move; attributes can go.
  site.set(1, 6);
  site.setGeometry({ grid: [1, 1, 1], block: [32, 1, 1] });
  site.launch(driver, 0x99n);
  assertEquals(fake.calls.at(-1)!.args, args);
  assertEquals([argument(1).getInt32(0, true), argument(2).getFloat32(0, true)], [6, 0.5]);
  const again = hostBytes(config, 56);
  assertEquals([again.getUint32(0, true), again.getUint32(24, true)], [1, 0]);
  assertEquals(again.getUint32(48, true), 0);
});

Deno.test("an argument of the wrong kind is refused before it is packed", () => {
  const site = new LaunchSite(1n, "k", ["pointer", "i32", "u32", "map"]);
  const wrong = [[0, 1], [1, 2 ** 31], [1, 0.5], [2, -1], [3, new Uint8Array(64)], [4, 1]] as const;
  for (const [index, value] of wrong) {
    assertThrows(() => site.set(index, value), TypeError, `argument ${index} of k is `);
  }
  const many = new Array(33).fill("i32");
  assertThrows(() => new LaunchSite(1n, "k", many), RangeError, "kernel k has 33 arguments");
});

Deno.test("the arena grows for the largest program and says that it moved", () => {
  const fake = fakeDriver();
  const memory = new DeviceMemory(new Driver(fake.symbols));
  const allocated = () =>
    fake.calls.filter(({ name }) => name === "cuMemAlloc_v2").map(({ args }) => args[1]);
  memory.reserve(1000);
  const first = memory.arena;
  memory.reserve(800);
  assertEquals([memory.arena, memory.generation, allocated()], [first, 1, [1024n]]);
  memory.reserve(5000);
  assertEquals([memory.generation, allocated()], [2, [1024n, 5120n]]);
  assertEquals(fake.calls.find(({ name }) => name === "cuMemFree_v2")!.args, [first]);
  const block = memory.allocate(0);
  assertEquals(allocated().at(-1), 256n);
  memory.close();
  const freed = fake.calls.filter(({ name }) => name === "cuMemFree_v2").map(({ args }) => args[0]);
  assertEquals(freed, [first, memory.arena, block.address]);
});

Deno.test("a graph is captured, made ready, launched and freed in that order", () => {
  const fake = fakeDriver();
  const driver = new Driver(fake.symbols);
  const stream = driver.createStream();
  const site = new LaunchSite(5n, "k", []);
  fake.calls.length = 0;
  const graph = driver.capture(stream, () => site.launch(driver, stream));
  driver.uploadGraph(graph, stream);
  driver.launchGraph(graph, stream);
  driver.synchronize(stream);
  driver.destroyGraph(graph);
  assertEquals(names(fake.calls), [
    "cuStreamBeginCapture_v2",
    "cuLaunchKernelEx",
    "cuStreamEndCapture",
    "cuGraphInstantiateWithFlags",
    "cuGraphDestroy",
    "cuGraphUpload",
    "cuGraphLaunch",
    "cuStreamSynchronize",
    "cuGraphExecDestroy",
  ]);
  assertEquals(fake.calls[0]!.args, [stream, 1]);
  assert(fake.calls[3]!.args[1] !== graph, "what is launched is not the template");
});

Deno.test("a capture that fails ends, and reports the first error", () => {
  const fake = fakeDriver();
  const driver = new Driver(fake.symbols);
  fake.calls.length = 0;
  const issue = () => {
    throw new TypeError("first");
  };
  assertThrows(() => driver.capture(3n, issue), TypeError, "first");
  assertEquals(names(fake.calls), [
    "cuStreamBeginCapture_v2",
    "cuStreamEndCapture",
    "cuGraphDestroy",
  ]);
});

Deno.test("events: not ready is an answer, a fault is an error", () => {
  const fake = fakeDriver();
  const driver = new Driver(fake.symbols);
  assertEquals(driver.isDone(1n), true);
  fake.codes.set("cuEventQuery", 600);
  assertEquals(driver.isDone(1n), false);
  fake.codes.set("cuEventQuery", 700);
  const error = assertThrows(() => driver.isDone(1n), CudaError);
  assertEquals([error.code, error.status], [700, "CUDA_ERROR_ILLEGAL_ADDRESS"]);
  assertEquals(driver.elapsed(1n, 2n), 1.5);
});

Deno.test("streams and events do what they are told in order", () => {
  const fake = fakeDriver();
  const driver = new Driver(fake.symbols);
  const [one, two] = [driver.createStream(), driver.createStream()];
  const event = driver.createEvent();
  fake.calls.length = 0;
  driver.zero(64n, 32, one);
  driver.recordEvent(event, one);
  driver.waitEvent(two, event);
  driver.copy(128n, 64n, 32, two);
  assertEquals(fake.calls.map(({ name, args }) => [name, ...args]), [
    ["cuMemsetD8Async", 64n, 0, 32n, one],
    ["cuEventRecord", event, one],
    ["cuStreamWaitEvent", two, event, 0],
    ["cuMemcpyDtoDAsync_v2", 128n, 64n, 32n, two],
  ]);
});

Deno.test("only what exceeds the plain limit asks for more shared memory", () => {
  const fake = fakeDriver();
  const driver = new Driver(fake.symbols);
  fake.calls.length = 0;
  driver.allowShared(9n, 48 * 1024);
  driver.allowShared(9n, 200 * 1024);
  assertEquals(fake.calls, [{ name: "cuFuncSetAttribute", args: [9n, 8, 200 * 1024] }]);
});

Deno.test("a tensor map is asked for with strides in bytes, at a multiple of its size", () => {
  const fake = fakeDriver();
  const driver = new Driver(fake.symbols);
  fake.calls.length = 0;
  const tensor = boxesOf({ shape: [2, 3, 100, 128] }, 4096n, [64, 128]);
  assertEquals(tensor, { address: 4096n, sizes: [128, 100, 6], box: [64, 128, 1] });
  const map = driver.encodeTensorMap(tensor);
  assertEquals(map.length, 128);
  assertEquals(Deno.UnsafePointer.value(Deno.UnsafePointer.of(map)) % 128n, 0n);
  const [{ name, args }] = fake.calls as [{ name: string; args: unknown[] }];
  assertEquals([name, ...args.slice(1)], [
    ...["cuTensorMapEncodeTiled", 9, 3, 4096n],
    ...[BigUint64Array.of(128n, 100n, 6n), BigUint64Array.of(256n, 25600n)],
    ...[Uint32Array.of(64, 128, 1), Uint32Array.of(1, 1, 1)],
    ...[0, 3, 2, 0],
  ]);
});

Deno.test("codes become errors with a name, what was being done and a hint", () => {
  const fake = fakeDriver();
  const driver = new Driver(fake.symbols);
  fake.codes.set("cuMemAlloc_v2", 2);
  const error = assertThrows(() => driver.allocate(4096), CudaError);
  assertEquals(
    error.message,
    "cannot allocate 4096 bytes on the device: CUDA_ERROR_OUT_OF_MEMORY (2)",
  );
  assertEquals([error.kind, error.hints.length], ["environment", 1]);
  for (let code = 1; code < 1000; code++) {
    const each = assertThrows(() => checkDriver(code, "test"), CudaError);
    assert(each.hints[0]!.length > 10);
  }
  const texts = [
    [() => checkDriver(999, "a"), "CUDA_ERROR_UNKNOWN (999)"],
    [() => checkDriver(12345, "a"), "an unknown CUresult (12345)"],
    [() => checkNvrtc(7, "a"), "NVRTC_ERROR_BUILTIN_OPERATION_FAILURE (7)"],
    [() => checkCublas(1, "a"), "CUBLAS_STATUS_NOT_INITIALIZED (1)"],
  ] as const;
  for (const [call, text] of texts) {
    assertStringIncludes(assertThrows(call, CudaError).message, text);
  }
});
