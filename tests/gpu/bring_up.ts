/**
 * What has to work, and how fast the machine is, before anything of a model runs on it.
 *
 * Each probe finds one thing out. Its figure is the ceiling that the benchmarks are measured against,
 * so they run in the same process; a value that is wrong throws.
 */
import { assertEquals } from "@std/assert";
import type { CudaMachine } from "../../core/runtime/cuda/device.ts";
import { DeviceMemory } from "../../core/runtime/cuda/device_memory.ts";
import { startsEarly } from "../../core/runtime/cuda/kernel_loader.ts";
import {
  linearProduct,
  Products,
  WORKSPACE_BYTES,
} from "../../core/runtime/cuda/driver/cublaslt.ts";
import { Probes } from "./probes.ts";

/** What one probe found. */
export interface Finding {
  readonly name: string;
  readonly figure: number;
  readonly unit: string;
}

/** Ceilings of the machine. */
export interface Ceilings {
  /** Bytes per second that can be read. */
  readonly readRate: number;
  /** bf16 operations per second of a large product. */
  readonly flopRate: number;
}

/** Sizes of the probes; small ones for the emulator, where only the values count. */
export interface ProbeSizes {
  readonly copyBytes: number;
  readonly product: number;
}

const NODES = 200;
/** Launches of a chain; an even number. */
const CHAIN = 20;
const SHARED_BYTES = 200 * 1024;

/** Runs all probes in order. */
export function bringUp(
  machine: CudaMachine,
  sizes: ProbeSizes,
): { findings: Finding[]; ceilings: Ceilings } {
  const probes = new Probes(machine);
  const findings: Finding[] = [];
  const add = (name: string, figure: number, unit: string) => findings.push({ name, figure, unit });
  checkCopy(probes);
  checkShared(probes);
  const rates = bandwidth(probes, sizes.copyBytes);
  add("device copy, reads and writes", rates.copy / 1e12, "TB/s");
  add("reading alone", rates.read / 1e12, "TB/s");
  const product = productRate(machine, probes, sizes.product);
  add(`bf16 product of ${sizes.product}³`, product.rate / 1e12, "TFLOP/s");
  add("first product: library and algorithm", product.firstMs, "ms");
  add("node of a graph", nodeTime(probes, false), "µs");
  if (startsEarly(probes.architecture, probes.driver.version)) {
    checkChain(probes);
    add("node that may start early", nodeTime(probes, true), "µs");
  }
  add("launch and wait", launchTime(probes), "µs");
  add("number in mapped memory", ringTime(probes), "µs");
  probes.driver.destroyStream(probes.stream);
  return { findings, ceilings: { readRate: rates.read, flopRate: product.rate } };
}

function checkCopy(probes: Probes): void {
  const { driver, stream } = probes;
  const data = Float32Array.from({ length: 1000 }, (_, i) => i * 0.5);
  const [x, y] = [driver.allocate(data.byteLength), driver.allocate(data.byteLength)];
  driver.upload(x, data);
  probes.site("probe_copy", { grid: [4, 1, 1], block: [256, 1, 1] }, [
    ["pointer", y],
    ["pointer", x],
    ["i32", data.length],
  ]).launch(driver, stream);
  driver.synchronize(stream);
  const result = new Float32Array(data.length);
  driver.download(result, y);
  assertEquals(result, data);
  for (const address of [x, y]) driver.free(address);
}

function checkShared(probes: Probes): void {
  const { driver, stream } = probes;
  const shared = Math.min(SHARED_BYTES, driver.deviceInfo().sharedBytesPerBlock);
  const sum = driver.allocate(4);
  probes.site("probe_shared", { grid: [1, 1, 1], block: [256, 1, 1], shared }, [
    ["pointer", sum],
    ["i32", shared / 4],
  ]).launch(driver, stream);
  driver.synchronize(stream);
  const result = new Float32Array(1);
  driver.download(result, sum);
  assertEquals(result[0], shared / 4);
  driver.free(sum);
}

/** Many launches that may start early, each on the result of the one before, alone and as a graph. */
function checkChain(probes: Probes): void {
  const { driver, stream } = probes;
  const count = 100_000;
  let expected = Uint32Array.from({ length: count }, (_, i) => i);
  const buffers = [driver.allocate(4 * count), driver.allocate(4 * count)] as const;
  driver.upload(buffers[0], expected);
  const grid = [Math.ceil(count / 256), 1, 1] as const;
  const geometry = { grid, block: [256, 1, 1], early: true } as const;
  const sites = [0, 1].map((i) =>
    probes.site("probe_chain", geometry, [
      ["pointer", buffers[1 - i]!],
      ["pointer", buffers[i]!],
      ["i32", count],
    ])
  );
  const issue = () => {
    for (let i = 0; i < CHAIN; i++) sites[i % 2]!.launch(driver, stream);
  };
  issue();
  const graph = driver.capture(stream, issue);
  driver.launchGraph(graph, stream);
  driver.synchronize(stream);
  driver.destroyGraph(graph);
  for (let round = 0; round < 2 * CHAIN; round++) {
    const x = expected;
    expected = x.map((_, i) => 3 * x[(i + 1) % count]! + x[(i + count / 2) % count]! + 1);
  }
  const result = new Uint32Array(count);
  driver.download(result, buffers[0]);
  assertEquals(result, expected);
  for (const address of buffers) driver.free(address);
}

