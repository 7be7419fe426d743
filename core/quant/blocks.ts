/**
 * Blocks of quantized weights as GGUF files store them, and what they stand for in f32.
 *
 * Formulas are those of ggml. Every product is exact and every value is rounded once, so the result
 * equals `dequantize` of the Python package `gguf` bit for bit. Elements lie along rows; a block never
 * crosses the end of one.
 */

/** A matrix in codes of 8 or 4 bits; see `codes.ts`. */
export interface Quantized {
  /** [N, blocks, block · bits / 8] */
  readonly codes: Uint8Array;
  /** [N · blocks] */
  readonly scales: Float32Array;
  /** [N · blocks]; absent where all are 0. */
  readonly offsets?: Float32Array;
}

/** Sizes of a block, and its decoder. */
interface BlockLayout {
  readonly elements: number;
  readonly bytes: number;
  /** Writes the elements of the block at `at` to `out[to…]`. */
  readonly decode?: (b: Uint8Array, at: number, out: Float32Array, to: number) => void;
  /** Writes the codes of the block at `at`, of those whose codes can be kept, as the `i`-th of a matrix. */
  readonly unpack?: (b: Uint8Array, at: number, target: Quantized, i: number) => void;
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

/** Returns a DataView of an array; keeps the last one. */
function viewer(): (bytes: Uint8Array) => DataView {
  let last: Uint8Array | undefined, view: DataView;
  return (bytes) => {
    if (bytes !== last) view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    last = bytes;
    return view;
  };
}

/** Four codes at a time take a third of the time. */
const sourceOf = viewer(), wordsOf = viewer();

/** Codes of 8 bits. */
function unpackQ5K(b: Uint8Array, at: number, target: Quantized, n: number): void {
  const source = sourceOf(b), words = wordsOf(target.codes);
  const d = half(b, at), dmin = half(b, at + 2);
  for (let j = 0; j < 8; j++) {
    const [scale, min] = scaleAndMin(b, at + 4, j);
    target.scales[n * 8 + j] = d * scale;
    target.offsets![n * 8 + j] = 16 * d * scale - dmin * min;
    const from = at + 48 + (j >> 1) * 32, to = n * 256 + j * 32;
    for (let i = 0; i < 32; i += 4) {
      const low = source.getUint32(from + i, true) >>> (j & 1) * 4 & 0x0f0f0f0f;
      const high = source.getUint32(at + 16 + i, true) >>> j & 0x01010101;
      words.setUint32(to + i, (low | high << 4) + 0x70707070, true);
    }
  }
}

/** Codes of 4 bits. */
function unpackQ3K(b: Uint8Array, at: number, { codes, scales }: Quantized, n: number): void {
  const d = half(b, at + 108);
  for (let g = 0; g < 16; g++) {
    const low = b[at + 96 + (g & 7)]! >> (g >> 3) * 4 & 15;
    const high = b[at + 104 + (g & 3)]! >> (g >> 2) * 2 & 3;
    scales[n * 16 + g] = d * ((low | high << 4) - 32);
    const shift = (g >> 1 & 3) * 2, bits = at + (g & 1) * 16, from = bits + 32 + (g >> 3) * 32;
    const q = (i: number) => b[from + i]! >> shift & 3 | (b[bits + i]! >> (g >> 1) & 1) << 2;
    for (let i = 0; i < 8; i++) codes[n * 128 + g * 8 + i] = q(2 * i) + 4 | q(2 * i + 1) + 4 << 4;
  }
}

/** Codes of 8 bits. */
function unpackQ6K(b: Uint8Array, at: number, { codes, scales }: Quantized, n: number): void {
  const d = half(b, at + 208), source = sourceOf(b), words = wordsOf(codes);
  for (let g = 0; g < 16; g++) {
    scales[n * 16 + g] = d * signed(b[at + 192 + g]!);
    const part = g >> 3, quarter = g >> 1 & 3;
    const low = at + part * 64 + (g & 3) * 16, high = at + 128 + part * 32 + (g & 1) * 16;
    for (let i = 0; i < 16; i += 4) {
      const q = source.getUint32(low + i, true) >>> (quarter >> 1) * 4 & 0x0f0f0f0f |
        (source.getUint32(high + i, true) >>> quarter * 2 & 0x03030303) << 4;
      words.setUint32(n * 256 + g * 16 + i, q + 0x60606060, true);
    }
  }
}

/** Codes of 4 bits. */
function unpackQ4_1(b: Uint8Array, at: number, target: Quantized, n: number): void {
  const source = sourceOf(b), words = wordsOf(target.codes);
  const d = target.scales[n] = half(b, at);
  target.offsets![n] = 8 * d + half(b, at + 2);
  for (let i = 0; i < 16; i += 4) {
    const word = source.getUint32(at + 4 + i, true), to = n * 16 + i / 2;
    words.setUint16(to, pairs(word & 0x0f0f0f0f), true);
    words.setUint16(to + 8, pairs(word >>> 4 & 0x0f0f0f0f), true);
  }
}

/** Four codes of 4 bits, one a byte, in two bytes. */
function pairs(codes: number): number {
  const both = codes | codes >>> 4;
  return both & 0xff | both >>> 8 & 0xff00;
}

/** Codes of 8 bits. */
function unpackQ5_1(b: Uint8Array, at: number, target: Quantized, n: number): void {
  const source = sourceOf(b), words = wordsOf(target.codes);
  const d = target.scales[n] = half(b, at);
  target.offsets![n] = 16 * d + half(b, at + 2);
  const fifth = source.getUint32(at + 4, true);
  for (let i = 0; i < 32; i += 4) {
    const low = source.getUint32(at + 8 + (i & 15), true) >>> (i >> 4) * 4 & 0x0f0f0f0f;
    // Spreads four bits over the bytes of a word.
    const bits = Math.imul(fifth >>> i & 15, 0x204081) & 0x01010101;
    words.setUint32(n * 32 + i, (low | bits << 4) + 0x70707070, true);
  }
}

/** Codes of 4 bits. */
function unpackQ2K(b: Uint8Array, at: number, target: Quantized, n: number): void {
  const { codes, scales, offsets } = target;
  const d = half(b, at + 80), dmin = half(b, at + 82);
  for (let g = 0; g < 16; g++) {
    const scale = b[at + g]!, step = d * (scale & 15);
    scales[n * 16 + g] = step;
    offsets![n * 16 + g] = 2 * step - dmin * (scale >> 4);
    const from = at + 16 + (g >> 3) * 32 + (g & 1) * 16, shift = (g >> 1 & 3) * 2;
    const q = (i: number) => b[from + i]! >> shift & 3;
    for (let i = 0; i < 8; i++) codes[n * 128 + g * 8 + i] = q(2 * i) + 6 | q(2 * i + 1) + 6 << 4;
  }
}

/** 32 codes of IQ4_NL or IQ4_XS at `from`, in 8 bits. */
function unpackIQ4(b: Uint8Array, from: number, codes: Uint8Array, to: number): void {
  for (let i = 0; i < 32; i++) codes[to + i] = IQ4[b[from + (i & 15)]! >> (i >> 4) * 4 & 15]! + 128;
}

function unpackIQ4NL(b: Uint8Array, at: number, { codes, scales }: Quantized, n: number): void {
  scales[n] = half(b, at);
  unpackIQ4(b, at + 2, codes, n * 32);
}

function unpackIQ4XS(b: Uint8Array, at: number, { codes, scales }: Quantized, n: number): void {
  const d = half(b, at), high = b[at + 2]! | b[at + 3]! << 8;
  for (let s = 0; s < 8; s++) {
    const low = b[at + 4 + (s >> 1)]! >> (s & 1) * 4 & 15;
    scales[n * 8 + s] = d * ((low | (high >> s * 2 & 3) << 4) - 32);
    unpackIQ4(b, at + 8 + s * 16, codes, n * 256 + s * 32);
  }
}

/** One block, unpacked. */
const unpacked = { codes: new Uint8Array(256), scales: new Float32Array(16) };

/** A type without minima, decoded by way of its codes in 8 bits. */
function byCodes(
  elements: number,
  bytes: number,
  block: number,
  unpack: NonNullable<BlockLayout["unpack"]>,
): BlockLayout {
  const decode: BlockLayout["decode"] = (b, at, out, to) => {
    unpack(b, at, unpacked, 0);
    const { codes, scales } = unpacked;
    for (let g = 0, i = 0; i < elements; g++) {
      const scale = scales[g]!;
      for (const end = i + block; i < end; i++) out[to + i] = scale * (codes[i]! - 128);
    }
  };
  return { elements, bytes, decode, unpack };
}

/** Layouts by the names of GGUF. */
const LAYOUTS = {
  F32: { elements: 1, bytes: 4 },
  F16: { elements: 1, bytes: 2 },
  BF16: { elements: 1, bytes: 2 },
  Q4_0: { elements: 32, bytes: 18, decode: nibbles(2, { zero: 8 }) },
  Q4_1: { elements: 32, bytes: 20, decode: nibbles(4, { min: 2 }), unpack: unpackQ4_1 },
  Q5_0: { elements: 32, bytes: 22, decode: nibbles(6, { high: 2, zero: 16 }) },
  Q5_1: { elements: 32, bytes: 24, decode: nibbles(8, { high: 4, min: 2 }), unpack: unpackQ5_1 },
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
    unpack: unpackQ2K,
  },
  Q3_K: {
    elements: 256,
    bytes: 110,
    decode(b, at, out, to) {
      unpackQ3K(b, at, unpacked, 0);
      for (let i = 0; i < 128; i++) {
        const pair = unpacked.codes[i]!, scale = unpacked.scales[i >> 3]!;
        out[to + 2 * i] = scale * ((pair & 15) - 8);
        out[to + 2 * i + 1] = scale * ((pair >> 4) - 8);
      }
    },
    unpack: unpackQ3K,
  },
  Q4_K: { elements: 256, bytes: 144, decode: k45(16) },
  Q5_K: { elements: 256, bytes: 176, decode: k45(48, 16), unpack: unpackQ5K },
  Q6_K: byCodes(256, 210, 16, unpackQ6K),
  IQ4_NL: byCodes(32, 18, 32, unpackIQ4NL),
  IQ4_XS: byCodes(256, 136, 32, unpackIQ4XS),
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
