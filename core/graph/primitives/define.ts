/** The registry of primitives, and what their shape rules share. */
import { type Attributes, formatType, type Op, type Shape, type TensorType } from "../types.ts";

const registry = new Map<string, Op>();

/** All primitives by name; tests walk it to see that nothing is left out. */
export const PRIMITIVES: ReadonlyMap<string, Op> = registry;

/** Enters a primitive in the registry. */
export function primitive<A extends Attributes>(op: Op<A>): Op<A> {
  registry.set(op.name, op as Op);
  return op;
}

/** The shape two operands broadcast to, as in NumPy. Throws `TypeError` when they do not fit. */
export function broadcastShapes(a: Shape, b: Shape): number[] {
  const rank = Math.max(a.length, b.length);
  return Array.from({ length: rank }, (_, axis) => {
    const x = a[axis - rank + a.length] ?? 1;
    const y = b[axis - rank + b.length] ?? 1;
    if (x !== y && x !== 1 && y !== 1) {
      throw new TypeError(`Cannot broadcast [${a.join(", ")}] with [${b.join(", ")}]`);
    }
    return x === 1 ? y : x;
  });
}

/** A non-negative axis of a tensor. Throws `TypeError` when it has no such axis. */
export function axisOf(type: TensorType, axis: number): number {
  const positive = axis < 0 ? axis + type.shape.length : axis;
  if (positive < 0 || positive >= type.shape.length) {
    throw new TypeError(`Cannot take axis ${axis} of ${formatType(type)}`);
  }
  return positive;
}
