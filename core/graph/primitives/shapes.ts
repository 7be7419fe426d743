/** Helpers of the shape rules of primitives. */
import type { Attributes, Primitive, Shape, TensorType } from "../types.ts";

/** A primitive whose name is known to the compiler. */
export type Named<N extends string, A extends Attributes = Record<never, never>> =
  & Primitive<A>
  & { readonly name: N };

/** Types of one, two and three inputs. */
export type One = readonly [TensorType];
export type Two = readonly [TensorType, TensorType];
export type Three = readonly [TensorType, TensorType, TensorType];

/** The shape two operands broadcast to, as in NumPy. Throws `TypeError` when they do not fit. */
export function broadcastShapes(a: Shape, b: Shape): number[] {
  const rank = Math.max(a.length, b.length);
  return Array.from({ length: rank }, (_, axis) => {
    const x = a[axis - rank + a.length] ?? 1;
    const y = b[axis - rank + b.length] ?? 1;
    if (x !== y && x !== 1 && y !== 1) {
      throw new TypeError(`cannot broadcast [${a.join(", ")}] with [${b.join(", ")}]`);
    }
    return x === 1 ? y : x;
  });
}
