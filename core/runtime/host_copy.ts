/** `Device.copy` for devices whose tensors lie in host memory. */
import type { CopyRegion, HostArray } from "./device.ts";

/** Copies a rectangle of elements between two arrays of one type. */
export function copyHostRegion(source: HostArray, target: HostArray, region: CopyRegion): void {
  for (let row = 0; row < region.height; row++) {
    const from = region.sourceOffset + row * region.sourceStride;
    const part = source.subarray(from, from + region.width);
    target.set(part, region.targetOffset + row * region.targetStride);
  }
}
