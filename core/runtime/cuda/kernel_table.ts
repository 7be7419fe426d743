/**
 * All kernels, and the macros with which their files are compiled.
 *
 * Descriptions are in `kernels/`.
 */
import type { KernelFile } from "./kernel_sources.ts";
import { BACKWARD } from "./kernels/backward.ts";
import type { Kernel } from "./kernels/define.ts";
import { FORWARD } from "./kernels/forward.ts";
import { PRIMITIVE } from "./kernels/primitive.ts";

export type { Kernel, KernelArgument, Sizes } from "./kernels/define.ts";

/** All kernels, file by file. */
export const KERNELS: readonly Kernel[] = [...FORWARD, ...BACKWARD, ...PRIMITIVE];

const byEntry = new Map(KERNELS.map((kernel) => [kernel.entry, kernel]));

/** A kernel by its name. */
export function kernelNamed(entry: string): Kernel {
  const kernel = byEntry.get(entry);
  if (!kernel) throw new TypeError(`no kernel "${entry}"`);
  return kernel;
}

/** Macros of one compilation of a file. */
export type Specialisation = Readonly<Record<string, number>>;

/** Rows that a block of `linear` computes for each reading of the weights. */
export const LINEAR_ROWS = { f32: [1, 4, 8], bf16: [1] } as const;

/** Rows that a launch of `linear_mma` has room for. */
export const LINEAR_MMA_ROWS = [8, 16, 32, 64] as const;

/** Head sizes of the models in use; others are compiled when a model needs them. */
const HEAD_DIMS = [64, 128] as const;

const TYPES = [{ BF16: 0 }, { BF16: 1 }] as const;

const SPECIALISATIONS: Partial<Record<KernelFile, readonly Specialisation[]>> = {
  "forward/attention.cu": over("HEAD_DIM", HEAD_DIMS),
  "forward/attention_mma.cu": heads(1),
  "forward/attention_wgmma.cu": heads(1),
  "forward/attention_split.cu": heads(0),
  "forward/attention_split_mma.cu": heads(1),
  "forward/attention_combine.cu": over("HEAD_DIM", HEAD_DIMS),
  "backward/attention_delta.cu": over("HEAD_DIM", HEAD_DIMS),
  "backward/attention.cu": over("HEAD_DIM", HEAD_DIMS),
  "backward/attention_mma.cu": heads(1),
  "forward/linear.cu": [
    // Wide results of float inputs are the same kernel.
    ...LINEAR_ROWS.f32.map((ROWS) => ({ BF16: 0, ROWS, WIDE: 0 })),
    ...narrowAndWide(LINEAR_ROWS.bf16),
  ],
  "forward/linear_mma.cu": narrowAndWide(LINEAR_MMA_ROWS),
  "forward/sample.cu": [{ BF16: 0 }],
  "forward/publish.cu": [{}],
  "primitive/movement.cu": [{ BYTES: 1 }, { BYTES: 2 }, { BYTES: 4 }],
  "primitive/elementwise.cu": [{ BF16: 0 }],
  "primitive/reduce.cu": [{ BF16: 0 }],
  "primitive/indexing.cu": [{}],
  "primitive/matmul.cu": [{}],
  "optimizer/adamw.cu": [{}],
};

/** Every set of macros with which a file is used. */
export function specialisations(file: KernelFile): readonly Specialisation[] {
  return SPECIALISATIONS[file] ?? TYPES;
}

/** Files with instructions that exist under the name of one architecture only. */
const ARCHITECTURES: Partial<Record<KernelFile, string>> = {
  "forward/attention_wgmma.cu": "sm_90a",
};

/** Whether a file can be compiled for an architecture. */
export function runsOn(file: KernelFile, architecture: string): boolean {
  return (ARCHITECTURES[file] ?? architecture) === architecture;
}

function heads(BF16: number): Specialisation[] {
  return HEAD_DIMS.map((HEAD_DIM) => ({ BF16, HEAD_DIM }));
}

function narrowAndWide(rows: readonly number[]): Specialisation[] {
  return rows.flatMap((ROWS) => [0, 1].map((WIDE) => ({ BF16: 1, ROWS, WIDE })));
}

function over(name: string, values: readonly number[]): Specialisation[] {
  return TYPES.flatMap((type) => values.map((value) => ({ ...type, [name]: value })));
}
