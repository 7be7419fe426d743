/** Devices under test on this machine, each opened once. */
import { CudaDevice } from "../../core/runtime/cuda/device.ts";
import type { Device } from "../../core/runtime/device.ts";
import { CpuDevice } from "../../core/runtime/onnx/device.ts";
import { ReferenceDevice } from "../../core/runtime/reference/device.ts";
import { emulatedMachine, emulatorPresent } from "../emulator/mod.ts";

/** What every device is measured against. */
export const reference: Device = new ReferenceDevice("f64");

/** The cuda device on a processor that stands in for a GPU. */
export function openEmulated(elements: "f32" | "bf16" = "f32", machine = emulatedMachine()) {
  const { driver, compiler, products } = machine;
  return new CudaDevice({ driver, compiler, products: () => products }, { elements });
}

/** Devices that must agree with the reference. */
export const devices: readonly { readonly name: string; readonly device: Device }[] = [
  { name: "reference in f32", device: new ReferenceDevice("f32") },
  { name: "cpu", device: new CpuDevice() },
  { name: "cpu, one thread", device: new CpuDevice({ threads: 1 }) },
  ...(emulatorPresent() ? [{ name: "cuda, emulated", device: openEmulated() }] : []),
];
