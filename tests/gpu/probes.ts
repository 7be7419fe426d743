/** The machine under test, and the small kernels of `probes.cu` ready to launch on it. */
import { CudaDevice, type CudaMachine } from "../../core/runtime/cuda/device.ts";
import { Driver } from "../../core/runtime/cuda/driver/driver.ts";
import { KERNEL_HEADERS } from "../../core/runtime/cuda/kernels/headers.ts";
import {
  type ArgumentType,
  type Geometry,
  LaunchSite,
} from "../../core/runtime/cuda/driver/launch.ts";
import type { ElementType } from "../../core/runtime/cuda/tensor.ts";
import { architectureOf } from "../../core/runtime/cuda/driver/nvrtc.ts";
import { openMachine } from "../../core/runtime/cuda/open.ts";
import { autotuneRecords } from "../../core/runtime/cuda/autotune.ts";
import { emulatedMachine } from "../emulator/mod.ts";

/** The real libraries, or the emulator, which tries the scripts but measures nothing. */
export function machineFor(emulated: boolean): CudaMachine {
  if (!emulated) return openMachine().machine;
  const { driver, compiler, products } = emulatedMachine({ memoryBytes: 2 ** 34, eager: true });
  return { driver, compiler, products: () => products };
}

/** A device on such a machine. */
export function openDeviceFor(emulated: boolean, elements: ElementType): CudaDevice {
  // As `openCuda` opens one, but for the cache of kernels.
  const choices = emulated ? {} : { wgmma: "autotune", records: autotuneRecords() } as const;
  return new CudaDevice(machineFor(emulated), { elements, ...choices });
}

/** GPUs that the driver shows. */
export function deviceCount({ driver }: CudaMachine): number {
  const count = new Int32Array(1);
  driver.cuInit(0);
  if (driver.cuDeviceGetCount(count) !== 0) throw new Error("the driver cannot count its devices");
  return count[0]!;
}

/** Kernels that find something out. */
export class Probes {
  readonly driver: Driver;
  readonly stream: bigint;
  readonly architecture: string;
  readonly #module: bigint;

  /** Compiles them for the device. */
  constructor(machine: CudaMachine) {
    this.driver = new Driver(machine.driver);
    this.stream = this.driver.createStream();
    const { major, minor } = this.driver.deviceInfo();
    const text = Deno.readTextFileSync(new URL("probes.cu", import.meta.url));
    const source = {
      name: "probes.cu",
      text: `#include "common/turn.cuh"\n${text}`,
      headers: KERNEL_HEADERS,
    };
    this.architecture = architectureOf(major, minor);
    const target = { architecture: this.architecture, defines: {} };
    this.#module = this.driver.loadModule(machine.compiler.compile(source, target).bytes, "probes");
  }

  /** A launch of one of them with its arguments. */
  site(
    entry: string,
    geometry: Geometry,
    list: readonly (readonly [ArgumentType, number | bigint])[],
  ): LaunchSite {
    const kernel = this.driver.getFunction(this.#module, entry);
    this.driver.allowShared(kernel, geometry.shared ?? 0);
    const site = new LaunchSite(kernel, entry, list.map(([type]) => type));
    site.setGeometry(geometry);
    list.forEach(([, value], i) => site.set(i, value));
    return site;
  }

  /** Milliseconds of what `issue` puts into the stream: the median of a few rounds after one to warm up. */
  time(issue: () => void, rounds = 5): number {
    const [start, end] = [true, true].map((timing) => this.driver.createEvent({ timing }));
    const times: number[] = [];
    for (let round = 0; round <= rounds; round++) {
      this.driver.recordEvent(start!, this.stream);
      issue();
      this.driver.recordEvent(end!, this.stream);
      this.driver.waitFor(end!);
      if (round > 0) times.push(this.driver.elapsed(start!, end!));
    }
    for (const event of [start!, end!]) this.driver.destroyEvent(event);
    return times.toSorted((a, b) => a - b)[Math.floor(rounds / 2)]!;
  }
}
