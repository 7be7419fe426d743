/** Kernels and their files by name. */
import type { Kernel, KernelFile } from "../../../../core/runtime/cuda/kernels/define.ts";
import { KERNEL_FILES, KERNELS } from "../../../../core/runtime/cuda/kernels/mod.ts";

/** A file by its path below `kernels/`. */
export function fileNamed(name: string): KernelFile {
  return KERNEL_FILES.find((file) => file.name === name)!;
}

/** A kernel by its `extern "C"` name. */
export function kernelNamed(entry: string): Kernel {
  return KERNELS.find((kernel) => kernel.entry === entry)!;
}
