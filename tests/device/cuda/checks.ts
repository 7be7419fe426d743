/** Helpers of the tests of single kernels: inputs that bf16 has, launches of a program, distances. */
import { assert } from "@std/assert";
import type { Program } from "../../../core/graph/program.ts";
import type { RandomStream } from "../../../core/base/random.ts";
import type { HostArray } from "../../../core/runtime/device.ts";
import type { ComputeType } from "../../../core/runtime/cuda/memory.ts";
import { lower } from "../../../core/runtime/cuda/lower.ts";
import type { KernelLaunch, Step } from "../../../core/runtime/cuda/lowering.ts";
import { fromF32, toF32 } from "../../../core/base/dtype.ts";

/** Normal numbers of some size, each of which bf16 has. */
export function drawNarrow(random: RandomStream, count: number, size: number): number[] {
  const exact = Float32Array.from({ length: count }, () => random.normal() * size);
  return Array.from(toF32(fromF32(exact, "bf16"), "bf16"));
}

/** Launches of kernels that a program is made of. */
export function launchesOf(program: Program, dtype: ComputeType): KernelLaunch[] {
  const { nodes } = lower(program, dtype, () => false).program;
  return nodes.flatMap(({ attributes }) => (attributes as Step).launch ?? []);
}

/** The largest size of a number; NaN where there is one. */
function largest(values: ArrayLike<number>): number {
  return Array.from(values, Math.abs).reduce((a, b) => Math.max(a, b));
}

/** Errors are relative to the largest number expected. */
export function assertNear(
  [found, expected]: readonly [HostArray, HostArray],
  tolerance: number,
  name: string,
): void {
  const size = largest(expected);
  const worst = largest(Array.from(expected, (x, i) => found[i]! - x));
  assert(worst <= tolerance * size, `${name}: off by ${worst / size} of the largest`);
}
