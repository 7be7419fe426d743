/**
 * Opens devices by name; nothing of a device is loaded before it is asked for.
 */
import type { Device, DeviceName } from "./device.ts";

export type { Device, DeviceName } from "./device.ts";

/** How matrices of linear layers are kept: exact, or in 8 or 4 bits. */
export type MatrixKind = "f32" | "q8" | "q4";

/** What a device may be told; each takes what concerns it. */
export interface DeviceOptions {
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
 * Opens a device; `auto` takes the fastest that is present.
 * @throws {EnvironmentError} when the device cannot be used on this machine
 */
export async function openDevice(
  name: DeviceName | "auto",
  options: DeviceOptions = {},
): Promise<Device> {
  if (name === "reference") {
    const { ReferenceDevice } = await import("./reference/device.ts");
    return new ReferenceDevice("f32");
  }
  const { CpuDevice } = await import("./onnx/device.ts");
  const { threads, matrices = "f32", block = DEFAULT_BLOCK } = options;
  const format = matrices === "f32" ? { kind: matrices } : { kind: matrices, block };
  return new CpuDevice({ threads, matrices: format });
}
