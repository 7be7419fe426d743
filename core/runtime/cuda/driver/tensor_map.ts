/**
 * Tensor maps: what the hardware has to know of a tensor to copy boxes of it into shared memory.
 *
 * Takes a dense tensor of bf16 and the size of a box; returns the 128 bytes that a kernel is given.
 * Rows of a box are at most 128 bytes, and lie in shared memory as wgmma reads them: swizzled. A
 * map holds an address, so a tensor that has moved needs another one.
 */
import { checkDriver } from "./errors.ts";
import type { DriverSymbols } from "./symbols.ts";

/** A dense tensor of bf16, innermost size first, and the box of it that one copy takes. */
export interface TensorBoxes {
  readonly address: bigint;
  readonly sizes: readonly number[];
  readonly box: readonly number[];
}

/** Boxes of one head each in a tensor [..., slots, D]. */
export function boxesOf(
  { shape }: { readonly shape: readonly number[] },
  address: bigint,
  box: readonly [elements: number, rows: number],
): TensorBoxes {
  const [slots, D] = shape.slice(-2) as [number, number];
  const heads = shape.slice(0, -2).reduce((product, size) => product * size, 1);
  return { address, sizes: [D, slots, heads], box: [...box, 1] };
}

/** The driver's numbers: element type, no interleaving, swizzle, promotion in the cache, zeros outside. */
const [BF16, PLAIN, SWIZZLE_128, PROMOTE_128, ZEROS] = [9, 0, 3, 2, 0] as const;
const ELEMENT_BYTES = 2;
/** Bytes of a map, which has to begin at a multiple of 64 of them; from CUDA 13 on at one of 128. */
const MAP_BYTES = 128;

/** The map of a tensor. */
export function encodeTensorMap(
  symbols: DriverSymbols,
  { address, sizes, box }: TensorBoxes,
): Uint8Array<ArrayBuffer> {
  const map = alignedBytes(MAP_BYTES);
  let stride = ELEMENT_BYTES;
  const strides = sizes.slice(0, -1).map((size) => BigInt(stride *= size));
  const code = symbols.cuTensorMapEncodeTiled(
    ...[map, BF16, sizes.length, address] as const,
    ...[BigUint64Array.from(sizes, BigInt), BigUint64Array.from(strides)] as const,
    ...[Uint32Array.from(box), Uint32Array.from(sizes, () => 1)] as const,
    ...[PLAIN, SWIZZLE_128, PROMOTE_128, ZEROS] as const,
  );
  checkDriver(code, `describe boxes of ${box.join(" × ")} in a tensor of ${sizes.join(" × ")}`);
  return map;
}

/** As many bytes, at a multiple of their number. */
function alignedBytes(count: number): Uint8Array<ArrayBuffer> {
  const buffer = new ArrayBuffer(2 * count);
  const rest = Number(Deno.UnsafePointer.value(Deno.UnsafePointer.of(buffer)) % BigInt(count));
  return new Uint8Array(buffer, (count - rest) % count, count);
}
