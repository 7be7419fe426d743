/**
 * Kernel declarations: file, arguments, launch config. The rule that launches a kernel stands beside it.
 *
 * Arguments are read from the text of the kernel, so that they are declared once: launches name them.
 */
import attention from "../../../../kernels/common/attention.cuh" with { type: "text" };
import layers from "../../../../kernels/common/layers.cuh" with { type: "text" };
import ptx from "../../../../kernels/common/ptx.cuh" with { type: "text" };
import reduce from "../../../../kernels/common/reduce.cuh" with { type: "text" };
import strides from "../../../../kernels/common/strides.cuh" with { type: "text" };
import tiles from "../../../../kernels/common/tiles.cuh" with { type: "text" };
import types from "../../../../kernels/common/types.cuh" with { type: "text" };
import type { ArgumentType, LaunchConfig } from "../driver/launch.ts";
import type { KernelSource } from "../driver/nvrtc.ts";

/** Scalar arguments of a launch, or defines of a compilation, by name. */
export type Sizes = Readonly<Record<string, number>>;

/** One file of kernels, with the headers it may include. */
export interface KernelFile extends KernelSource {
  /** Every set of defines it is used with; other head sizes are compiled when a model has them. */
  readonly specialisations: readonly Sizes[];
  readonly kernels: readonly Kernel[];
}

/** One kernel. */
export interface Kernel {
  readonly file: KernelFile;
  /** Its `extern "C"` name. */
  readonly entry: string;
  readonly arguments: readonly { readonly name: string; readonly type: ArgumentType }[];
  /** Launch config by scalar arguments and defines. */
  config(sizes: Sizes): LaunchConfig;
}

/** Headers by the name in `#include`; the compiler gets them from memory. */
export const KERNEL_HEADERS: ReadonlyMap<string, string> = new Map([
  ["common/attention.cuh", attention],
  ["common/layers.cuh", layers],
  ["common/ptx.cuh", ptx],
  ["common/reduce.cuh", reduce],
  ["common/strides.cuh", strides],
  ["common/tiles.cuh", tiles],
  ["common/types.cuh", types],
]);

/** Compiled for f32 and for bf16. */
const TYPES = [{ BF16: 0 }, { BF16: 1 }] as const;

/** Head sizes of the models in use. */
const HEAD_DIMS = [64, 128] as const;

/** Declares a file by its path below `kernels/`, and the defines it is compiled with. */
export function kernelFile(
  name: string,
  text: string,
  specialisations: KernelFile["specialisations"] = TYPES,
): KernelFile {
  return { name, text, headers: KERNEL_HEADERS, specialisations, kernels: [] };
}

const C_TYPES: Readonly<Record<string, ArgumentType>> = {
  int: "i32",
  "long long": "i64",
  float: "f32",
};

/**
 * Declares a kernel of a file by its `extern "C"` name.
 * @throws {TypeError} when the text has no such kernel, or an argument of another type
 */
export function kernel(
  file: KernelFile,
  entry: string,
  config: (sizes: Record<string, number>) => LaunchConfig,
): Kernel {
  const declaration = new RegExp(`__launch_bounds__\\([^)]*\\)\\s+${entry}\\(([^)]*)\\)`);
  const list = declaration.exec(file.text)?.[1]?.split(",") ?? [];
  const parameters = list.map((text) => {
    const [, before, name] = /^\s*([\s\S]*?)\s*(\w+)$/.exec(text) as unknown as string[];
    const type = before!.includes("*") ? "pointer" : C_TYPES[before!];
    if (!type) throw new TypeError(`cannot launch ${entry}: argument "${text}"`);
    return { name: name!, type };
  });
  if (list.length === 0) throw new TypeError(`${file.name} has no kernel "${entry}"`);
  const made = { file, entry, arguments: parameters, config };
  (file.kernels as Kernel[]).push(made);
  return made;
}

/** The usual head sizes, for each type or for one. */
export function overHeads(types: readonly Sizes[] = TYPES): Sizes[] {
  return types.flatMap((type) => HEAD_DIMS.map((HEAD_DIM) => ({ ...type, HEAD_DIM })));
}

/** Blocks of `size` that hold `count`. */
export function blocks(count: number, size: number): number {
  return Math.ceil(count / size);
}

/** A grid of blocks with one dimension of threads. */
export function grid(threads: number, x: number, y = 1, z = 1): LaunchConfig {
  return { grid: [x, y, z], block: [threads, 1, 1] };
}

/** Threads that take `per` elements each until `count` are taken. */
export function each(count: number, per = 1, threads = 256): LaunchConfig {
  return grid(threads, blocks(count, threads * per));
}

/** Elements in 16 bytes, WIDTH of types.cuh. */
export function perPack({ BF16 }: Sizes): number {
  return BF16 ? 8 : 4;
}

/** `packStep` of types.cuh. */
export function packStep(sizes: Sizes, row: number): number {
  return row % perPack(sizes) === 0 ? perPack(sizes) : 1;
}
