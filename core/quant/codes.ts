/**
 * Weights in 8 or 4 bits, as MatMulNBits stores them.
 *
 * Each row of a matrix [N, K] is cut into blocks of consecutive columns; a block has one f32 scale s and
 * unsigned codes q with x ≈ s (q − z), where z is 128 or 8. Two 4-bit codes share a byte, low half
 * first. The last block of a row is padded with z, which stands for 0. Blocks of some GGUF types also have
 * an f32 offset c: x = s (q − z) + c.
 */
import {
  memory,
  quantizeBlocks,
  repackBlocks,
  repackQ4K,
  repackQ6K,
  toF32,
} from "../../kernels/cpu/quantize.wasm";
import { BLOCKS, type BlockType, type Quantized } from "./blocks.ts";
import { ELEMENT_BYTES, toF32Into, type WeightType } from "../base/dtype.ts";

/** Format of the matrices of linear layers. */
export type MatrixFormat =
  | { readonly kind: "f32" }
  | {
    readonly kind: "q8" | "q4";
    readonly block: number;
    /** True where blocks have offsets. */
    readonly offsets?: true;
  };

/** Columns per scale. Larger blocks are less exact, and measured no faster; see `tests/bench`. */
export const DEFAULT_BLOCK = 32;

export type { Quantized };

/** A format that quantizes. */
export type QuantizedFormat = Exclude<MatrixFormat, { readonly kind: "f32" }>;

/** The format, which must be one that quantizes. */
export function quantizedFormat(format: MatrixFormat): QuantizedFormat {
  if (format.kind === "f32") throw new TypeError("cannot quantize to f32");
  return format;
}

/** Sizes of a matrix in blocks. */
export interface Packing {
  readonly rows: number;
  readonly columns: number;
  readonly bits: 8 | 4;
  /** Per row. */
  readonly blocks: number;
  /** Bytes of the codes of one row. */
  readonly rowBytes: number;
}

/** Returns the division of a matrix [rows, columns] into blocks. */
export function packing(shape: readonly number[], format: MatrixFormat): Packing {
  const { kind, block } = quantizedFormat(format);
  const [rows, columns] = shape as [number, number];
  const bits = kind === "q8" ? 8 : 4;
  const blocks = Math.ceil(columns / block);
  return { rows, columns, bits, blocks, rowBytes: blocks * block * bits / 8 };
}

/** Room for a matrix [rows, columns]. */
export function roomFor(shape: readonly number[], format: QuantizedFormat) {
  const { rows, blocks, rowBytes } = packing(shape, format), count = rows * blocks;
  return {
    codes: new Uint8Array(rows * rowBytes),
    scales: new Float32Array(count),
    ...(format.offsets && { offsets: new Float32Array(count) }),
  } satisfies Quantized;
}

/** A matrix from some row on. */
export function fromRow(
  { codes, scales, offsets }: Quantized,
  row: number,
  { blocks, rowBytes }: Packing,
): Quantized {
  return {
    codes: codes.subarray(row * rowBytes),
    scales: scales.subarray(row * blocks),
    ...(offsets && { offsets: offsets.subarray(row * blocks) }),
  };
}

/** Bytes of a matrix in memory, with the scales of its blocks. */
export function matrixBytes(shape: readonly number[], format: MatrixFormat): number {
  if (format.kind === "f32") return 4 * shape[0]! * shape[1]!;
  const { rows, blocks, rowBytes } = packing(shape, format);
  return rows * (rowBytes + (format.offsets ? 8 : 4) * blocks);
}

/** Elements quantized at a time: few enough for a core's own cache. */
const BATCH_ELEMENTS = 1 << 16;

/** Quantizes a matrix from its stored bytes into given memory, a few rows at a time. */
export function quantize(
  bytes: Uint8Array,
  type: WeightType,
  shape: readonly number[],
  format: QuantizedFormat,
  { codes, scales }: Quantized,
): void {
  const { rows, columns, bits, blocks, rowBytes } = packing(shape, format);
  const width = blocks * format.block;
  const step = Math.min(rows, Math.max(1, Math.floor(BATCH_ELEMENTS / width)));
  const rowSize = columns * ELEMENT_BYTES[type];
  const at = reserve(step * width);
  for (let row = 0; row < rows; row += step) {
    const count = Math.min(step, rows - row);
    const part = bytes.subarray(row * rowSize, (row + count) * rowSize);
    loadRows(part, type, at, { count, columns, width });
    const end = at.values + 4 * count * width;
    quantizeBlocks(at.values, end, format.block, bits, at.codes, at.scales);
    codes.set(new Uint8Array(memory.buffer, at.codes, count * rowBytes), row * rowBytes);
    scales.set(new Float32Array(memory.buffer, at.scales, count * blocks), row * blocks);
  }
}

