/**
 * Stored element types to float32 and back.
 *
 * Weights are computed in float32 and stored in one of three types. Casts to f32 are exact; casts from it
 * rounds to nearest, ties to even. Both work on whole arrays in the machine's byte order, which is
 * little-endian, as the files are.
 */

/** Element type of stored weights. */
export type WeightType = "f32" | "bf16" | "f16";

/** Bytes of one stored element. */
export const ELEMENT_BYTES: Readonly<Record<WeightType, number>> = { f32: 4, bf16: 2, f16: 2 };

/** Names of the types in a safetensors header. */
export const HEADER_DTYPE: Readonly<Record<WeightType, string>> = {
  f32: "F32",
  bf16: "BF16",
  f16: "F16",
};

/** The weight type of a safetensors name, or undefined for another type. */
export function weightType(dtype: string): WeightType | undefined {
  return dtype === "F32" ? "f32" : dtype === "BF16" ? "bf16" : dtype === "F16" ? "f16" : undefined;
}

/** Stored bytes as float32. `f32` is not copied when it is aligned. */
export function toF32(bytes: Uint8Array<ArrayBuffer>, type: WeightType): Float32Array<ArrayBuffer> {
  const count = bytes.length / ELEMENT_BYTES[type];
  if (type === "f32" && bytes.byteOffset % 4 === 0) {
    return new Float32Array(bytes.buffer, bytes.byteOffset, count);
  }
  const values = new Float32Array(count);
  toF32Into(values, bytes, type);
  return values;
}

/** Fills `target` with the first elements of stored bytes. */
export function toF32Into(target: Float32Array, bytes: Uint8Array, type: WeightType): void {
  const size = ELEMENT_BYTES[type];
  const count = target.length;
  const aligned = bytes.byteOffset % size === 0 ? bytes : bytes.slice(0, count * size);
  const { buffer, byteOffset } = aligned;
  if (type === "f32") target.set(new Float32Array(buffer, byteOffset, count));
  else if (type === "f16") target.set(new Float16Array(buffer, byteOffset, count));
  else {
    const source = new Uint16Array(buffer, byteOffset, count);
    const bits = new Uint32Array(target.buffer, target.byteOffset, count);
    for (let i = 0; i < count; i++) bits[i] = source[i]! << 16;
  }
}

/** Float32 values as stored bytes. */
export function fromF32(
  values: Float32Array<ArrayBuffer>,
  type: WeightType,
): Uint8Array<ArrayBuffer> {
  if (type === "f32") return new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
  if (type === "f16") return new Uint8Array(new Float16Array(values).buffer);
  const bits = new Uint32Array(values.buffer, values.byteOffset, values.length);
  const result = new Uint16Array(values.length);
  for (let i = 0; i < bits.length; i++) {
    const word = bits[i]!;
    // Adding just under half rounds up what lies above the middle; the last kept bit decides ties.
    // A NaN must stay one: rounding could carry its fraction into the exponent.
    result[i] = (word & 0x7fffffff) > 0x7f800000
      ? (word >>> 16) | 0x40
      : (word + 0x7fff + ((word >>> 16) & 1)) >>> 16;
  }
  return new Uint8Array(result.buffer);
}

/** Exponent bits in a 32-bit word, which holds one f32 or two 16-bit elements, and their lowest. */
const EXPONENTS: Readonly<Record<WeightType, readonly [all: number, lowest: number]>> = {
  f32: [0x7f800000, 0x00800000],
  bf16: [0x7f807f80, 0x00800080],
  f16: [0x7c007c00, 0x04000400],
};

/**
 * Position of the first NaN or infinity in stored bytes, or -1.
 *
 * Both have all exponent bits set, so adding the lowest of these bits carries into the sign bit; any
 * other exponent does not get that far. One addition thus tests a whole word. `bytes` must start at a
 * multiple of four.
 */
export function findNonFinite(bytes: Uint8Array<ArrayBuffer>, type: WeightType): number {
  const [all, lowest] = EXPONENTS[type];
  const signs = type === "f32" ? 0x80000000 : 0x80008000;
  const words = new Int32Array(bytes.buffer, bytes.byteOffset, bytes.length >>> 2);
  let found = bytes.length % 4 === 0 ? 0 : -1; // an odd last element gets the slow look
  for (let i = 0; i < words.length; i++) found |= (words[i]! & all) + lowest;
  if ((found & signs) === 0) return -1;
  return toF32(bytes, type).findIndex((value) => !Number.isFinite(value));
}
