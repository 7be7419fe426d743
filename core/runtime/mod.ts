/**
 * Opens devices by name; nothing of a device is loaded before it is asked for.
 */
import { UsageError } from "../errors.ts";
import type { Device, DeviceName } from "./device.ts";

export type { Device, DeviceName } from "./device.ts";

/** What a user may ask for: a device, one of several GPUs, or the fastest that is known to work. */
export type DeviceChoice = DeviceName | `cuda:${number}` | "auto";

/** How matrices of linear layers are kept: exact, or in 8 or 4 bits. */
export type MatrixKind = "f32" | "q8" | "q4";

/** What a device may be told; each takes what concerns it. */
export interface DeviceOptions {
  /** What to compute in; auto is bf16 on cuda and f32 elsewhere. */
  readonly dtype?: "auto" | "f32" | "bf16";
  /** Threads of the cpu device; default: the cores this process may use. */
  readonly threads?: number;
  /** Storage of matrices on the cpu device; the reference is always exact. */
  readonly matrices?: MatrixKind;
  /** Columns that share one scale in q8 and q4. */
  readonly block?: number;
}

/** Columns per scale. Larger blocks are less exact, and measured no faster; see `tests/bench`. */
export const DEFAULT_BLOCK = 32;

/**
 * Opens a device; `auto` is cpu, since cuda has not been run on a GPU yet.
 * @throws {EnvironmentError} when the device cannot be used on this machine
 */
export async function openDevice(
  name: DeviceChoice,
  options: DeviceOptions = {},
): Promise<Device> {
  if (name.startsWith("cuda")) {
    const { openCuda } = await import("./cuda/open.ts");
    const { dtype = "auto" } = options;
    return openCuda(Number(name.split(":")[1] ?? 0), dtype === "auto" ? "bf16" : dtype);
  }
  if (options.dtype === "bf16") {
    throw new UsageError(`Cannot compute in bf16 on "${name}": found f32 alone, expected cuda`, {
      hints: ["leave out --dtype, or pass --device cuda"],
    });
  }
  if (name === "reference") {
    const { ReferenceDevice } = await import("./reference/device.ts");
    return new ReferenceDevice("f32");
  }
  if (name === "tfjs") {
    const { openTfjs } = await import("./tfjs/open.ts");
    return openTfjs();
  }
  const { CpuDevice } = await import("./onnx/device.ts");
  const { threads, matrices = "f32", block = DEFAULT_BLOCK } = options;
  const format = matrices === "f32" ? { kind: matrices } : { kind: matrices, block };
  return new CpuDevice({ threads, matrices: format });
}
