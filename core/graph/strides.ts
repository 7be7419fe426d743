/**
 * Strides: how far apart neighbours along each axis of a tensor lie, in elements.
 */
import type { Shape } from "./types.ts";

/** Strides of a dense tensor. */
export function denseStrides(shape: Shape): number[] {
  const strides = new Array<number>(shape.length).fill(1);
  for (let axis = shape.length - 2; axis >= 0; axis--) {
    strides[axis] = strides[axis + 1]! * shape[axis + 1]!;
  }
  return strides;
}

/** Strides that read a dense `from` as if it had been broadcast to `to`: 0 along repeated axes. */
export function broadcastStrides(from: Shape, to: Shape): number[] {
  const own = denseStrides(from);
  const missing = to.length - from.length;
  return to.map((_, axis) => {
    const at = axis - missing;
    return at < 0 || from[at] === 1 ? 0 : own[at]!;
  });
}
