/**
 * Weights in 8 or 4 bits, as MatMulNBits stores them.
 *
 * Each row of a matrix [N, K] is cut into blocks of consecutive columns; a block has one f32 scale s and
 * unsigned codes q with x ≈ s (q − z), where z is 128 or 8. Two 4-bit codes share a byte, low half
 * first. The last block of a row is padded with z, which stands for 0.
 */

/** A quantised matrix. */
export interface Quantized {
  /** [N, blocks, block · bits / 8] */
  readonly codes: Uint8Array;
  /** [N · blocks] */
  readonly scales: Float32Array;
}

/** Quantises a matrix [rows, columns] into given memory, both of the right size. */
export function quantize(
  values: Float32Array,
  rows: number,
  columns: number,
  bits: 8 | 4,
  block: number,
  { codes, scales }: Quantized,
): void {
  const zero = 1 << (bits - 1);
  let at = 0;
  for (let row = 0; row < rows; row++) {
    for (let start = 0; start < columns; start += block) {
      const first = row * columns + start;
      const length = Math.min(block, columns - start);
      const scale = blockScale(values, first, length, zero);
      const inverse = scale === 0 ? 0 : 1 / scale;
      scales[at] = scale;
      const target = at++ * block * bits / 8;
      for (let i = 0; i < length; i++) {
        // x / s lies in [−z, z]; adding z and a half makes truncation round to nearest.
        const rounded = (values[first + i]! * inverse + zero + 0.5) | 0;
        const code = rounded < 2 * zero ? rounded : 2 * zero - 1;
        if (bits === 8) codes[target + i] = code;
        else if ((i & 1) === 0) codes[target + (i >> 1)] = code | zero << 4;
        else codes[target + (i >> 1)] = codes[target + (i >> 1)]! & 15 | code << 4;
      }
      if (bits === 8) codes.fill(zero, target + length, target + block);
      else codes.fill(zero | zero << 4, target + ((length + 1) >> 1), target + block / 2);
    }
  }
}

/**
 * The scale that maps the element of largest magnitude to code 0, the only one that reaches z steps:
 * codes run from −z to z − 1, so the sign of that element chooses the direction.
 */
function blockScale(values: Float32Array, first: number, length: number, zero: number): number {
  let extreme = 0;
  let magnitude = 0;
  for (let i = first; i < first + length; i++) {
    const x = values[i]!;
    const size = x < 0 ? -x : x;
    if (size > magnitude) {
      magnitude = size;
      extreme = x;
    }
  }
  return Math.fround(extreme / -zero);
}

/** What the codes stand for: the inverse of `quantize` up to rounding. */
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
