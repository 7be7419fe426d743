/**
 * Blocks of quantized weights as GGUF files store them, and what they stand for in f32.
 *
 * Formulas are those of ggml. Every product is exact and every value is rounded once, so the result
 * equals `dequantize` of the Python package `gguf` bit for bit. Elements lie along rows; a block never
 * crosses the end of one.
 */

/** Sizes of a block, and its decoder. */
interface BlockLayout {
  readonly elements: number;
  readonly bytes: number;
  /** Writes the elements of the block at `at` to `out[to…]`. */
  readonly decode?: (b: Uint8Array, at: number, out: Float32Array, to: number) => void;
}

/** Value of each 4-bit code of IQ4_NL and IQ4_XS. */
const IQ4 = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

let halves: Float32Array | undefined;

/** All float16 in f32, by their bits. */
function halfTable(): Float32Array {
  return halves ??= Float32Array.from(
    new Float16Array(Uint16Array.from({ length: 65536 }, (_, i) => i).buffer),
  );
}

/** The float16 at a byte, in f32. */
function half(b: Uint8Array, at: number): number {
  return halfTable()[b[at]! | b[at + 1]! << 8]!;
}

const signed = (byte: number) => byte << 24 >> 24;

/**
 * 32 codes q of 4 bits, low halves of 16 bytes and then high halves, with a fifth bit of each at `high`:
 * d (q − zero) + m, where d is the first float16 of the block and m the one at `min`.
 */
function nibbles(
  codes: number,
  { high, min, zero = 0 }: { high?: number; min?: number; zero?: number },
) {
  return (b: Uint8Array, at: number, out: Float32Array, to: number) => {
    // Adding −0 changes nothing, adding 0 changes −0.
    const d = half(b, at), m = min === undefined ? -0 : half(b, at + min);
    for (let j = 0; j < 16; j++) {
      const byte = b[at + codes + j]!;
      let first = byte & 15, second = byte >> 4;
      if (high !== undefined) {
        const bits = at + high + (j >> 3), shift = j & 7;
        first |= (b[bits]! >> shift & 1) << 4;
        second |= (b[bits + 2]! >> shift & 1) << 4;
      }
      out[to + j] = d * (first - zero) + m;
      out[to + 16 + j] = d * (second - zero) + m;
    }
  };
}

/** 32 codes of IQ4_NL or IQ4_XS, in the order of `nibbles`. */
function iq4(b: Uint8Array, codes: number, step: number, out: Float32Array, to: number): void {
  for (let j = 0; j < 16; j++) {
    const byte = b[codes + j]!;
    out[to + j] = step * IQ4[byte & 15]!;
    out[to + 16 + j] = step * IQ4[byte >> 4]!;
  }
}

/** Scale and minimum of sub-block `j` of Q4_K and Q5_K, 6 bits each in the 12 bytes at `s`. */
function scaleAndMin(b: Uint8Array, s: number, j: number): [scale: number, min: number] {
  if (j < 4) return [b[s + j]! & 63, b[s + j + 4]! & 63];
  const both = b[s + j + 4]!;
  return [both & 15 | b[s + j - 4]! >> 6 << 4, both >> 4 | b[s + j]! >> 6 << 4];
}

/** Q4_K, or with a fifth bit of each code at `high` Q5_K. */
function k45(codes: number, high?: number) {
  return (b: Uint8Array, at: number, out: Float32Array, to: number) => {
    const d = half(b, at), dmin = half(b, at + 2);
    for (let j = 0; j < 8; j++) {
      const [scale, min] = scaleAndMin(b, at + 4, j);
      const step = d * scale, offset = dmin * min;
      for (let i = 0; i < 32; i++) {
        let q = b[at + codes + (j >> 1) * 32 + i]! >> (j & 1) * 4 & 15;
        if (high !== undefined) q |= (b[at + high + i]! >> j & 1) << 4;
        out[to + j * 32 + i] = step * q - offset;
      }
    }
  };
}

/** Writes the codes of a block of Q6_K, where 128 stands for 0, and the scale of each 16. */
export function unpackQ6K(
  b: Uint8Array,
  at: number,
  codes: Uint8Array,
  toCode: number,
  scales: Float32Array,
  toScale: number,
): void {
  const d = half(b, at + 208);
  for (let g = 0; g < 16; g++) {
    scales[toScale + g] = d * signed(b[at + 192 + g]!);
    const part = g >> 3, quarter = g >> 1 & 3;
    const low = at + part * 64 + (g & 3) * 16, high = at + 128 + part * 32 + (g & 1) * 16;
    for (let i = 0; i < 16; i++) {
      const q = b[low + i]! >> (quarter >> 1) * 4 & 15 | (b[high + i]! >> quarter * 2 & 3) << 4;
      codes[toCode + g * 16 + i] = q + 96;
    }
  }
}