/** Bytes per second; a copy counts what it reads and what it writes. */
function bandwidth(probes: Probes, bytes: number): { copy: number; read: number } {
  const { driver, stream } = probes;
  const [from, to] = [driver.allocate(bytes), driver.allocate(bytes)];
  driver.zero(from, bytes, stream);
  const copyMs = probes.time(() => driver.copy(to, from, bytes, stream));
  const blocks = driver.deviceInfo().processors * 4;
  const read = probes.site("probe_read", { grid: [blocks, 1, 1], block: [512, 1, 1] }, [
    ["pointer", to],
    ["pointer", from],
    ["i64", BigInt(bytes / 16)],
  ]);
  const readMs = probes.time(() => read.launch(driver, stream));
  for (const address of [from, to]) driver.free(address);
  return { copy: 2000 * bytes / copyMs, read: 1000 * bytes / readMs };
}

function productRate(
  machine: CudaMachine,
  probes: Probes,
  size: number,
): { rate: number; firstMs: number } {
  const { driver, stream } = probes;
  const memory = new DeviceMemory(driver);
  const [a, b, d] = [0, 1, 2].map(() => memory.allocate(size * size * 2)) as [
    { address: bigint },
    { address: bigint },
    { address: bigint },
  ];
  for (const { address } of [a, b]) {
    const grid = [Math.ceil(size * size / 256), 1, 1] as const;
    probes.site("probe_random", { grid, block: [256, 1, 1] }, [
      ["pointer", address],
      ["i64", BigInt(size * size)],
    ]).launch(driver, stream);
  }
  driver.synchronize(stream);
  const start = performance.now();
  const products = new Products(machine.products(), memory.allocate(WORKSPACE_BYTES));
  const product = products.prepare(linearProduct(size, size, size, "bf16", false));
  const operands = { a: a.address, b: b.address, bias: 0n, d: d.address };
  const run = () => products.launch(product, operands, stream);
  run();
  driver.synchronize(stream);
  const firstMs = performance.now() - start;
  const ms = probes.time(run);
  products.close();
  memory.close();
  return { rate: 2 * size ** 3 / ms * 1000, firstMs };
}

/** Microseconds per node of a graph of kernels that do nothing. */
function nodeTime(probes: Probes, early: boolean): number {
  const { driver, stream } = probes;
  const site = probes.site("probe_nothing", { grid: [1, 1, 1], block: [32, 1, 1], early }, [
    ["i32", 1],
  ]);
  site.launch(driver, stream);
  driver.synchronize(stream);
  const graph = driver.capture(stream, () => {
    for (let i = 0; i < NODES; i++) site.launch(driver, stream);
  });
  driver.uploadGraph(graph, stream);
  const ms = probes.time(() => driver.launchGraph(graph, stream));
  driver.destroyGraph(graph);
  return ms * 1000 / NODES;
}

/** Microseconds from a launch until the host knows that it is done. */
function launchTime(probes: Probes): number {
  const { driver, stream } = probes;
  const site = probes.site("probe_nothing", { grid: [1, 1, 1], block: [32, 1, 1] }, [["i32", 1]]);
  const times = Array.from({ length: 50 }, () => {
    const start = performance.now();
    site.launch(driver, stream);
    driver.synchronize(stream);
    return performance.now() - start;
  });
  return times.toSorted((a, b) => a - b)[25]! * 1000;
}

/** Microseconds until the host sees a number that a kernel wrote into its memory. */
function ringTime(probes: Probes): number {
  const { driver, stream } = probes;
  const pinned = driver.allocatePinned(64, { mapped: true });
  const ring = new Int32Array(pinned.buffer);
  const site = probes.site("probe_ring", { grid: [1, 1, 1], block: [32, 1, 1] }, [
    ["pointer", pinned.device],
    ["i32", 0],
  ]);
  const times = Array.from({ length: 50 }, (_, i) => {
    site.set(1, i + 1);
    const start = performance.now();
    site.launch(driver, stream);
    while (Atomics.load(ring, 0) !== i + 1) {
      if (performance.now() - start > 1000) throw new Error("Cannot see what the device wrote");
    }
    return performance.now() - start;
  });
  driver.synchronize(stream);
  driver.freePinned(pinned);
  return times.toSorted((a, b) => a - b)[25]! * 1000;
}
