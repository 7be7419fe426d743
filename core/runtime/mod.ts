/**
 * Opens devices by name; nothing of a device is loaded before it is asked for.
 */
import { UsageError } from "../base/errors.ts";
import { DEFAULT_BLOCK } from "../quant/codes.ts";
import type { Device } from "./device.ts";
import type { DeviceName } from "./traits.ts";

export type { Device } from "./device.ts";
export type { DeviceName } from "./traits.ts";

/** Device as a user names it: a device, one of several GPUs, or the fastest that is known to work. */
export type DeviceChoice = DeviceName | `cuda:${number}` | "auto";

/** Compute dtype; auto is bf16 on cuda and f32 elsewhere. */
export type ElementChoice = "auto" | "f32" | "bf16" | "f16";

/** Kind of the matrices of linear layers: exact, or in 8 or 4 bits. */
export type MatrixKind = "f32" | "q8" | "q4";

/** Options of a device; each device takes those that concern it. */
export interface DeviceOptions {
  /** Compute dtype; auto is bf16 on cuda and f32 elsewhere. */
  readonly dtype?: ElementChoice;
  /** Threads of the cpu device; default: the cores this process may use. */
  readonly threads?: number;
  /** Storage of matrices, where the device has a choice. */
  readonly matrices?: MatrixKind;
  /** Columns that share one scale in q8 and q4. */
  readonly block?: number;
  /** True if cpu gives a single row bit for bit the results of several, where that takes longer too. */
  readonly alikeRows?: boolean | undefined;
  /**
   * Elements of matrices above which the cpu device opens a model in parts. They share an arena, which the
   * process keeps with its way of growing.
   */
  readonly splitAbove?: number;
  /** True to use a GPU that has not passed `parscale doctor --device cuda`. */
  readonly unverified?: boolean;
}

/** Returns whether a device can keep matrices in 8 or 4 bits; the others are always exact. */
export function quantizes(device: DeviceChoice): boolean {
  return device === "auto" || device === "cpu" || device === "webgpu";
}

/**
 * Opens a device; `auto` is cpu, since cuda is unverified on a GPU.
 * @throws {EnvironmentError} when the device cannot be used on this machine
 */
export async function openDevice(name: DeviceChoice, options: DeviceOptions = {}): Promise<Device> {
  if (name.startsWith("cuda")) {
    const { openCuda } = await import("./cuda/open.ts");
    const elements = elementsFor(name, options, ["bf16", "f32"]);
    return openCuda(Number(name.split(":")[1] ?? 0), elements, options);
  }
  const { threads, splitAbove, alikeRows, matrices = "f32", block = DEFAULT_BLOCK } = options;
  const format = matrices === "f32" ? { kind: matrices } : { kind: matrices, block };
  if (name === "webgpu") {
    const { WebGpuDevice } = await import("./onnxruntime/webgpu.ts");
    const elements = elementsFor(name, options, ["f32", "f16"]);
    return new WebGpuDevice({ elements, matrices: format });
  }
  elementsFor(name === "auto" ? "cpu" : name, options, ["f32"]);
  if (name === "reference") {
    const { ReferenceDevice } = await import("./reference/device.ts");
    return new ReferenceDevice("f32");
  }
  if (name === "tfjs") {
    const { openTfjs } = await import("./tfjs/open.ts");
    return openTfjs();
  }
  const { CpuDevice } = await import("./onnxruntime/cpu.ts");
  return new CpuDevice({ threads, splitAbove, alikeRows, matrices: format });
}

/** Element types besides f32, and the device that supports each. */
const DEVICE_OF = { bf16: "cuda", f16: "webgpu" } as const;

/** The element type asked for, or the first of those that a device has. */
function elementsFor<T extends ElementChoice>(
  device: DeviceChoice,
  { dtype = "auto" }: DeviceOptions,
  has: readonly T[],
): T {
  const found = dtype === "auto" ? has[0] : has.find((each) => each === dtype);
  if (found) return found;
  const other = DEVICE_OF[dtype as keyof typeof DEVICE_OF];
  throw new UsageError(
    `the ${device} device does not support \`--dtype ${dtype}\`, only ${has.join(" and ")}`,
    { hints: [`leave out \`--dtype\`, or pass \`--device ${other}\``] },
  );
}
