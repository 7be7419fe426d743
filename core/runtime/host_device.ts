/**
 * Base of devices whose tensors lie in host memory.
 */
import type { CopyRegion, DeviceTensor, HostArray, HostTensor } from "./device.ts";

/** Array types of tensor elements in host memory; 16-bit floats as their bits. */
export const HOST_ARRAYS = {
  f32: Float32Array,
  i32: Int32Array,
  bf16: Uint16Array,
  f16: Uint16Array,
  bool: Uint8Array,
} as const;

/** Reading, writing and copying where every tensor has its elements in `data`. */
export abstract class HostDevice {
  /** Overwrites a tensor. */
  write(tensor: DeviceTensor, data: ArrayLike<number>): void {
    (tensor as HostTensor).data.set(data);
  }

  /** Zeroes a tensor. */
  clear(tensor: DeviceTensor): void {
    (tensor as HostTensor).data.fill(0);
  }

  /** The elements themselves, not a copy. */
  read(tensor: DeviceTensor): HostArray {
    return (tensor as HostTensor).data;
  }

  /** Copies a rectangle of elements between two tensors of one type. */
  copy(source: DeviceTensor, target: DeviceTensor, region: CopyRegion): void {
    const [from, to] = [(source as HostTensor).data, (target as HostTensor).data];
    for (let row = 0; row < region.height; row++) {
      const start = region.sourceOffset + row * region.sourceStride;
      to.set(
        from.subarray(start, start + region.width),
        region.targetOffset + row * region.targetStride,
      );
    }
  }
}
