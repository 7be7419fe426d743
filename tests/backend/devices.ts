/** Devices under test on this machine, each opened once. */
import type { Device } from "../../core/runtime/device.ts";
import { CpuDevice } from "../../core/runtime/onnx/device.ts";
import { ReferenceDevice } from "../../core/runtime/reference/device.ts";

/** What every device is measured against. */
export const reference: Device = new ReferenceDevice("f64");

/** Devices that must agree with the reference. */
export const devices: readonly { readonly name: string; readonly device: Device }[] = [
  { name: "reference in f32", device: new ReferenceDevice("f32") },
  { name: "cpu", device: new CpuDevice() },
  { name: "cpu, one thread", device: new CpuDevice({ threads: 1 }) },
];
