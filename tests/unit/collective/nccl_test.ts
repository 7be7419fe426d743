/** The calls of NCCL against a library in C that records them: values, order, errors and aborts. */
import { assertEquals, assertRejects, assertThrows } from "@std/assert";
import { EnvironmentError } from "../../../core/base/errors.ts";
import { Driver } from "../../../core/runtime/cuda/driver/driver.ts";
import { CudaError, NOT_READY } from "../../../core/runtime/cuda/driver/errors.ts";
import { type Host, SYSTEM } from "../../../core/runtime/cuda/driver/libraries.ts";
import { NcclGroup } from "../../../core/collective/nccl.ts";
import type { CudaDevice } from "../../../core/runtime/cuda/device.ts";
import type { CudaTensor } from "../../../core/runtime/cuda/memory.ts";
import { openNccl, uniqueId } from "../../../core/collective/nccl_library.ts";
import { fakeDriver } from "../runtime/cuda/testing.ts";

const STUB = {
  stubCalls: { parameters: ["buffer"], result: "i32" },
  stubSet: { parameters: ["i32", "i32"], result: "void" },
  stubAborted: { parameters: [], result: "i32" },
} as const;

/** Compiles the library; undefined where there is no compiler. */
function compileStub(): string | undefined {
  const source = new URL("nccl_stub.c", import.meta.url).pathname;
  const path = Deno.makeTempFileSync({ prefix: "parscale-nccl-", suffix: ".so" });
  try {
    const args = ["-shared", "-fPIC", "-o", path, source];
    if (new Deno.Command("gcc", { args, stderr: "null" }).outputSync().success) return path;
  } catch {
    // no gcc
  }
  Deno.removeSync(path);
  return undefined;
}

const path = compileStub();
const ignore = path === undefined;
const test = (name: string, body: () => void | Promise<void>) =>
  Deno.test(ignore ? `${name} (skipped: no gcc)` : name, { ignore }, body);

function open() {
  const stub = Deno.dlopen(path!, STUB).symbols;
  const host = { ...SYSTEM, env: (name: string) => name === "PARSCALE_NCCL" ? path : undefined };
  const nccl = openNccl({ host });
  const fake = fakeDriver();
  const driver = new Driver(fake.symbols);
  const device = {
    work: () => ({ driver, stream: 0x57n }),
    allocate: () => TENSOR,
    write: () => {},
    read: () => new Float32Array(512),
  } as unknown as CudaDevice;
  const connect = ({ timeoutMs = 1000, id = uniqueId(nccl.symbols) } = {}) =>
    new NcclGroup(nccl.symbols, device, id, { rank: 2, world: 4, timeoutMs });
  const calls = () => {
    const out = new BigInt64Array(64 * 8);
    const count = stub.stubCalls(out);
    return Array.from(
      { length: count },
      (_, i) => Array.from(out.subarray(8 * i, 8 * i + 8), Number),
    );
  };
  stub.stubSet(0, 0);
  return { stub, nccl, fake, connect, calls };
}

const TENSOR = { address: 0x10000n, shape: [4 * 256] } as unknown as CudaTensor;
const COMMUNICATOR = 0xc0ffee, STREAM = 0x57;

Deno.test("the package of NCCL is that of the driver's CUDA", () => {
  const packageFor = (version: number | undefined) => {
    const open = ((path: string) => {
      if (version === undefined || !path.includes("libcuda")) throw new Error("No such file");
      const driver = fakeDriver().symbols;
      const cuDriverGetVersion = (out: Int32Array) => (out[0] = version, 0);
      return { ...driver, cuDriverGetVersion };
    }) as unknown as Host["open"];
    const host = { env: () => undefined, list: () => [], open };
    return /`pip install (.*?)`/.exec(
      assertThrows(() => openNccl({ host }), EnvironmentError).hints[0]!,
    )?.[1];
  };
  assertEquals([12080, 13000, undefined].map(packageFor), [
    "nvidia-nccl-cu12",
    "nvidia-nccl-cu13",
    "nvidia-nccl-cu13",
  ]);
});

test("all 128 bytes of an id arrive by value, and a shorter one is refused", () => {
  const { nccl, connect, calls } = open();
  assertEquals(nccl.version, "2.30.7");
  connect();
  const sum = Array.from({ length: 128 }, (_, i) => (i * 7 + 3) % 256 * (i + 1))
    .reduce((a, b) => a + b);
  assertEquals(calls(), [[1, 4, sum, 2, 0, 0, 0, 0]]);
  assertThrows(() => connect({ id: new Uint8Array(127) }), RangeError, "128 bytes, not 127");
});

test("arguments come in the order of the header, and slices are in place", async () => {
  const { stub, connect, calls } = open();
  const ranks = connect();
  stub.stubSet(0, 0);
  await ranks.sum(new Array(256).fill(0));
  await ranks.allReduce(TENSOR);
  await ranks.reduceScatter(TENSOR);
  await ranks.allGather(TENSOR);
  await ranks.broadcast(TENSOR, 3);
  ranks.close();
  ranks.close();
  const [whole, slice] = [0x10000, 0x10000 + 2 * 256 * 4]; // of rank 2
  assertEquals(calls(), [
    [2, whole, whole, 256, 8, 0, COMMUNICATOR, STREAM],
    [2, whole, whole, 1024, 7, 0, COMMUNICATOR, STREAM],
    [3, whole, slice, 256, 7, 0, COMMUNICATOR, STREAM],
    [4, slice, whole, 256, 7, COMMUNICATOR, STREAM, 0],
    [5, whole, whole, 1024, 7, 3, COMMUNICATOR, STREAM],
    [6, COMMUNICATOR, 0, 0, 0, 0, 0, 0],
    [7, COMMUNICATOR, 0, 0, 0, 0, 0, 0],
  ]);
});

test("an error of a call or in the background aborts and is named", async () => {
  for (const [result, background] of [[6, 0], [0, 6], [7, 6]] as const) {
    const { stub, connect } = open();
    const ranks = connect();
    const before = stub.stubAborted();
    stub.stubSet(result, background);
    const error = await assertRejects(() => ranks.allReduce(TENSOR), CudaError);
    assertEquals(
      error.message,
      "cannot add up over all ranks: NCCL error 6, remote process exited: " +
        "connection closed by peer",
    );
    assertEquals(stub.stubAborted(), before + 1);
    ranks.close(); // there is nothing left to close
  }
  const { stub, connect } = open();
  stub.stubSet(2, 0);
  assertThrows(() => connect(), CudaError, "cannot connect 4 ranks: NCCL error 2, other");
});

test("an operation that never ends is aborted after the timeout", async () => {
  const { stub, fake, connect } = open();
  const ranks = connect({ timeoutMs: 30 });
  const before = stub.stubAborted();
  fake.codes.set("cuEventQuery", NOT_READY);
  await assertRejects(
    () => ranks.allReduce(TENSOR),
    EnvironmentError,
    "rank 2 of 4 got no answer from the others",
  );
  assertEquals(stub.stubAborted(), before + 1);
});

test("a barrier waits for longer than the timeout of the steps", async () => {
  const { fake, connect } = open();
  const group = connect({ timeoutMs: 30 });
  fake.codes.set("cuEventQuery", NOT_READY);
  setTimeout(() => fake.codes.delete("cuEventQuery"), 90);
  await group.barrier();
  fake.codes.set("cuEventQuery", NOT_READY);
  await assertRejects(() => group.sum([0]), EnvironmentError, "rank 2 of 4 got no answer");
});

globalThis.addEventListener("unload", () => path && Deno.removeSync(path));