/** Codes, scales and offsets of blocks of a GGUF file, in their format. Nothing but offsets is rounded. */
export function repack(
  blocks: Uint8Array,
  type: BlockType,
  { kind, block }: QuantizedFormat,
  target: Quantized,
): void {
  const { bytes, elements, unpack } = BLOCKS[type], kernel = KERNELS[type];
  if (!kernel) {
    for (let at = 0, i = 0; at < blocks.length; at += bytes) unpack!(blocks, at, target, i++);
    return;
  }
  const { codes, scales, offsets } = target;
  const step = BATCH_ELEMENTS / elements, at = reserve(BATCH_ELEMENTS);
  for (let first = 0; first * bytes < blocks.length; first += step) {
    const part = blocks.subarray(first * bytes, (first + step) * bytes);
    new Uint8Array(memory.buffer, at.stored).set(part);
    kernel(at, at.stored + part.length);
    const made = part.length / bytes * elements / block, done = first * elements / block;
    const codeBytes = kind === "q8" ? block : block / 2;
    codes.set(new Uint8Array(memory.buffer, at.codes, made * codeBytes), done * codeBytes);
    scales.set(new Float32Array(memory.buffer, at.scales, made), done);
    offsets?.set(new Float32Array(memory.buffer, at.values, made), done);
  }
}

/** Kernel of a type without an offset, of 32 elements a block. */
const blocksOf = (bits: number) => ({ stored, codes, scales }: Addresses, end: number) =>
  repackBlocks(stored, end, bits, codes, scales);

/** Kernels that repack blocks from `stored` to `end`; offsets go where values are in quantizing. */
const KERNELS: Partial<Record<BlockType, (at: Addresses, end: number) => void>> = {
  Q8_0: blocksOf(8),
  Q5_0: blocksOf(5),
  Q4_0: blocksOf(4),
  Q6_K: ({ stored, codes, scales }, end) => repackQ6K(stored, end, codes, scales),
  Q4_K: ({ stored, codes, scales, values }, end) => repackQ4K(stored, end, codes, scales, values),
};

/** Addresses in the memory of the kernels. */
type Addresses = Readonly<Record<"values" | "stored" | "codes" | "scales", number>>;

/**
 * Makes room for values in f32, what they are stored in, codes of up to 8 bits, and scales of blocks of 4
 * or more.
 */
function reserve(elements: number): Addresses {
  const at = { values: 0, stored: 4 * elements, codes: 6 * elements, scales: 7 * elements };
  const missing = 8 * elements - memory.buffer.byteLength;
  if (missing > 0) memory.grow(Math.ceil(missing / PAGE_BYTES));
  return at;
}

/** Unit of a memory's size. */
const PAGE_BYTES = 1 << 16;

/** Copies rows to the memory of the kernels, as f32; zeros fill the last block of each. */
function loadRows(
  bytes: Uint8Array,
  type: WeightType,
  at: Addresses,
  { count, columns, width }: { count: number; columns: number; width: number },
): void {
  const values = new Float32Array(memory.buffer, at.values, count * width);
  if (width === columns && type === "bf16") {
    new Uint8Array(memory.buffer, at.stored).set(bytes);
    toF32(at.stored, at.values, values.length);
  } else if (width === columns) {
    toF32Into(values, bytes, type);
  } else {
    values.fill(0);
    for (let row = 0; row < count; row++) {
      const from = row * columns * ELEMENT_BYTES[type];
      toF32Into(values.subarray(row * width, row * width + columns), bytes.subarray(from), type);
    }
  }
}

/** Returns the values of codes: the inverse of `quantize` up to rounding. */
export function dequantize(
  { codes, scales, offsets }: Quantized,
  shape: readonly number[],
  format: QuantizedFormat,
): Float32Array {
  const { rows, columns, bits, blocks } = packing(shape, format), { block } = format;
  const zero = 1 << (bits - 1);
  const values = new Float32Array(rows * columns);
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      const at = row * blocks + Math.floor(column / block);
      const code = at * block + column % block;
      const q = bits === 8 ? codes[code]! : codes[code >> 1]! >> (code % 2 * 4) & 15;
      values[row * columns + column] = scales[at]! * (q - zero) + (offsets?.[at] ?? -0);
    }
  }
  return values;
}
