/** Primitives that move elements without computing: other shapes, orders and parts. */
import type { Builder } from "../builder.ts";
import { elementCount, formatType, type Shape, type Value } from "../types.ts";
import { axisOf, broadcastShapes, primitive } from "./define.ts";

const reshapeOp = primitive<{ shape: Shape }>({
  name: "reshape",
  infer([x], { shape }) {
    if (elementCount(x!.shape) !== elementCount(shape)) {
      throw new TypeError(`Cannot reshape ${formatType(x!)} to [${shape.join(", ")}]`);
    }
    return [{ dtype: x!.dtype, shape }];
  },
  memory: "view",
});

/** The same elements under another shape. */
export function reshape(g: Builder, x: Value, shape: Shape): Value {
  return g.apply1(reshapeOp, [x], { shape });
}

const transposeOp = primitive<{ order: readonly number[] }>({
  name: "transpose",
  infer([x], { order }) {
    if (order.length !== x!.shape.length || new Set(order).size !== order.length) {
      throw new TypeError(`Cannot transpose ${formatType(x!)} by [${order.join(", ")}]`);
    }
    return [{ dtype: x!.dtype, shape: order.map((axis) => x!.shape[axis]!) }];
  },
});

/** Output axis i is input axis `order[i]`. */
export function transpose(g: Builder, x: Value, order: readonly number[]): Value {
  return g.apply1(transposeOp, [x], { order });
}

const broadcastOp = primitive<{ shape: Shape }>({
  name: "broadcast",
  infer([x], { shape }) {
    const result = broadcastShapes(x!.shape, shape);
    if (result.some((size, axis) => size !== shape[axis])) {
      throw new TypeError(`Cannot broadcast ${formatType(x!)} to [${shape.join(", ")}]`);
    }
    return [{ dtype: x!.dtype, shape }];
  },
});

/** Repeats axes of size 1 (and missing leading ones) until the shape is reached. */
export function broadcast(g: Builder, x: Value, shape: Shape): Value {
  return g.apply1(broadcastOp, [x], { shape });
}

const sliceOp = primitive<{ axis: number; start: number; end: number }>({
  name: "slice",
  infer([x], { axis, start, end }) {
    if (start < 0 || end > x!.shape[axis]! || start > end) {
      throw new TypeError(`Cannot slice ${start}..${end} of axis ${axis} of ${formatType(x!)}`);
    }
    return [{ dtype: x!.dtype, shape: x!.shape.map((n, i) => i === axis ? end - start : n) }];
  },
});

/** Elements `start ≤ i < end` of one axis. */
export function slice(g: Builder, x: Value, axis: number, start: number, end: number): Value {
  return g.apply1(sliceOp, [x], { axis: axisOf(x, axis), start, end });
}

const concatOp = primitive<{ axis: number }>({
  name: "concat",
  infer(inputs, { axis }) {
    const first = inputs[0]!;
    const fits = inputs.every((x) =>
      x.dtype === first.dtype && x.shape.length === first.shape.length &&
      x.shape.every((size, i) => i === axis || size === first.shape[i])
    );
    if (!fits) throw new TypeError(`Cannot join ${inputs.map(formatType).join(" and ")}`);
    const total = inputs.reduce((size, x) => size + x.shape[axis]!, 0);
    return [{ dtype: first.dtype, shape: first.shape.map((n, i) => i === axis ? total : n) }];
  },
});

/** Joins tensors along one axis. */
export function concat(g: Builder, inputs: readonly Value[], axis: number): Value {
  return g.apply1(concatOp, inputs, { axis: axisOf(inputs[0]!, axis) });
}

const recomputeOp = primitive<{ segment: number }>({
  name: "recompute",
  infer: ([x]) => [x!],
  memory: "view",
});

/**
 * x itself, but never taken for equal to another value: a segment of the program that is computed
 * again to save memory starts from it (see `differentiate.ts`).
 */
export function recompute(g: Builder, x: Value, segment: number): Value {
  return g.apply1(recomputeOp, [x], { segment });
}
