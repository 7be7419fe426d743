/** The CUDA driver layer against a stand-in: packing, offsets, order of calls, errors. No GPU. */
import { assert, assertEquals, assertStringIncludes, assertThrows } from "@std/assert";
import { Driver, formatVersion } from "../../../../core/runtime/cuda/driver/driver.ts";
import {
  checkCublas,
  checkDriver,
  checkNvrtc,
  CudaError,
} from "../../../../core/runtime/cuda/driver/errors.ts";
import { Launch } from "../../../../core/runtime/cuda/driver/launch.ts";
import { DeviceMemory } from "../../../../core/runtime/cuda/memory.ts";
import { type FakeDriver, fakeDriver, hostBytes } from "./testing.ts";

const BLOCK = { grid: [1, 1, 1], block: [32, 1, 1] } as const;

const names = ({ calls }: FakeDriver) => calls.map(({ name }) => name).join(" ");

/** Opens a stand-in and forgets the calls that this took. */
function openFake() {
  const fake = fakeDriver();
  const driver = new Driver(fake.symbols);
  fake.calls.length = 0;
  return { fake, driver };
}

Deno.test("opening a device makes its primary context current", () => {
  const fake = fakeDriver();
  const driver = new Driver(fake.symbols);
  const opening = "cuInit cuDriverGetVersion cuDeviceGetCount cuDeviceGet cuDevicePrimaryCtxRetain";
  assertEquals(names(fake), `${opening} cuCtxSetCurrent`);
  assertEquals(formatVersion(driver.version), "13.0");
  const info = driver.deviceInfo();
  assertEquals([info.name, info.major, info.minor], ["Fake", 75, 76]);
  assertEquals(driver.memoryInfo(), { free: 5, total: 7 });
});

Deno.test("a context is made current when another one is, and is forgotten when it is released", () => {
  const fake = fakeDriver();
  const [first, second] = [new Driver(fake.symbols), new Driver(fake.symbols)];
  const madeCurrent = () =>
    fake.calls.filter(({ name }) => name === "cuCtxSetCurrent").map(({ args }) => args[0]);
  const [one, two] = madeCurrent();
  assert(one !== two);
  fake.calls.length = 0;
  for (const driver of [first, first, second, second, first]) driver.allocate(256);
  first.close();
  first.activate();
  assertEquals(madeCurrent(), [one, two, one, one]);
});

Deno.test("a device that is not there and an old driver are named", () => {
  const fake = fakeDriver();
  assertThrows(() => new Driver(fake.symbols, 1), Error, "no CUDA device 1: the driver lists 1");
  const symbols = {
    ...fake.symbols,
    cuDriverGetVersion: (out: Int32Array) => (out[0] = 11080, 0),
  } as unknown as typeof fake.symbols;
  const message = "too old: it has CUDA 11.8, expected at least 12.0";
  assertThrows(() => new Driver(symbols), Error, message);
});

Deno.test("a launch is packed as the driver reads it", () => {
  const { fake, driver } = openFake();
  const config = { grid: [10, 2, 3], block: [128, 4, 1] } as const;
  const launch = new Launch(77n, "k", ["pointer", "i32", "f32", "i64"], config);
  launch.set(0, 0xdead_beef_00n);
  launch.set(1, -5);
  launch.set(2, 0.5);
  launch.set(3, -(2n ** 40n));
  driver.launch(launch, 0x99n);

  const { name, args } = fake.calls.at(-1)!;
  assertEquals([name, ...args.slice(0, 9)], ["cuLaunchKernel", 77n, 10, 2, 3, 128, 4, 1, 0, 0x99n]);
  const [parameters, extra] = args.slice(9) as [bigint, bigint];
  assertEquals(extra, 0n);
  const addresses = hostBytes(parameters, 4 * 8);
  const argument = (i: number) => hostBytes(addresses.getBigUint64(8 * i, true), 8);
  assertEquals(argument(0).getBigUint64(0, true), 0xdead_beef_00n);
  assertEquals([argument(1).getInt32(0, true), argument(2).getFloat32(0, true)], [-5, 0.5]);
  assertEquals(argument(3).getBigInt64(0, true), -(2n ** 40n));

  // Arguments that are not set again stay, and addresses never move.
  launch.set(1, 6);
  driver.launch(launch, 0x99n);
  assertEquals(fake.calls.at(-1)!.args, args);
  assertEquals([argument(1).getInt32(0, true), argument(2).getFloat32(0, true)], [6, 0.5]);
});

