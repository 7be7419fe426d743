/** Devices under test on this machine, each opened once. */
import { CudaDevice } from "../../core/runtime/cuda/device.ts";
import { openCuda } from "../../core/runtime/cuda/open.ts";
import type { Device } from "../../core/runtime/device.ts";
import { CpuDevice } from "../../core/runtime/onnxruntime/cpu.ts";
import { ReferenceDevice } from "../../core/runtime/reference/device.ts";
import { TfjsDevice } from "../../core/runtime/tfjs/device.ts";
import { emulatedMachine, emulatorPresent } from "../emulator/mod.ts";

/** Reference against which every device is measured. */
export const reference: Device = new ReferenceDevice("f64");

/** True if tests of the cuda device run on the first GPU of this machine; see `tests/gpu/run.ts`. */
const onGpu = Deno.env.get("PARSCALE_TEST_GPU") === "1";

/** True in `test:emulated`, which tries what emulates cuda and the further forms of the other devices. */
const isSecondRun = Deno.env.get("PARSCALE_TEST_EMULATED") === "1";
const onEmulator = isSecondRun && emulatorPresent();

/** Name of the cuda device in the names of tests; undefined where it is not under test. */
export const CUDA: string | undefined = onGpu ? "cuda" : onEmulator ? "cuda, emulated" : undefined;

/** The cuda device on a processor that stands in for a GPU. */
export function openEmulated(
  elements: "f32" | "bf16" = "f32",
  machine = emulatedMachine(),
): CudaDevice {
  return new CudaDevice(machine, { elements });
}

/** The cuda device: on a GPU where tests are to run on one, else emulated. */
export function openTestCuda(elements: "f32" | "bf16" = "f32"): CudaDevice {
  return onGpu ? openCuda(0, elements, { unverified: true }) : openEmulated(elements);
}

/** The tfjs device on TensorFlow.js alone: same ops, no native library. */
export async function openTfjsInJavaScript(): Promise<TfjsDevice> {
  const tf = await import("@tensorflow/tfjs-core"); // a GPU machine's copy of the project leaves it out
  await import("@tensorflow/tfjs-backend-cpu");
  tf.enableProdMode(); // else it advises on stderr to install the native package
  await tf.setBackend("cpu");
  return new TfjsDevice(tf);
}

/** A device, and how tests call it. */
export interface NamedDevice {
  readonly name: string;
  readonly device: Device;
}

/** Opens the devices that are under test besides cuda. */
async function openOthers(): Promise<NamedDevice[]> {
  if (onGpu) return [];
  return isSecondRun
    ? [
      { name: "cpu, one thread", device: new CpuDevice({ threads: 1 }) },
      { name: "tfjs in JavaScript", device: await openTfjsInJavaScript() },
    ]
    : [
      { name: "reference in f32", device: new ReferenceDevice("f32") },
      { name: "cpu", device: new CpuDevice() },
    ];
}

/** Devices that must agree with the reference. On a GPU, cuda alone. */
export const devices: readonly NamedDevice[] = [
  ...await openOthers(),
  ...(CUDA ? [{ name: CUDA, device: openTestCuda() }] : []),
];

/** Devices that sample tokens themselves, by name. */
export const samplers: readonly (readonly [name: string, open: () => Device])[] = [
  ["reference", () => reference],
  ...(CUDA ? [[CUDA, () => openTestCuda()] as const] : []),
];

/** Registers tests, which are skipped where the condition does not hold. */
export const testIf =
  (condition: unknown) => (name: string, fn: () => void | Promise<void>): void =>
    Deno.test({ name, ignore: !condition, fn });
