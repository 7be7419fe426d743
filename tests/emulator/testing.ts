/**
 * One machine behind the real driver layer, emulated or, where tests are to run on it, a GPU, with what a
 * test of kernels needs in few words.
 *
 * Takes kernel text and numbers; returns numbers. Everything allocated is freed by `close`, which
 * also checks the guards. Results are there only after `finish`.
 */
import { assertEquals } from "@std/assert";
import { fromF32, toF32 } from "../../core/base/dtype.ts";
import { Driver } from "../../core/runtime/cuda/driver/driver.ts";
import {
  type ArgumentType,
  Launch,
  type LaunchConfig,
} from "../../core/runtime/cuda/driver/launch.ts";
import type { ComputeType } from "../../core/runtime/cuda/memory.ts";
import type { DriverSymbols } from "../../core/runtime/cuda/driver/symbols.ts";
import type { CudaMachine } from "../../core/runtime/cuda/device.ts";
import { architectureOf } from "../../core/runtime/cuda/driver/nvrtc.ts";
import { KERNEL_HEADERS } from "../../core/runtime/cuda/kernels/define.ts";
import { openMachine } from "../../core/runtime/cuda/open.ts";
import { type EmulatedMachine, emulatedMachine, emulatorPresent } from "./mod.ts";

/** An argument of a kernel: a device address, a null address, or a number of some type. */
export type Argument = bigint | null | readonly [ArgumentType, number | bigint];

export class Bench {
  readonly machine: CudaMachine;
  readonly driver: Driver;
  readonly stream: bigint;
  readonly #allocated: bigint[] = [];

  constructor(machine: CudaMachine) {
    this.machine = machine;
    this.driver = new Driver(machine.driver);
    this.stream = this.driver.createStream();
  }

  /** A kernel of some text, compiled and loaded. */
  kernel(
    text: string,
    entry: string,
    { defines = {} }: { readonly defines?: Record<string, number> } = {},
  ): bigint {
    const source = { name: `${entry}.cu`, text, headers: KERNEL_HEADERS };
    const { major, minor } = this.driver.deviceInfo();
    const target = { architecture: architectureOf(major, minor), defines };
    const { bytes } = this.machine.compiler.compile(source, target);
    return this.driver.getFunction(this.driver.loadModule(bytes, entry), entry);
  }

  /** A kernel of up to 128 threads a block, from its name on. */
  kernelFrom(text: string): bigint {
    const head = `#include "common/ptx.cuh"\nextern "C" __global__ void __launch_bounds__(128) `;
    return this.kernel(head + text, /\w+/.exec(text)![0]);
  }

  launch(kernel: bigint, config: LaunchConfig, list: readonly Argument[]): void {
    const types = list.map((each) => Array.isArray(each) ? each[0] as ArgumentType : "pointer");
    const launch = new Launch(kernel, "test", types, config);
    list.forEach((each, i) => launch.set(i, Array.isArray(each) ? each[1] : each as bigint ?? 0n));
    this.driver.launch(launch, this.stream);
  }

  /** Device memory full of NaN. */
  empty(bytes: number): bigint {
    const address = this.driver.allocate(bytes);
    this.#allocated.push(address);
    this.driver.upload(address, new Uint8Array(bytes).fill(0xff), this.stream);
    return address;
  }

  /** Numbers in device memory, as they are or rounded to bf16. */
  put(
    values: Float32Array<ArrayBuffer> | Int32Array<ArrayBuffer>,
    type: ComputeType = "f32",
  ): bigint {
    const rounded = values instanceof Float32Array && type === "bf16";
    const bytes = rounded ? fromF32(values, "bf16") : values;
    const address = this.empty(bytes.byteLength);
    this.driver.upload(address, bytes, this.stream);
    return address;
  }

  /** Numbers from device memory, when everything issued is done. */
  get(address: bigint, count: number, type: ComputeType = "f32"): Float32Array<ArrayBuffer> {
    const bytes = new Uint8Array(count * (type === "f32" ? 4 : 2));
    this.driver.download(bytes, address, this.stream);
    return toF32(bytes, type);
  }

  /** Frees everything. */
  close(): void {
    this.driver.destroyStream(this.stream);
    for (const address of this.#allocated) this.driver.free(address);
    this.driver.close();
  }
}

/** A machine with one function replaced by that for the number of the call, from the original. */
export function machineWith<K extends keyof DriverSymbols>(
  name: K,
  call: (original: DriverSymbols[K], count: number) => DriverSymbols[K],
): EmulatedMachine {
  const machine = emulatedMachine();
  const original = machine.driver[name];
  let count = 0;
  const replaced = (...args: never[]) =>
    (call(original, ++count) as (...args: never[]) => number)(...args);
  return { ...machine, driver: { ...machine.driver, [name]: replaced } };
}

/** Numbers in [−1, 1) that bf16 has exactly, other ones for each seed. */
export function values(count: number, seed: number): Float32Array<ArrayBuffer> {
  return Float32Array.from(
    { length: count },
    (_, i) => ((i + 1) * 2654435761 * (2 * seed + 1) >>> 8) % 256 / 128 - 1,
  );
}

/** A test with an emulated machine of its own, which holds nothing afterwards; skipped without an emulator. */
export function testEmulated(name: string, body: (bench: Bench) => void): void {
  const present = emulatorPresent();
  Deno.test({
    name: present ? name : `${name}: found no g++`,
    ignore: !present,
    fn() {
      const machine = emulatedMachine();
      const bench = new Bench(machine);
      body(bench);
      bench.close();
      assertEquals(machine.usedBytes(), 0);
    },
  });
}

/** A test on the GPU where tests are to run on it, else on an emulated machine. */
export function test(name: string, body: (bench: Bench) => void): void {
  if (Deno.env.get("PARSCALE_TEST_GPU") !== "1") return testEmulated(name, body);
  Deno.test(name, () => {
    const bench = new Bench(openMachine());
    body(bench);
    bench.close();
  });
}
