/**
 * cuTensorMapEncodeTiled: a tensor and the boxes in which a kernel copies it, in 128 bytes.
 *
 * Takes what the driver is told; returns the bytes as `boxes.hpp` reads them, or the code that a
 * driver has for what the hardware cannot do. Whether the tensor lies in memory is checked here,
 * which a driver does not; what is wrong then would only show when a kernel copies.
 */
import { addressOf, EmulatorError, type HostBuffer, type Memory, viewOf } from "./memory.ts";
import { CODE } from "./streams.ts";

const MAGIC = 0x70616d54;
const MAP_BYTES = 128;
/** Bytes of the element types, by the driver's numbers: u8, u16, u32, i32, f16, f32, bf16. */
const ELEMENT_BYTES: Readonly<Record<number, number>> = {
  ...{ 0: 1, 1: 2, 2: 4, 3: 4, 6: 2, 7: 4, 9: 2 },
};
/** Bytes within which pieces are exchanged, by the driver's numbers. */
const SWIZZLE_BYTES = [0, 32, 64, 128] as const;
const [MAX_RANK, MAX_BOX, MAX_SIZE, MAX_STRIDE] = [5, 256, 2n ** 32n, 2n ** 40n];

/** What a map is made of, in the order of the driver's arguments. */
export interface TensorMapArguments {
  readonly type: number;
  readonly rank: number;
  readonly address: bigint;
  readonly sizes: HostBuffer;
  readonly strides: HostBuffer;
  readonly box: HostBuffer;
  readonly steps: HostBuffer;
  readonly interleave: number;
  readonly swizzle: number;
}

/** Writes a map; the result is a CUresult. */
export function encodeTensorMap(memory: Memory, out: HostBuffer, all: TensorMapArguments): number {
  const { type, rank, address, interleave } = all;
  const [elementBytes, swizzleBytes] = [ELEMENT_BYTES[type], SWIZZLE_BYTES[all.swizzle]];
  if (elementBytes === undefined || swizzleBytes === undefined) return CODE.invalidValue;
  if (rank < 1 || rank > MAX_RANK || interleave !== 0) return CODE.invalidValue;
  const view = viewOf(out);
  const list64 = (buffer: HostBuffer, count: number) =>
    Array.from({ length: count }, (_, i) => viewOf(buffer).getBigUint64(8 * i, true));
  const list32 = (buffer: HostBuffer) =>
    Array.from({ length: rank }, (_, i) => viewOf(buffer).getUint32(4 * i, true));
  const [sizes, strides] = [list64(all.sizes, rank), list64(all.strides, rank - 1)];
  const [box, steps] = [list32(all.box), list32(all.steps)];
  const row = box[0]! * elementBytes;
  const fits = view.byteLength >= MAP_BYTES && addressOf(view) % 64n === 0n &&
    address % 16n === 0n && row % 16 === 0 && (swizzleBytes === 0 || row <= swizzleBytes) &&
    sizes.every((size) => size > 0n && size <= MAX_SIZE) &&
    strides.every((stride) => stride % 16n === 0n && stride < MAX_STRIDE) &&
    box.every((size) => size > 0 && size <= MAX_BOX) && steps.every((step) => step === 1);
  if (!fits) return CODE.invalidValue;
  const bytes = sizes.slice(1).reduce(
    (sum, size, i) => sum + (size - 1n) * strides[i]!,
    sizes[0]! * BigInt(elementBytes),
  );
  if (!memory.holds(address, bytes)) {
    throw new EmulatorError(
      `Cannot encode a tensor map: found no allocation with ${bytes} bytes at ` +
        `0x${address.toString(16)}`,
    );
  }
  view.setUint32(0, MAGIC, true);
  [rank, elementBytes, swizzleBytes, 0].forEach((value, i) => view.setUint8(4 + i, value));
  view.setBigUint64(8, address, true);
  sizes.forEach((size, i) => view.setBigUint64(16 + 8 * i, size, true));
  strides.forEach((stride, i) => view.setBigUint64(56 + 8 * i, stride, true));
  box.forEach((size, i) => view.setUint32(88 + 4 * i, size, true));
  return CODE.success;
}