Deno.test("a launch of an empty grid is left out", () => {
  const { fake, driver } = openFake();
  driver.launch(new Launch(1n, "k", [], { ...BLOCK, grid: [4, 0, 1] }), 3n);
  assertEquals(fake.calls, []);
});

Deno.test("an argument of the wrong kind is refused before it is packed", () => {
  const launch = new Launch(1n, "k", ["pointer", "i32", "i64"], BLOCK);
  const wrong = [[0, 1], [1, 2 ** 31], [1, 0.5], [1, 1n], [2, -1], [3, 1]] as const;
  for (const [index, value] of wrong) {
    assertThrows(() => launch.set(index, value), TypeError, `argument ${index} of k is `);
  }
});

Deno.test("the arena grows for the largest program, and moves", () => {
  const fake = fakeDriver();
  const memory = new DeviceMemory(new Driver(fake.symbols));
  const allocated = () =>
    fake.calls.filter(({ name }) => name === "cuMemAlloc_v2").map(({ args }) => args[1]);
  memory.reserve(1000);
  const first = memory.arena;
  memory.reserve(800);
  assertEquals([memory.arena, allocated()], [first, [1024n]]);
  memory.reserve(5000);
  assertEquals([memory.arena === first, allocated()], [false, [1024n, 5120n]]);
  assertEquals(fake.calls.find(({ name }) => name === "cuMemFree_v2")!.args, [first]);
  const block = memory.allocate(0);
  assertEquals(allocated().at(-1), 256n);
  memory.close();
  const freed = fake.calls.filter(({ name }) => name === "cuMemFree_v2").map(({ args }) => args[0]);
  assertEquals(freed, [first, memory.arena, block.address]);
});

Deno.test("a graph is captured, made ready, launched and freed in that order", () => {
  const { fake, driver } = openFake();
  const [stream, launch] = [9n, new Launch(5n, "k", [], BLOCK)];
  const graph = driver.capture(stream, () => driver.launch(launch, stream));
  driver.launchGraph(graph, stream);
  driver.synchronize(stream);
  driver.destroyGraph(graph);
  assertEquals(
    names(fake),
    "cuStreamBeginCapture_v2 cuLaunchKernel cuStreamEndCapture cuGraphInstantiateWithFlags " +
      "cuGraphDestroy cuGraphLaunch cuStreamSynchronize cuGraphExecDestroy",
  );
  assertEquals(fake.calls[0]!.args, [stream, 1]);
  assert(fake.calls[3]!.args[1] !== graph, "what is launched is not the template");
});

Deno.test("a capture that fails ends, and reports the first error", () => {
  const { fake, driver } = openFake();
  const issue = () => {
    throw new TypeError("first");
  };
  assertThrows(() => driver.capture(3n, issue), TypeError, "first");
  assertEquals(names(fake), "cuStreamBeginCapture_v2 cuStreamEndCapture cuGraphDestroy");
});

Deno.test("events: not ready is an answer, a fault is an error", () => {
  const { fake, driver } = openFake();
  assertEquals(driver.isDone(1n), true);
  fake.codes.set("cuEventQuery", 600);
  assertEquals(driver.isDone(1n), false);
  fake.codes.set("cuEventQuery", 700);
  assertThrows(() => driver.isDone(1n), CudaError, "CUDA_ERROR_ILLEGAL_ADDRESS (700)");
  assertEquals(driver.elapsed(1n, 2n), 1.5);
});

Deno.test("codes become errors with a name, what was being done and a hint", () => {
  const { fake, driver } = openFake();
  fake.codes.set("cuMemAlloc_v2", 2);
  const error = assertThrows(() => driver.allocate(4096), CudaError);
  const message = "cannot allocate 4096 bytes on the device: CUDA_ERROR_OUT_OF_MEMORY (2)";
  assertEquals([error.message, error.kind, error.hints.length], [message, "environment", 1]);
  for (let code = 1; code < 1000; code++) {
    const each = assertThrows(() => checkDriver(code, "test"), CudaError);
    assert(each.hints[0]!.length > 10);
  }
  const texts = [
    [() => checkDriver(999, "a"), "CUDA_ERROR_UNKNOWN (999)"],
    [() => checkDriver(12345, "a"), "CUDA_ERROR (12345)"],
    [() => checkNvrtc(7, "a"), "NVRTC_ERROR_BUILTIN_OPERATION_FAILURE (7)"],
    [() => checkCublas(1, "a"), "CUBLAS_STATUS_NOT_INITIALIZED (1)"],
  ] as const;
  for (const [call, text] of texts) {
    assertStringIncludes(assertThrows(call, CudaError).message, text);
  }
});