/** One block of Q6_K, unpacked. */
const q6 = { codes: new Uint8Array(256), scales: new Float32Array(16) };

/** Layouts by the names of GGUF. */
const LAYOUTS = {
  F32: { elements: 1, bytes: 4 },
  F16: { elements: 1, bytes: 2 },
  BF16: { elements: 1, bytes: 2 },
  Q4_0: { elements: 32, bytes: 18, decode: nibbles(2, { zero: 8 }) },
  Q4_1: { elements: 32, bytes: 20, decode: nibbles(4, { min: 2 }) },
  Q5_0: { elements: 32, bytes: 22, decode: nibbles(6, { high: 2, zero: 16 }) },
  Q5_1: { elements: 32, bytes: 24, decode: nibbles(8, { high: 4, min: 2 }) },
  Q8_0: {
    elements: 32,
    bytes: 34,
    decode(b, at, out, to) {
      const d = half(b, at);
      for (let i = 0; i < 32; i++) out[to + i] = d * signed(b[at + 2 + i]!);
    },
  },
  Q2_K: {
    elements: 256,
    bytes: 84,
    decode(b, at, out, to) {
      const d = half(b, at + 80), dmin = half(b, at + 82);
      for (let g = 0; g < 16; g++) {
        const scale = b[at + g]!, step = d * (scale & 15), offset = dmin * (scale >> 4);
        const codes = at + 16 + (g >> 3) * 32 + (g & 1) * 16, shift = (g >> 1 & 3) * 2;
        for (let i = 0; i < 16; i++) {
          out[to + g * 16 + i] = step * (b[codes + i]! >> shift & 3) - offset;
        }
      }
    },
  },
  Q3_K: {
    elements: 256,
    bytes: 110,
    decode(b, at, out, to) {
      const d = half(b, at + 108);
      for (let g = 0; g < 16; g++) {
        const low = b[at + 96 + (g & 7)]! >> (g >> 3) * 4 & 15;
        const high = b[at + 104 + (g & 3)]! >> (g >> 2) * 2 & 3;
        const step = d * ((low | high << 4) - 32), shift = (g >> 1 & 3) * 2;
        const bits = at + (g & 1) * 16, codes = bits + 32 + (g >> 3) * 32;
        for (let i = 0; i < 16; i++) {
          const q = b[codes + i]! >> shift & 3 | (b[bits + i]! >> (g >> 1) & 1) << 2;
          out[to + g * 16 + i] = step * (q - 4);
        }
      }
    },
  },
  Q4_K: { elements: 256, bytes: 144, decode: k45(16) },
  Q5_K: { elements: 256, bytes: 176, decode: k45(48, 16) },
  Q6_K: {
    elements: 256,
    bytes: 210,
    decode(b, at, out, to) {
      unpackQ6K(b, at, q6.codes, 0, q6.scales, 0);
      for (let i = 0; i < 256; i++) out[to + i] = q6.scales[i >> 4]! * (q6.codes[i]! - 128);
    },
  },
  IQ4_NL: {
    elements: 32,
    bytes: 18,
    decode: (b, at, out, to) => iq4(b, at + 2, half(b, at), out, to),
  },
  IQ4_XS: {
    elements: 256,
    bytes: 136,
    decode(b, at, out, to) {
      const d = half(b, at), high = b[at + 2]! | b[at + 3]! << 8;
      for (let s = 0; s < 8; s++) {
        const low = b[at + 4 + (s >> 1)]! >> (s & 1) * 4 & 15;
        const step = d * ((low | (high >> s * 2 & 3) << 4) - 32);
        iq4(b, at + 8 + s * 16, step, out, to + s * 32);
      }
    },
  },
} as const satisfies Readonly<Record<string, BlockLayout>>;

/** A tensor type of GGUF that is read. */
export type BlockType = keyof typeof LAYOUTS;

/** Sizes of a block by type; F32, F16 and BF16 have blocks of one element. */
export const BLOCKS: Readonly<Record<BlockType, BlockLayout>> = LAYOUTS;

/** Decodes whole blocks into f32; `out` has as many elements as they stand for. */
export function decodeBlocks(type: BlockType, blocks: Uint8Array, out: Float32Array): void {
  const { elements, bytes, decode } = BLOCKS[type];
  if (!decode) throw new TypeError(`${type} has no blocks to decode`);
  for (let at = 0, to = 0; to < out.length; at += bytes, to += elements) {
    decode(blocks, at, out, to);
  }
}
