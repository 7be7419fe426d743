/** Helpers of the tests of single kernels: inputs that bf16 has, launches of a program, distances. */
import { assert, assertEquals } from "@std/assert";
import type { Program } from "../../../core/graph/program.ts";
import type { RandomStream } from "../../../core/base/random.ts";
import type { LaunchConfig } from "../../../core/runtime/cuda/driver/launch.ts";
import type { ComputeType } from "../../../core/runtime/cuda/memory.ts";
import { fromF32, toF32 } from "../../../core/base/dtype.ts";
import { openTestCuda, reference } from "../devices.ts";
import { type Data, runOn } from "../programs.ts";

/** A grid of x by y blocks. */
export const blocks = (threads: number, x = 1, y = 1): LaunchConfig => ({
  grid: [x, y, 1],
  block: [threads, 1, 1],
});

/** Normal numbers of some size, each of which bf16 has. */
export function drawNarrow(random: RandomStream, count: number, size: number): number[] {
  const exact = Float32Array.from({ length: count }, () => random.normal() * size);
  return Array.from(toF32(fromF32(exact, "bf16"), "bf16"));
}

/** The largest size of a number; NaN where there is one. */
function largest(values: ArrayLike<number>): number {
  return Array.from(values, Math.abs).reduce((a, b) => Math.max(a, b));
}

/** Runs of a program: its inputs, those of the device where they are others, and how far outputs may be off. */
export interface Agreement {
  readonly inputs: Data;
  readonly onDevice?: Data;
  /** Tolerance of outputs by name, relative to the largest number expected. */
  readonly tolerances: Readonly<Record<string, number>>;
  /** First elements of an output that the device has as zeros, unlike the reference. */
  readonly zeros?: Readonly<Record<string, number>>;
}

/** Requires of the cuda device what the reference computes, and the same bits from a second run. */
export async function assertAgrees(
  program: Program,
  elements: ComputeType,
  { inputs, onDevice = inputs, tolerances, zeros = {} }: Agreement,
): Promise<void> {
  const expected = await runOn(reference, program, inputs);
  const device = openTestCuda(elements);
  const found = await runOn(device, program, onDevice);
  const again = await runOn(device, program, onDevice);
  for (const [name, tolerance] of Object.entries(tolerances)) {
    const values = expected.get(name)!.fill(0, 0, zeros[name] ?? 0);
    const worst = largest(Array.from(values, (x, i) => found.get(name)![i]! - x)) / largest(values);
    assert(worst <= tolerance, `${name}: off by ${worst} of the largest`);
    assertEquals(found.get(name), again.get(name), `${name} twice the same`);
  }
  device.close();
}
