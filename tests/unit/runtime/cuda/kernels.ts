/** Kernels and their files by name, and those that a program is made of. */
import type { Program } from "../../../../core/graph/program.ts";
import type { Kernel, KernelFile } from "../../../../core/runtime/cuda/kernels/define.ts";
import { KERNEL_FILES, KERNELS } from "../../../../core/runtime/cuda/kernels/mod.ts";
import { lower } from "../../../../core/runtime/cuda/lower.ts";
import type { KernelLaunch, Step } from "../../../../core/runtime/cuda/lowering.ts";
import type { ComputeType } from "../../../../core/runtime/cuda/memory.ts";

/** A file by its path below `kernels/`. */
export function fileNamed(name: string): KernelFile {
  return KERNEL_FILES.find((file) => file.name === name)!;
}

/** A kernel by its `extern "C"` name. */
export function kernelNamed(entry: string): Kernel {
  return KERNELS.find((kernel) => kernel.entry === entry)!;
}

/** Launches of kernels that a program is made of, in order. */
export function launchesOf(
  program: Program,
  dtype: ComputeType = "f32",
  hasConstantWeights = false,
): KernelLaunch[] {
  const { nodes } = lower(program, dtype, () => hasConstantWeights).program;
  return nodes.flatMap(({ attributes }) => (attributes as Step).launch ?? []);
}

/** Names of the kernels that a program is made of, in order. */
export const entriesOf = (...args: Parameters<typeof launchesOf>): string[] =>
  launchesOf(...args).map(({ kernel }) => kernel.entry);
