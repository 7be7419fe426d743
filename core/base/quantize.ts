/**
 * Weights in 8 or 4 bits, as MatMulNBits stores them.
 *
 * Each row of a matrix [N, K] is cut into blocks of consecutive columns; a block has one f32 scale s and
 * unsigned codes q with x ≈ s (q − z), where z is 128 or 8. Two 4-bit codes share a byte, low half
 * first. The last block of a row is padded with z, which stands for 0.
 */

import { ELEMENT_BYTES, toF32Into, type WeightType } from "./dtype.ts";

/** Format of the matrices of linear layers. */
export type MatrixFormat =
  | { readonly kind: "f32" }
  | { readonly kind: "q8" | "q4"; readonly block: number };

/** Columns per scale. Larger blocks are less exact, and measured no faster; see `tests/bench`. */
export const DEFAULT_BLOCK = 32;

/** A quantised matrix. */
export interface Quantized {
  /** [N, blocks, block · bits / 8] */
  readonly codes: Uint8Array;
  /** [N · blocks] */
  readonly scales: Float32Array;
}

/** A format that quantises. */
export type QuantizedFormat = Exclude<MatrixFormat, { readonly kind: "f32" }>;

/** The format, which must be one that quantises. */
export function quantizedFormat(format: MatrixFormat): QuantizedFormat {
  if (format.kind === "f32") throw new TypeError("cannot quantise to f32");
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

/** Elements cast to f32 at a time while quantising. */
const BATCH_ELEMENTS = 1 << 20;

/**
 * Quantises a matrix from its stored bytes into given memory, a few rows at a time, so that the
 * matrix in f32 never exists as a whole.
 */
export function quantizeStored(
  bytes: Uint8Array,
  type: WeightType,
  shape: readonly number[],
  format: QuantizedFormat,
  { codes, scales }: Quantized,
): void {
  const { rows, columns, bits, blocks, rowBytes } = packing(shape, format);
  const step = Math.max(1, Math.floor(BATCH_ELEMENTS / columns));
  const buffer = new Float32Array(Math.min(step, rows) * columns);
  for (let row = 0; row < rows; row += step) {
    const count = Math.min(step, rows - row);
    const values = buffer.subarray(0, count * columns);
    toF32Into(values, bytes.subarray(row * columns * ELEMENT_BYTES[type]), type);
    quantize(values, count, columns, bits, format.block, {
      codes: codes.subarray(row * rowBytes),
      scales: scales.subarray(row * blocks),
    });
  }
}

/** Quantises a matrix [rows, columns] into given memory; `codes` starts at a multiple of 4 bytes. */
export function quantize(
  values: Float32Array,
  rows: number,
  columns: number,
  bits: 8 | 4,
  block: number,
  target: Quantized,
): void {
  const width = Math.ceil(columns / block) * block;
  const padded = width === columns ? values : padRows(values, rows, columns, width);
  const { buffer, byteOffset } = target.codes;
  const words = new Uint32Array(buffer, byteOffset, rows * width * bits / 32);
  quantizeBlocks(padded, bits, block, words, target.scales);
}

/** Every row lengthened by zeros. */
function padRows(values: Float32Array, rows: number, columns: number, width: number): Float32Array {
  const padded = new Float32Array(rows * width);
  for (let row = 0; row < rows; row++) {
    padded.set(values.subarray(row * columns, (row + 1) * columns), row * width);
  }
  return padded;
}

/**
 * The inner loops, written for speed: whole words are stored, and magnitudes are compared as the
 * integers their bits form, which order like the numbers.
 *
 * The scale maps the element of largest magnitude to code 0, the only one that lies z steps from the
 * middle: codes run from −z to z − 1, so the sign of that element chooses the direction.
 */
function quantizeBlocks(
  values: Float32Array,
  bits: 8 | 4,
  block: number,
  words: Uint32Array,
  scales: Float32Array,
): void {
  const magnitudes = new Int32Array(values.buffer, values.byteOffset, values.length);
  const zero = 1 << (bits - 1);
  const perWord = 32 / bits;
  let at = 0;
  for (let first = 0; first < values.length; first += block) {
    const end = first + block;
    let largest = 0;
    let extreme = first;
    for (let i = first; i < end; i++) {
      const magnitude = magnitudes[i]! & 0x7fffffff;
      if (magnitude > largest) {
        largest = magnitude;
        extreme = i;
      }
    }
    const scale = Math.fround(values[extreme]! / -zero);
    scales[first / block] = scale;
    // Adding z and a half makes truncation round to nearest; 2z, one too many, steps back by one.
    const inverse = scale === 0 ? 0 : 1 / scale;
    const shift = zero + 0.5;
    for (let i = first; i < end; i += perWord) {
      let word = 0;
      for (let j = 0; j < perWord; j++) {
        const code = (values[i + j]! * inverse + shift) | 0;
        word |= (code - (code >> bits)) << (j * bits);
      }
      words[at++] = word;
    }
  }
}

/** Returns the values of codes: the inverse of `quantize` up to rounding. */
export function dequantize(
  { codes, scales }: Quantized,
  rows: number,
  columns: number,
  bits: 8 | 4,
  block: number,
): Float32Array {
  const zero = 1 << (bits - 1);
  const blocks = Math.ceil(columns / block);
  const values = new Float32Array(rows * columns);
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      const at = row * blocks + Math.floor(column / block);
      const code = at * block + column % block;
      const q = bits === 8 ? codes[code]! : codes[code >> 1]! >> (code % 2 * 4) & 15;
      values[row * columns + column] = scales[at]! * (q - zero);
    }
  }
  return values;
}
