/**
 * How a kernel is described: where it is, what it takes, how it is spread, which op it computes.
 *
 * Launch packing is made from these descriptions, and a test compares them with the C signatures, so
 * that an argument cannot be added on one side only.
 *
 * Arguments are written as in C, in order: `*x` is an address, `n` an i32, `n:i64` and `n:f32` what
 * they say, `#x:64x128` the map of a tensor that is copied in boxes of 128 rows of 64 elements.
 * Sizes that follow from others are arguments too; a kernel computes no strides from what it could
 * be told.
 */
import type { KernelFile } from "../kernel_sources.ts";
import type { ArgumentType, Geometry } from "../launch.ts";

/** Numbers of one launch by argument name, and the macros of its compilation. */
export type Sizes = Readonly<Record<string, number>>;

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
  /** The op whose reference it follows; `gradient of` where it is one. */
  readonly op: string;
  geometry(sizes: Sizes): Geometry;
}

/** Threads of the elementwise kernels. */
const THREADS = 256;

/** Describes the kernels of one file. */
export function kernelsOf(file: KernelFile) {
  return (
    signature: string,
    op: string,
    geometry: (sizes: Record<string, number>) => Geometry,
  ): Kernel => {
    const [entry, ...list] = signature.split(" ") as [string, ...string[]];
    return { file, entry, arguments: list.map(parseArgument), op, geometry };
  };
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

/** Blocks of `size` that hold `count`. */
export function blocks(count: number, size: number): number {
  return Math.ceil(count / size);
}

/** A grid of blocks with one dimension of threads. */
export function spread(threads: number, x: number, y = 1, z = 1): Geometry {
  return { grid: [x, y, z], block: [threads, 1, 1] };
}

/** Threads that take `per` elements each until `count` are taken. */
export function each(count: number, per = 1, threads = THREADS): Geometry {
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
