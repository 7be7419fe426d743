/**
 * How a kernel is declared: its file, what it takes, how it is spread over the device. The rule that
 * launches it stands beside it.
 *
 * Launch packing is made from these declarations, and a test compares them with the C signatures, so
 * that an argument cannot be added on one side only.
 *
 * Arguments are written as in C, in order: `*x` is an address, `n` an i32, `n:i64` and `n:f32` what
 * they say, `#x:64x128` the map of a tensor that is copied in boxes of 128 rows of 64 elements.
 * Sizes that follow from others are arguments too; a kernel computes no strides from what it could
 * be told.
 */
import type { ArgumentType, Geometry } from "../driver/launch.ts";
import type { KernelSource } from "../driver/nvrtc.ts";
import { KERNEL_HEADERS } from "./headers.ts";

/** Numbers of one launch by argument name, and the macros of its compilation. */
export type Sizes = Readonly<Record<string, number>>;

/** Macros of one compilation of a file. */
export type Specialisation = Readonly<Record<string, number>>;

/** One file of kernels, with the headers it may include. */
export interface KernelFile extends KernelSource {
  /** Every set of macros with which it is used; other head sizes are compiled when a model has them. */
  readonly specialisations: readonly Specialisation[];
  /** The only architecture that has its instructions. */
  readonly architecture?: string | undefined;
  /** In the order of the text. */
  readonly kernels: readonly Kernel[];
}

/** One argument of a kernel. */
export interface KernelArgument {
  readonly name: string;
  readonly type: ArgumentType;
  /** Elements and rows of a box; maps only. */
  readonly box?: readonly [elements: number, rows: number];
}

/** One kernel. */
export interface Kernel {
  readonly file: KernelFile;
  /** Its `extern "C"` name. */
  readonly entry: string;
  readonly arguments: readonly KernelArgument[];
  geometry(sizes: Sizes): Geometry;
}

/** How a kernel is spread, by its numbers and macros. */
type Spread = (sizes: Record<string, number>) => Geometry;

/** Compiled for f32 and for bf16. */
const TYPES = [{ BF16: 0 }, { BF16: 1 }] as const;

/** Head sizes of the models in use. */
const HEAD_DIMS = [64, 128] as const;

/** Declares a file by its path below `kernels/`, and the macros it is compiled with. */
export function kernelFile(
  name: string,
  text: string,
  specialisations: KernelFile["specialisations"] = TYPES,
  architecture?: string,
): KernelFile {
  return { name, text, headers: KERNEL_HEADERS, specialisations, architecture, kernels: [] };
}

/** Declares the next kernel of a file. */
export function kernel(file: KernelFile, signature: string, geometry: Spread): Kernel {
  const [entry, ...list] = signature.split(" ") as [string, ...string[]];
  const made = { file, entry, arguments: list.map(parseArgument), geometry };
  (file.kernels as Kernel[]).push(made);
  return made;
}

function parseArgument(text: string): KernelArgument {
  if (text.startsWith("*")) return { name: text.slice(1), type: "pointer" };
  if (text.startsWith("#")) {
    const [name, elements, rows] = text.slice(1).split(/[:x](?=\d)/);
    return { name: name!, type: "map", box: [Number(elements), Number(rows)] };
  }
  const [name, type = "i32"] = text.split(":") as [string, ArgumentType?];
  return { name, type };
}

/** The usual head sizes, for each type or for one. */
export function overHeads(types: readonly Specialisation[] = TYPES): Specialisation[] {
  return types.flatMap((type) => HEAD_DIMS.map((HEAD_DIM) => ({ ...type, HEAD_DIM })));
}

/** Blocks of `size` that hold `count`. */
export function blocks(count: number, size: number): number {
  return Math.ceil(count / size);
}

/** A grid of blocks with one dimension of threads. */
export function spread(threads: number, x: number, y = 1, z = 1): Geometry {
  return { grid: [x, y, z], block: [threads, 1, 1] };
}

/** Threads that take `per` elements each until `count` are taken. */
export function each(count: number, per = 1, threads = 256): Geometry {
  return spread(threads, blocks(count, threads * per));
}

/** Elements in 16 bytes, WIDTH of types.cuh. */
export function perPack({ BF16 }: Sizes): number {
  return BF16 ? 8 : 4;
}

/** What `packStep` of types.cuh gives. */
export function packStep(sizes: Sizes, row: number): number {
  return row % perPack(sizes) === 0 ? perPack(sizes) : 1;
}
